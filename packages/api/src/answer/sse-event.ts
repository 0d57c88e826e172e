import { isJsonObject, type JsonObject, parseJson } from "@espalier/core";
import { isEndType } from "./answer-content.ts";

const colon = 0x3a;
export const letterE = 0x65;

/** The role of an event in its stream. */
export type EventRole = "data" | "done" | "last" | "comment" | "empty";

/** `data: [DONE]` and its line ends fit well within this. */
const maxDoneBytes = 64;
/** Fits the longest name in `lastEvent` and what follows it. */
export const maxNameBytes = 48;

const doneData = /^data: ?\[DONE\]\r?$/m;
/** The name of an event. */
const eventName = /^event: ?([a-z_.]+)(?:\r\n?|\n)/;

/** @param start where the event begins in `bytes`; `end` is just after its last line end */
export function eventRole(bytes: Buffer, start: number, end: number): EventRole {
  const from = start + markBytes(bytes, start);
  if (end - from <= 2) return "empty";
  if (end - from <= maxDoneBytes && doneData.test(bytes.toString("latin1", from, end))) return "done";
  const first = bytes[from];
  if (first !== letterE) return first === colon ? "comment" : "data";
  const name = eventName.exec(bytes.toString("latin1", from, Math.min(end, from + maxNameBytes)))?.[1];
  return isEndType(name) ? "last" : "data";
}

/** A byte order mark may begin a stream (HTML Living Standard, section 9.2.6). */
const byteOrderMark = Buffer.from("\ufeff");
const firstMarkByte = 0xef;

export function markBytes(bytes: Buffer, start: number): number {
  return bytes[start] === firstMarkByte && bytes.indexOf(byteOrderMark, start) === start ? byteOrderMark.length : 0;
}

/** The JSON object in an event's data lines; undefined when they contain none or only a part of one. */
export function parseEventData(event: Buffer | undefined): JsonObject | undefined {
  if (!event) return undefined;
  const text = event.toString("utf8", markBytes(event, 0));
  const lineEnd = text.indexOf("\n");
  let data = "";
  // Nearly all events are one line of data.
  if (text.startsWith("data:") && lineEnd === text.length - 2) data = text.slice(5, lineEnd);
  else for (const line of text.split(/\r\n?|\n/)) if (line.startsWith("data:")) data += `${line.slice(5)}\n`;
  const parsed = parseJson(data);
  return isJsonObject(parsed) ? parsed : undefined;
}
