import { isJsonObject, type JsonObject } from "@espalier/core";
import { type AnswerFault, defaultStatus, errorStatus, hasContent, isEndType, lacksEnd } from "./answer-content.ts";
import { type AnswerEnd, readAnswerEnd } from "./answer-end.ts";
import { GrowableBuffer } from "./growable-buffer.ts";
import { type Member, memberKey, scanObject } from "./json-scan.ts";
import { findUsageReport, joinUsage, type Usage, type UsageReport } from "./usage.ts";

export interface SseUsageFilterOptions {
  /** Remove the report of usage, which the router requested and the client did not: the answer is as without that request. */
  readonly strip: boolean;
  /**
   * Let only whole events pass, and hold back the one by which an engine says that it died: another engine may go on with the stream.
   */
  readonly whole?: boolean;
}

/** A longer event is sent as it arrives and not read. */
const maxEventBytes = 1_048_576;

/** In every dialect a usage report has a key with this ending; the `"usage":null` of other chunks does not match. */
const reportNeedle = Buffer.from('_tokens"');
/** In the chunks of both kinds of completions, before null or the reason. */
const reasonNeedle = Buffer.from('"finish_reason":');

/** vLLM's `EngineDeadError` (v1/engine/exceptions.py), as the last event before `[DONE]`. */
const engineDeath = Buffer.from("EngineCore encountered an issue");
/** Events kept of an engine that died: that one, and `[DONE]`. */
const keptAfterDeath = 2;

const space = 0x20;
const quote = 0x22;
const colon = 0x3a;
const letterC = 0x63;
const letterE = 0x65;
const letterI = 0x69;

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/**
 * Creates the filter for one stream. Without `strip` every chunk passes through by reference. With it, complete events
 * pass at once, except that one with a reason to finish waits for the next event. Lines may end in LF, CR LF or CR.
 */
export function createSseUsageFilter({ strip, whole = false }: SseUsageFilterOptions): SseUsageFilter {
  return new SseUsageFilter(strip, whole);
}

/** Watches one stream of server-sent events on its way to the client. */
export class SseUsageFilter {
  readonly #strip: boolean;
  readonly #whole: boolean;
  #boundaries = new BoundaryFinder();
  readonly #reports = new Needle(reportNeedle);
  readonly #reasons = new Needle(reasonNeedle);
  /** The incomplete event. */
  readonly #partial = new GrowableBuffer();
  /** Set while an event beyond `maxEventBytes` passes: its role, applied when it ends. */
  #oversized: EventRole | undefined;
  /**
   * An event with a reason to finish. Asked for usage, engines put into its event what else they would have put into this one:
   * vLLM its `system_fingerprint` (`chat_completion/serving.py`), llama.cpp its `timings` (`server-task.cpp`).
   */
  #ending: Buffer | undefined;
  /** What the engine sent once it had died. */
  #afterDeath: Buffer[] | undefined;
  #events = 0;
  #hasContent = false;
  #isDone = false;
  #hasEnded = false;
  /** Whether the last data event was too long to be read. */
  #isLastUnread = false;
  #errorStatus: number | undefined;
  /** Events with token counts. Only the first and the last are kept, and parsed only on request. */
  #firstReport: Buffer | undefined;
  #lastReport: Buffer | undefined;
  /** The last data event without token counts, as a part of some chunk. */
  #lastPlain: Buffer | undefined;
  #lastPlainStart = 0;
  #lastPlainEnd = 0;

  constructor(strip: boolean, whole: boolean) {
    this.#strip = strip;
    this.#whole = whole;
  }

