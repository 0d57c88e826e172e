import { GrowableBuffer } from "./growable-buffer.ts";
import { findUsageReport, joinUsage, type Usage, type UsageReport } from "./usage.ts";

export interface SseUsageFilterOptions {
  /** Remove the usage-only event, which the router requested and the client did not. */
  readonly strip: boolean;
}

/** A longer event is sent as it arrives and not read. */
const maxEventBytes = 1_048_576;

/** In every dialect a usage report has a key with this ending; the `"usage":null` of other chunks does not match. */
const reportNeedle = Buffer.from('_tokens"');

const colon = 0x3a;
const letterE = 0x65;

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/**
 * Creates the filter for one stream. Without `strip` every chunk passes through by reference. With it, complete events
 * pass at once and only the last, incomplete one is held back. Lines may end in LF, CR LF or CR.
 */
export function createSseUsageFilter({ strip }: SseUsageFilterOptions): SseUsageFilter {
  return new SseUsageFilter(strip);
}

/** Watches one stream of server-sent events on its way to the client. */
export class SseUsageFilter {
  readonly #strip: boolean;
  readonly #boundaries = new BoundaryFinder();
  /** The incomplete event. */
  readonly #partial = new GrowableBuffer();
  /** Set while an event beyond `maxEventBytes` passes: its role, applied when it ends. */
  #oversized: EventRole | undefined;
  #events = 0;
  #isDone = false;
  #hasEnded = false;
  /** Events with token counts. Only the first and the last are kept, and parsed only on request. */
  #firstReport: Buffer | undefined;
  #lastReport: Buffer | undefined;

  constructor(strip: boolean) {
    this.#strip = strip;
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
    let reportAt = chunk.indexOf(reportNeedle);
    for (let end = this.#boundaries.next(chunk, 0); end >= 0; end = this.#boundaries.next(chunk, end)) {
      if (partial.size > 0) {
        partial.append(chunk.subarray(0, end));
        const event = partial.take();
        if (!this.#finishEvent(event, 0, event.length, event.includes(reportNeedle))) pieces.push(event);
        passFrom = end;
      } else {
        if (reportAt >= 0 && reportAt < start) reportAt = chunk.indexOf(reportNeedle, start);
        if (this.#finishEvent(chunk, start, end, reportAt >= 0 && reportAt < end)) {
          if (start > passFrom) pieces.push(chunk.subarray(passFrom, start));
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
    if (!this.#strip) return chunk;
    return joinPieces(chunk, pieces, passFrom, this.#oversized ? chunk.length : start);
  }

  /** The engine has closed its stream. Returns the bytes held back that are still to be sent. */
  end(): Buffer | undefined {
    if (this.#partial.size === 0) return undefined;
    const event = this.#partial.take();
    // Only the closing blank line may be missing: an event that was cut inside its data says nothing.
    const complete = eventRole(event, 0, event.length) === "done" || parseEventData(event) !== undefined;
    const drop = complete && this.#finishEvent(event, 0, event.length, event.includes(reportNeedle));
    return this.#strip && !drop ? event : undefined;
  }

  /** The numbers reported so far; undefined before a report that counts the prompt. */
  usage(): Usage | undefined {
    return joinUsage(eventUsage(this.#firstReport), eventUsage(this.#lastReport));
  }

  /** Whether `data: [DONE]` has passed. */
  sawDone(): boolean {
    return this.#isDone;
  }

  /** Whether the stream marked its own end, in whichever API it speaks; false means that it was cut. */
  endedProperly(): boolean {
    return this.#hasEnded;
  }

  /** Data events so far, except `[DONE]`: about one per token. */
  tokensSeen(): number {
    return this.#events;
  }

  /** Whether the bytes sent so far end inside an event, so that a blank line must precede another event. */
  insideEvent(): boolean {
    return this.#oversized !== undefined || (!this.#strip && this.#partial.size > 0);
  }

  /** Processes a complete event. Returns true when it is to be dropped. */
  #finishEvent(bytes: Buffer, start: number, end: number, hasReport: boolean): boolean {
    const readable = this.#oversized === undefined;
    const role = this.#oversized ?? eventRole(bytes, start, end);
    this.#oversized = undefined;
    if (role === "data" || role === "last") this.#events++;
    if (role === "done") this.#isDone = true;
    if (role === "done" || role === "last") this.#hasEnded = true;
    if (!hasReport || !readable) return false;
    const event = bytes.subarray(start, end);
    this.#firstReport ??= event;
    this.#lastReport = event;
    return this.#strip && isUsageOnly(event);
  }

  /** Passes on an event that is too long to keep; the rest of it passes as it arrives. */
  #passOversized(): Buffer {
    const head = this.#partial.take();
    this.#oversized = eventRole(head, 0, head.length);
    return head;
  }
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
/**
 * The events that end a stream in the Responses API and in Anthropic's API, which both name their events. An error
 * event also ends a stream: the engine sends nothing after it.
 */
const lastEvent =
  /^event: ?(?:message_stop|response\.completed|response\.failed|response\.incomplete|error)(?:\r\n?|\n)/;

/** @param start where the event begins in `bytes`; `end` is just after its last line end */
function eventRole(bytes: Buffer, start: number, end: number): EventRole {
  if (end - start <= 2) return "empty";
  if (end - start <= maxDoneBytes && doneData.test(bytes.toString("latin1", start, end))) return "done";
  const first = bytes[start];
  if (first !== letterE) return first === colon ? "comment" : "data";
  return lastEvent.test(bytes.toString("latin1", start, Math.min(end, start + maxNameBytes))) ? "last" : "data";
}

const noChoices = /"choices"\s*:\s*\[\s*\]/;

/** Whether an event contains only usage: an object with an empty `choices` and a report. */
function isUsageOnly(event: Buffer): boolean {
  if (!noChoices.test(event.toString("latin1"))) return false;
  const data = parseEventData(event);
  return Array.isArray(data?.choices) && data.choices.length === 0 && findUsageReport(data) !== undefined;
}

/** The report in an event's data, if it has one. */
function eventUsage(event: Buffer | undefined): UsageReport | undefined {
  return event && findUsageReport(parseEventData(event));
}

/** The JSON object in an event's data lines; undefined when they contain none or only a part of one. */
function parseEventData(event: Buffer): Readonly<Record<string, unknown>> | undefined {
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
  /** The chunk last searched for a carriage return, and the offset of the next one in it; its length for none. */
  #searched: Buffer | undefined;
  #returnAt = 0;

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
      const end = Math.min(found < 0 ? chunk.length : found, this.#findReturn(chunk, at));
      if (end === chunk.length) return -1;
      this.#isAfterReturn = chunk[end] === carriageReturn;
      this.#hasEnded = false;
      at = end + 1;
      this.#lineIsBlank = true;
    }
  }

  /** Few streams have any, so none is searched for twice. */
  #findReturn(chunk: Buffer, at: number): number {
    if (this.#searched === chunk && this.#returnAt >= at) return this.#returnAt;
    const found = chunk.indexOf(carriageReturn, at);
    this.#searched = chunk;
    this.#returnAt = found < 0 ? chunk.length : found;
    return this.#returnAt;
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
