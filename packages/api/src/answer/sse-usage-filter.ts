import { GrowableBuffer } from "../growable-buffer.ts";
import { type AnswerFault, hasContent, lacksEnd } from "./answer-content.ts";
import { type AnswerEnd, readAnswerEnd } from "./answer-end.ts";
import { brokenStatus, endStatus, errorFault, eventStatus, mayBeError } from "./answer-fault.ts";
import { Needle } from "./needle.ts";
import { BoundaryFinder } from "./sse-boundaries.ts";
import { type EventRole, eventRole, parseEventData } from "./sse-event.ts";
import { findUsageReport, joinUsage, type Usage, type UsageReport } from "./usage.ts";
import { isUsageOnly, withoutUsage } from "./usage-only-event.ts";

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
    if (report && isUsageOnly(report)) return withoutUsage(report, this.cut());
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

/** @param at where `reasonNeedle` was found; -1 for nowhere */
function hasReason(bytes: Buffer, at: number): boolean {
  if (at < 0) return false;
  const value = at + reasonNeedle.length;
  return bytes[bytes[value] === space ? value + 1 : value] === quote;
}

/** The report in an event's data, if it has one. */
function eventUsage(event: Buffer | undefined): UsageReport | undefined {
  return event && findUsageReport(parseEventData(event));
}
