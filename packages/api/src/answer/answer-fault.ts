import { type JsonObject, parseJson } from "@espalier/core";
import { type AnswerFault, defaultStatus, errorStatus } from "./answer-content.ts";
import { letterE, markBytes, maxNameBytes, parseEventData } from "./sse-event.ts";

const space = 0x20;
const letterC = 0x63;
const letterI = 0x69;

/** The status of an answer whose fault has no status. */
export const brokenStatus = 502;

const errorEvent = /^event: ?(?:error|response\.failed)(?:\r\n?|\n)/;

/** The status of the error that an event reports by its data, or else by its name; undefined if it reports none. */
export function eventStatus(event: Buffer, data: JsonObject | undefined): number | undefined {
  const status = errorStatus(data);
  if (status !== undefined || event[0] !== letterE) return status;
  return errorEvent.test(event.toString("latin1", 0, maxNameBytes)) ? brokenStatus : undefined;
}

/** How errors begin, without white space: the names of their events, or the first keys of their objects. */
const errorBeginnings = [
  "event:error",
  "event:response.failed",
  '{"error"',
  '{"object":"error"',
  '{"type":"error"',
  '{"type":"response.failed"',
];
/** Fits the longest one, with whitespace. */
const maxBeginningBytes = 64;

/** Whether an event or a body that starts with `text` is an error: `more` while it is too short to tell. */
function beginsError(text: string): boolean | "more" {
  const dense = text.replaceAll(/\s/g, "");
  if ("data:".startsWith(dense)) return "more";
  const beginning = dense.startsWith("data:") ? dense.slice("data:".length) : dense;
  if (errorBeginnings.some((known) => beginning.startsWith(known))) return true;
  return errorBeginnings.some((known) => known.startsWith(beginning)) ? "more" : false;
}

/** What tells the first key of an error from those of most chunks, `id` and `choices`: its first letter, behind `data: {"`. */
export function mayBeError(bytes: Buffer, start: number, end: number): boolean {
  const letter = bytes[start + 8];
  if (bytes[start] !== letterE && (letter === letterI || letter === letterC)) return false;
  return beginsError(bytes.toString("latin1", start, Math.min(end, start + maxBeginningBytes))) === true;
}

const blankLine = /\r\n\r?\n|\n\r?\n|\r\r/;
/** Values that may tell of an error further in: reasons to finish, and the status in the Responses API. */
const abortWord = '"abort"';
const errorWords = [abortWord, '"failed"', '"finish_reason":"error"', '"finish_reason": "error"'].map((word) =>
  Buffer.from(word),
);

/** Finds them among the bytes: an answer of 100 KB would else become a text first. */
const hasErrorWord = (bytes: Buffer): boolean => errorWords.some((word) => bytes.includes(word));

/** The status of an error at the end of a stream. */
export function endStatus(event: Buffer | undefined): number | undefined {
  return event && hasErrorWord(event) ? errorStatus(parseEventData(event)) : undefined;
}

/**
 * Reads whether an answer with status 200 begins with an error, or is empty.
 *
 * @param head the first bytes of its body
 * @param ended whether they are all
 * @returns `more` when a longer beginning must show that; undefined for an answer that begins as others
 */
export function readAnswerHead(head: Buffer, ended: boolean): AnswerFault | "more" | undefined {
  let start = markBytes(head, 0);
  while (start < head.length && isWhiteSpace(head[start]!)) start++;
  if (start === head.length) return ended ? { kind: "empty", status: brokenStatus } : "more";
  const isError = beginsError(head.toString("latin1", start, start + maxBeginningBytes));
  if (isError === false && !hasErrorWord(head)) return undefined;
  const text = head.toString("latin1", start);
  if (isError === "more") return ended || blankLine.test(text) ? undefined : "more";
  const isEvents = !text.startsWith("{") && !text.startsWith("[");
  const end = isEvents ? text.search(blankLine) : -1;
  if (end < 0 && !ended) return "more";
  const first = Buffer.from(end < 0 ? text : text.slice(0, end), "latin1");
  const status = isEvents ? eventStatus(first, parseEventData(first)) : errorStatus(parseJson(first.toString("utf8")));
  return status === undefined ? undefined : errorFault(status, [first]);
}

/** @param ends where an abort says so; one that names a status is a refusal */
export function errorFault(status: number, ends: readonly (Buffer | undefined)[]): AnswerFault {
  const isAborted = status === defaultStatus && ends.some((end) => end?.includes(abortWord));
  return { kind: "error", status, ...(isAborted && { isAborted }) };
}

/** As `trimStart` has it in Latin-1. */
const isWhiteSpace = (byte: number): boolean => byte === space || (byte >= 0x09 && byte <= 0x0d) || byte === 0xa0;
