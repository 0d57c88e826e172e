import { type Member, memberKey, scanObject } from "../json-scan.ts";
import { parseEventData } from "./sse-event.ts";
import { findUsageReport } from "./usage.ts";

const noChoices = /"choices"\s*:\s*\[\s*\]/;

/** The keys that every chunk may have, and the one that the client did not ask for. */
const envelopeKeys: ReadonlySet<string> = new Set(["id", "object", "created", "model", "choices", "usage"]);

const dataLine = /(?:^|[\r\n])data:/g;

/** The JSON object in an event. Its text is Latin-1, so that offsets in it count bytes. */
interface EventObject {
  readonly text: string;
  readonly members: readonly Member[];
}

/** @returns undefined for an event without an object, or with one in several lines, which no engine writes */
function scanEvent(event: Buffer): EventObject | undefined {
  if (!parseEventData(event)) return undefined;
  const text = event.toString("latin1");
  const [line, another] = text.matchAll(dataLine);
  return line && !another ? { text, members: scanObject(text, line.index + line[0].length) } : undefined;
}

/** Whether an event has a report of usage and no choice. */
export function isUsageOnly(event: Buffer): boolean {
  if (!noChoices.test(event.toString("latin1"))) return false;
  const data = parseEventData(event);
  return Array.isArray(data?.choices) && data.choices.length === 0 && findUsageReport(data) !== undefined;
}

/**
 * What an engine that is not asked for usage sends in place of a usage-only event and the one before it: that one, with what else
 * is in the usage-only event. Clients read `choices[0]` of each event, so only where nothing waits for it does one without choices
 * pass.
 */
export function withoutUsage(event: Buffer, ending: Buffer | undefined): Buffer | undefined {
  const report = scanEvent(event);
  const target = ending && scanEvent(ending);
  if (!report) return ending;
  const { text, members } = report;
  const known = new Set(target?.members.map((member) => memberKey(target.text, member)));
  const more = members.filter((member) => {
    const key = memberKey(text, member);
    return !envelopeKeys.has(key) && !known.has(key) && text.slice(member.valueStart, member.valueEnd) !== "null";
  });
  if (more.length === 0) return ending;
  const end = target?.members.at(-1)?.valueEnd;
  if (!target || end === undefined) {
    const rest = Buffer.from(withoutMember(report, "usage"), "latin1");
    return ending ? Buffer.concat([ending, rest]) : rest;
  }
  const added = more.map(({ keyStart, valueEnd }) => `,${text.slice(keyStart - 1, valueEnd)}`).join("");
  return Buffer.from(target.text.slice(0, end) + added + target.text.slice(end), "latin1");
}

function withoutMember({ text, members }: EventObject, key: string): string {
  const at = members.findIndex((member) => memberKey(text, member) === key);
  const [previous, member, next] = [members[at - 1], members[at], members[at + 1]];
  if (!member) return text;
  const from = next || !previous ? member.keyStart : previous.valueEnd;
  return text.slice(0, from) + text.slice(next ? next.keyStart : member.valueEnd);
}