  /**
   * Takes the next bytes from the engine.
   *
   * @returns the bytes to send now: `chunk` itself whenever possible, undefined for none
   */
  push(chunk: Buffer): Buffer | undefined {
    const partial = this.#partial;
    const pieces: Buffer[] = [];
    /** First byte of the chunk that is neither in `pieces` nor dropped. */
    let passFrom = 0;
    let start = 0;
    for (let end = this.#boundaries.next(chunk, 0); end >= 0; end = this.#boundaries.next(chunk, end)) {
      if (partial.size > 0) {
        partial.append(chunk.subarray(0, end));
        const event = partial.take();
        const kept = this.#finishEvent(event, 0, event.length);
        if (kept !== undefined) pieces.push(kept);
        passFrom = end;
      } else {
        const kept = this.#finishEvent(chunk, start, end);
        if (kept !== chunk) {
          if (start > passFrom) pieces.push(chunk.subarray(passFrom, start));
          if (kept !== undefined) pieces.push(kept);
          passFrom = end;
        }
      }
      start = end;
    }
    if (start < chunk.length && !this.#oversized) {
      partial.append(start === 0 ? chunk : chunk.subarray(start));
      if (partial.size > maxEventBytes) {
        if (start > passFrom) pieces.push(chunk.subarray(passFrom, start));
        pieces.push(this.#passOversized());
        passFrom = chunk.length;
      }
    }
    if (!this.#strip && !this.#whole) return chunk;
    return joinPieces(chunk, pieces, passFrom, this.#oversized ? chunk.length : start);
  }

  /** The engine has closed its stream. Returns the bytes held back that are still to be sent. */
  end(): Buffer | undefined {
    if (this.#afterDeath) return joined(this.cut(), Buffer.concat(this.#afterDeath));
    if (this.#partial.size === 0) return this.cut();
    const event = this.#partial.take();
    // Only the closing blank line may be missing: an event that was cut inside its data says nothing.
    const complete = eventRole(event, 0, event.length) === "done" || parseEventData(event) !== undefined;
    const kept = complete ? this.#finishEvent(event, 0, event.length) : event;
    return this.#strip || this.#whole ? joined(this.cut(), kept) : undefined;
  }

  /** Whether another engine may go on: the stream ended too early, between events, and it is not one of unknown form. */
  get isBroken(): boolean {
    return this.#afterDeath !== undefined || (this.#hasContent && this.#isCut());
  }

  /** Another engine goes on with the stream, behind its last whole event. */
  resume(): void {
    this.#partial.take();
    this.#boundaries = new BoundaryFinder();
    this.#afterDeath = undefined;
    this.#errorStatus = undefined;
    this.#lastPlain = undefined;
    this.#isDone = false;
    this.#hasEnded = false;
  }

  /** The stream was cut. Returns the whole event that was held back, if one was. */
  cut(): Buffer | undefined {
    const ending = this.#ending;
    this.#ending = undefined;
    return ending;
  }

  /** The numbers reported so far; undefined before a report that counts the prompt. */
  usage(): Usage | undefined {
    return joinUsage(eventUsage(this.#firstReport), eventUsage(this.#lastReport));
  }

  /** How the answer ended, by its last events; undefined if they do not say it. */
  answerEnd(): AnswerEnd | undefined {
    for (const event of [this.#lastData(), this.#lastReport]) {
      const end = event && readAnswerEnd(event);
      if (end !== undefined) return end;
    }
    return undefined;
  }

  /** Whether `data: [DONE]` has passed. */
  sawDone(): boolean {
    return this.#isDone;
  }

  /** Whether the stream marked its own end, in whichever API it speaks; false means that it was cut. */
  endedProperly(): boolean {
    return this.#hasEnded;
  }

  /** Whether a part of the answer has passed. Comments, and events that only open an answer, are none. */
  hasContent(): boolean {
    return this.#hasContent;
  }

  /** What the stream lacks, once it has ended; undefined for a whole answer. */
  fault(): AnswerFault | undefined {
    const status = this.#errorStatus ?? endStatus(this.#lastData()) ?? endStatus(this.#lastReport);
    if (status !== undefined) {
      return errorFault(status, [this.#lastData(), this.#lastReport]);
    }
    if (!this.#hasContent) return { kind: "empty", status: brokenStatus };
    return this.#isCut() ? { kind: "cut", status: brokenStatus } : undefined;
  }

  /** Data events so far, except `[DONE]`: about one per token. */
  tokensSeen(): number {
    return this.#events;
  }

  /** Whether the bytes sent so far end inside an event, so that a blank line must precede another event. */
  insideEvent(): boolean {
    return this.#oversized !== undefined || (!this.#strip && !this.#whole && this.#partial.size > 0);
  }

  /**
   * Processes a complete event.
   *
   * @returns what passes now: `bytes` for the event as it is, undefined for nothing
   */
  #finishEvent(bytes: Buffer, start: number, end: number): Buffer | undefined {
    const readable = this.#oversized === undefined;
    const hasReport = this.#reports.findIn(bytes, start, end) >= 0;
    const role = this.#oversized ?? eventRole(bytes, start, end);
    this.#oversized = undefined;
    if (role === "done") this.#isDone = true;
    if (role === "done" || role === "last") this.#hasEnded = true;
    if (role === "data" || role === "last") {
      this.#events++;
      this.#isLastUnread = !readable;
      if (!readable) this.#hasContent = true;
      else this.#readData(bytes, start, end, hasReport);
    }
    if (hasReport && readable) {
      this.#lastReport = bytes.subarray(start, end);
      this.#firstReport ??= this.#lastReport;
    }
    if (this.#isAfterDeath(bytes, start, end)) return undefined;
    if (!this.#strip || !readable) return bytes;
    const report = hasReport ? this.#lastReport : undefined;
    if (report && mayBeUsageOnly(report) && isUsageOnly(report)) return withoutUsage(report, this.cut());
    return this.#passInOrder(bytes, start, end, role);
  }

  /** Keeps what a dead engine sends, which the client gets if no other engine goes on. */
  #isAfterDeath(bytes: Buffer, start: number, end: number): boolean {
    if (!this.#whole || this.#errorStatus === undefined) return false;
    if (!this.#afterDeath && !bytes.subarray(start, end).includes(engineDeath)) return false;
    this.#afterDeath ??= [];
    if (this.#afterDeath.length < keptAfterDeath) this.#afterDeath.push(Buffer.from(bytes.subarray(start, end)));
    return true;
  }

  /** Returns what passes now of an event and the one that waited for it. */
  #passInOrder(bytes: Buffer, start: number, end: number, role: EventRole): Buffer | undefined {
    const isEnding = role === "data" && hasReason(bytes, this.#reasons.findIn(bytes, start, end));
    if (!isEnding && !this.#ending) return bytes;
    const event = bytes.subarray(start, end);
    const ending = this.cut();
    if (!isEnding) return joined(ending, event);
    this.#ending = event;
    return ending;
  }

  /** The beginning of an answer is parsed; after the first content, only what may be an error is. */
  #readData(bytes: Buffer, start: number, end: number, hasReport: boolean): void {
    if (!hasReport) {
      this.#lastPlain = bytes;
      this.#lastPlainStart = start;
      this.#lastPlainEnd = end;
    }
    if (this.#hasContent && !mayBeError(bytes, start, end)) return;
    const event = bytes.subarray(start, end);
    const data = parseEventData(event);
    const status = eventStatus(event, data);
    if (status !== undefined) this.#errorStatus ??= status;
    else this.#hasContent ||= data === undefined || hasContent(data);
  }

  #lastData(): Buffer | undefined {
    return this.#lastPlain?.subarray(this.#lastPlainStart, this.#lastPlainEnd);
  }

  /** Not told of streams in an unknown form, which may end in any way. */
  #isCut(): boolean {
    if (this.#hasEnded) return false;
    const isInEvent = this.#partial.size > 0 || this.#oversized !== undefined;
    if (isInEvent || this.#isLastUnread) return isInEvent;
    const known = [this.#lastData(), this.#lastReport].map(parseEventData).filter((data) => data !== undefined);
    return known.length > 0 && known.every(lacksEnd);
  }

  /** Passes on an event that is too long to keep; the rest of it passes as it arrives. */
  #passOversized(): Buffer {
    const head = this.#partial.take();
    this.#oversized = eventRole(head, 0, head.length);
    return joined(this.cut(), head);
  }
}

function joined(first: Buffer | undefined, second: Buffer): Buffer;
function joined(first: Buffer | undefined, second: Buffer | undefined): Buffer | undefined;
function joined(first: Buffer | undefined, second: Buffer | undefined): Buffer | undefined {
  return first && second ? Buffer.concat([first, second]) : (first ?? second);
}

function joinPieces(chunk: Buffer, pieces: Buffer[], from: number, to: number): Buffer | undefined {
  if (pieces.length === 0) {
    if (from === 0 && to === chunk.length) return chunk;
    return from < to ? chunk.subarray(from, to) : undefined;
  }
  if (from < to) pieces.push(chunk.subarray(from, to));
  return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
}

/** The role of an event in its stream. */
type EventRole = "data" | "done" | "last" | "comment" | "empty";

/** `data: [DONE]` and its line ends fit well within this. */
const maxDoneBytes = 64;
/** Fits the longest name in `lastEvent` and what follows it. */
const maxNameBytes = 48;

const doneData = /^data: ?\[DONE\]\r?$/m;
/** The name of an event. */
const eventName = /^event: ?([a-z_.]+)(?:\r\n?|\n)/;

/** @param start where the event begins in `bytes`; `end` is just after its last line end */
function eventRole(bytes: Buffer, start: number, end: number): EventRole {
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

function markBytes(bytes: Buffer, start: number): number {
  return bytes[start] === firstMarkByte && bytes.indexOf(byteOrderMark, start) === start ? byteOrderMark.length : 0;
}

/** The status of an answer whose fault has no status. */
const brokenStatus = 502;

const errorEvent = /^event: ?(?:error|response\.failed)(?:\r\n?|\n)/;

/** The status of the error that an event reports by its data, or else by its name; undefined if it reports none. */
function eventStatus(event: Buffer, data: JsonObject | undefined): number | undefined {
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
function mayBeError(bytes: Buffer, start: number, end: number): boolean {
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
function endStatus(event: Buffer | undefined): number | undefined {
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
function errorFault(status: number, ends: readonly (Buffer | undefined)[]): AnswerFault {
  const isAborted = status === defaultStatus && ends.some((end) => end?.includes(abortWord));
  return { kind: "error", status, ...(isAborted && { isAborted }) };
}

/** As `trimStart` has it in Latin-1. */
const isWhiteSpace = (byte: number): boolean => byte === space || (byte >= 0x09 && byte <= 0x0d) || byte === 0xa0;

const noChoices = /"choices"\s*:\s*\[\s*\]/;

/** Whether an event may be an object with an empty `choices`. */
function mayBeUsageOnly(event: Buffer): boolean {
  return noChoices.test(event.toString("latin1"));
}

/** @param at where `reasonNeedle` was found; -1 for nowhere */
function hasReason(bytes: Buffer, at: number): boolean {
  if (at < 0) return false;
  const value = at + reasonNeedle.length;
  return bytes[bytes[value] === space ? value + 1 : value] === quote;
}

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
function isUsageOnly(event: Buffer): boolean {
  const data = parseEventData(event);
  return Array.isArray(data?.choices) && data.choices.length === 0 && findUsageReport(data) !== undefined;
}

/**
 * What an engine that is not asked for usage sends in place of a usage-only event and the one before it: that one, with what else
 * is in the usage-only event. Clients read `choices[0]` of each event, so only where nothing waits for it does one without choices
 * pass.
 */
function withoutUsage(event: Buffer, ending: Buffer | undefined): Buffer | undefined {
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
  if (!target || end === undefined) return joined(ending, Buffer.from(withoutMember(report, "usage"), "latin1"));
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

/** The report in an event's data, if it has one. */
function eventUsage(event: Buffer | undefined): UsageReport | undefined {
  return event && findUsageReport(parseEventData(event));
}

/** The JSON object in an event's data lines; undefined when they contain none or only a part of one. */
function parseEventData(event: Buffer | undefined): JsonObject | undefined {
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

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Finds where server-sent events end, in a stream that comes in chunks. An event ends at a line end (LF, CR LF or CR)
 * that follows a line end (HTML Living Standard, section 9.2.5).
 */
class BoundaryFinder {
  #lineIsBlank = true;
  /** Whether the last line end was a carriage return, which a line feed would complete. */
  #isAfterReturn = false;
  /**
   * Whether that carriage return ended an event. A line feed then passes as an event of its own, since the next event
   * may be removed.
   */
  #hasEnded = false;
  /** Whether an event has ended except for a possible line feed. */
  #isPending = false;
  readonly #returns = new Needle(Buffer.of(carriageReturn));

  /**
   * The offset just after the chunk's next blank line at or after `from`, or -1. For each chunk in turn, call it with
   * its last result as `from` until it returns -1.
   */
  next(chunk: Buffer, from: number): number {
    let at = from;
    if (this.#isPending && at < chunk.length) {
      this.#isPending = false;
      return chunk[at] === lineFeed ? at + 1 : at;
    }
    for (;;) {
      while (this.#lineIsBlank) {
        if (at === chunk.length) return -1;
        const code = chunk[at++];
        if (code === carriageReturn) return this.#endAt(chunk, at);
        const isEnd = code === lineFeed && (this.#hasEnded || !this.#isAfterReturn);
        this.#isAfterReturn = false;
        this.#hasEnded = false;
        if (isEnd) return at;
        this.#lineIsBlank = code === lineFeed;
      }
      const found = chunk.indexOf(lineFeed, at);
      const lineEnd = found < 0 ? chunk.length : found;
      const returnAt = this.#returns.findIn(chunk, at, lineEnd);
      const end = returnAt < 0 ? lineEnd : returnAt;
      if (end === chunk.length) return -1;
      this.#isAfterReturn = chunk[end] === carriageReturn;
      this.#hasEnded = false;
      at = end + 1;
      this.#lineIsBlank = true;
    }
  }

  /**
   * @returns offset just after the carriage return that ends an event and its line feed; -1 if that may be in the next
   *   chunk
   */
  #endAt(chunk: Buffer, at: number): number {
    // Streams whose lines end in a carriage return alone never wait.
    this.#hasEnded = this.#isAfterReturn;
    if (this.#hasEnded) return at;
    this.#isPending = at === chunk.length;
    if (this.#isPending) return -1;
    return chunk[at] === lineFeed ? at + 1 : at;
  }
}

/** Searches chunks for some bytes, each part once. */
class Needle {
  readonly #needle: Buffer;
  /** The chunk last searched, and where the bytes come next in it; its length for nowhere. */
  #chunk: Buffer | undefined;
  #at = 0;

  constructor(needle: Buffer) {
    this.#needle = needle;
  }

  /** The offset where they begin between two offsets, or -1. Call it with ascending offsets for each chunk in turn. */
  findIn(chunk: Buffer, start: number, end: number): number {
    if (this.#chunk !== chunk || this.#at < start) {
      const found = chunk.indexOf(this.#needle, start);
      this.#chunk = chunk;
      this.#at = found < 0 ? chunk.length : found;
    }
    return this.#at < end ? this.#at : -1;
  }
}
