import { findUsageReport, type UsageReport } from "./usage.ts";

/** What an event means for the stream that it is part of. */
export type EventRole = "data" | "done" | "last" | "comment" | "empty";

const colon = 0x3a;
const letterE = 0x65;
/** `data: [DONE]` and its line ends fit well within this. */
const maxDoneBytes = 64;
/** Room for the longest name of `lastEvent` and what follows it. */
const maxNameBytes = 48;

const doneData = /^data: ?\[DONE\]\r?$/m;
/**
 * The events that end a stream in the Responses API and in Anthropic's; both name their events. An error event ends
 * it too: the engine has said what it had to say.
 */
const lastEvent =
  /^event: ?(?:message_stop|response\.completed|response\.failed|response\.incomplete|error)(?:\r\n?|\n)/;
const noChoices = /"choices"\s*:\s*\[\s*\]/;

/** @param start where the event begins in `bytes`; `end` is behind its last line end */
export function eventRole(bytes: Buffer, start: number, end: number): EventRole {
  if (end - start <= 2) return "empty";
  if (end - start <= maxDoneBytes && doneData.test(bytes.toString("latin1", start, end))) return "done";
  const first = bytes[start];
  if (first !== letterE) return first === colon ? "comment" : "data";
  return lastEvent.test(bytes.toString("latin1", start, Math.min(end, start + maxNameBytes))) ? "last" : "data";
}

/** Whether an event has nothing but usage in it: an object with an empty `choices` and a report. */
export function isUsageOnly(event: Buffer): boolean {
  if (!noChoices.test(event.toString("latin1"))) return false;
  const data = parseEventData(event);
  return Array.isArray(data?.choices) && data.choices.length === 0 && findUsageReport(data) !== undefined;
}

/** The report in an event's data, if it has one. */
export function eventUsage(event: Buffer | undefined): UsageReport | undefined {
  return event && findUsageReport(parseEventData(event));
}

/** The JSON object in an event's data lines; undefined when they hold none, or only a part of one. */
export function parseEventData(event: Buffer): Readonly<Record<string, unknown>> | undefined {
  let data = "";
  for (const line of event.toString("utf8").split(/\r\n?|\n/))
    if (line.startsWith("data:")) data += `${line.slice(5)}\n`;
  try {
    const parsed: unknown = JSON.parse(data);
    return typeof parsed === "object" && parsed !== null ? (parsed as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}
