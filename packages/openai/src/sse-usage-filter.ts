import { createGrowableBuffer, type GrowableBuffer } from "./growable-buffer.ts";
import { findUsageReport, joinUsage, type Usage, type UsageReport } from "./usage.ts";

export interface SseUsageFilterOptions {
  /** Take the usage-only event out: the router had it reported, the client did not ask for it. */
  readonly strip: boolean;
}

/** Watches one stream of server-sent events on its way to the client. */
export interface SseUsageFilter {
  /**
   * Takes the next bytes from the engine.
   *
   * @returns the bytes to send on now: `chunk` itself whenever that is right, undefined when there are none yet
   */
  push(chunk: Buffer): Buffer | undefined;
  /** The engine has closed its stream. Returns what was held back and is still to be sent. */
  end(): Buffer | undefined;
  /** The numbers reported so far; undefined before a report that has those of the prompt. */
  usage(): Usage | undefined;
  /** Whether `data: [DONE]` went by. */
  sawDone(): boolean;
  /** Whether the stream said that it is complete, in whichever API it speaks; false means that it was cut. */
  endedProperly(): boolean;
  /** Data events so far but for `[DONE]`: about one for each token. */
  tokensSeen(): number;
  /** Whether the bytes sent on so far end inside an event, so that a blank line must come before another event. */
  insideEvent(): boolean;
}

/** A longer event is sent on as it comes and not read. */
const maxEventBytes = 1_048_576;

/** In every dialect a usage report has a key that ends like this; the `"usage":null` of other chunks does not match. */
const reportNeedle = Buffer.from('_tokens"');

const colon = 0x3a;
const letterE = 0x65;

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

interface FilterState {
  readonly strip: boolean;
  readonly boundaries: BoundaryFinder;
  readonly log: SseStreamLog;
  /** The event that is not complete yet. */
  readonly partial: GrowableBuffer;
  /** Set while an event beyond `maxEventBytes` passes: what its end will mean. */
  oversized: EventRole | undefined;
}

/**
 * Creates the filter for one stream. Without `strip` every chunk passes through by reference; with it, complete events
 * pass at once and only the last, incomplete one is held back. Lines may end in LF, CR LF or CR.
 */
export function createSseUsageFilter({ strip }: SseUsageFilterOptions): SseUsageFilter {
  const log = createSseStreamLog();
  const partial = createGrowableBuffer();
  const state: FilterState = { strip, boundaries: createBoundaryFinder(), log, partial, oversized: undefined };
  return {
    push: (chunk) => push(state, chunk),
    end: () => end(state),
    usage: log.usage,
    sawDone: log.sawDone,
    endedProperly: log.endedProperly,
    tokensSeen: log.tokensSeen,
    insideEvent: () => state.oversized !== undefined || (!strip && partial.size() > 0),
  };
}

function push(state: FilterState, chunk: Buffer): Buffer | undefined {
  const { strip, boundaries, partial } = state;
  const pieces: Buffer[] = [];
  /** First byte of the chunk that is neither in `pieces` nor dropped. */
  let passFrom = 0;
  let start = 0;
  let reportAt = chunk.indexOf(reportNeedle);
  for (let end = boundaries.next(chunk, 0); end >= 0; end = boundaries.next(chunk, end)) {
    if (partial.size() > 0) {
      partial.append(chunk.subarray(0, end));
      const event = partial.take();
      if (!finishEvent(state, event, 0, event.length, event.includes(reportNeedle))) pieces.push(event);
      passFrom = end;
    } else {
      if (reportAt >= 0 && reportAt < start) reportAt = chunk.indexOf(reportNeedle, start);
      if (finishEvent(state, chunk, start, end, reportAt >= 0 && reportAt < end)) {
        if (start > passFrom) pieces.push(chunk.subarray(passFrom, start));
        passFrom = end;
      }
    }
    start = end;
  }
  if (start < chunk.length && !state.oversized) {
    partial.append(start === 0 ? chunk : chunk.subarray(start));
    if (partial.size() > maxEventBytes) {
      if (start > passFrom) pieces.push(chunk.subarray(passFrom, start));
      pieces.push(passOversized(state));
      passFrom = chunk.length;
    }
  }
  if (!strip) return chunk;
  return joinPieces(chunk, pieces, passFrom, state.oversized ? chunk.length : start);
}

/** Processes a complete event; true when it is to be dropped. */
function finishEvent(state: FilterState, bytes: Buffer, start: number, end: number, hasReport: boolean): boolean {
  const { log, strip } = state;
  log.noteRole(state.oversized ?? eventRole(bytes, start, end));
  const readable = state.oversized === undefined;
  state.oversized = undefined;
  if (!hasReport || !readable) return false;
  const event = bytes.subarray(start, end);
  log.noteReport(event);
  return strip && isUsageOnly(event);
}

/** Passes on an event that is too long to keep; the rest of it will pass as it comes. */
function passOversized(state: FilterState): Buffer {
  const head = state.partial.take();
  state.oversized = eventRole(head, 0, head.length);
  return head;
}

function end(state: FilterState): Buffer | undefined {
  if (state.partial.size() === 0) return undefined;
  const event = state.partial.take();
  // Only the closing blank line may be missing; an event that was cut inside its data says nothing.
  const complete = eventRole(event, 0, event.length) === "done" || parseEventData(event) !== undefined;
  const drop = complete && finishEvent(state, event, 0, event.length, event.includes(reportNeedle));
  return state.strip && !drop ? event : undefined;
}

function joinPieces(chunk: Buffer, pieces: Buffer[], from: number, to: number): Buffer | undefined {
  if (pieces.length === 0) {
    if (from === 0 && to === chunk.length) return chunk;
    return from < to ? chunk.subarray(from, to) : undefined;
  }
  if (from < to) pieces.push(chunk.subarray(from, to));
  return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
}

/** What an event means for the stream that it is part of. */
type EventRole = "data" | "done" | "last" | "comment" | "empty";

/** `data: [DONE]` and its line ends fit well within this. */
const maxDoneBytes = 64;
/** Enough for the longest name of `lastEvent` and what follows it. */
const maxNameBytes = 48;

const doneData = /^data: ?\[DONE\]\r?$/m;
/**
 * The events that end a stream in the Responses API and in Anthropic's; both name their events. An error event ends
 * it too: the engine has said what it had to say.
 */
const lastEvent =
  /^event: ?(?:message_stop|response\.completed|response\.failed|response\.incomplete|error)(?:\r\n?|\n)/;

/** @param start where the event begins in `bytes`; `end` is behind its last line end */
function eventRole(bytes: Buffer, start: number, end: number): EventRole {
  if (end - start <= 2) return "empty";
  if (end - start <= maxDoneBytes && doneData.test(bytes.toString("latin1", start, end))) return "done";
  const first = bytes[start];
  if (first !== letterE) return first === colon ? "comment" : "data";
  return lastEvent.test(bytes.toString("latin1", start, Math.min(end, start + maxNameBytes))) ? "last" : "data";
}

const noChoices = /"choices"\s*:\s*\[\s*\]/;

/** Whether an event has nothing but usage in it: an object with an empty `choices` and a report. */
function isUsageOnly(event: Buffer): boolean {
  if (!noChoices.test(event.toString("latin1"))) return false;
  const data = parseEventData(event);
  return Array.isArray(data?.choices) && data.choices.length === 0 && findUsageReport(data) !== undefined;
}

/** The report in an event's data, if it has one. */
function eventUsage(event: Buffer | undefined): UsageReport | undefined {
  return event && findUsageReport(parseEventData(event));
}

/** The JSON object in an event's data lines; undefined when they hold none, or only a part of one. */
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

/** What the events of one stream have said so far. */
interface SseStreamLog {
  noteRole(role: EventRole): void;
  /** Keeps an event with token counts. Only the first and the last are kept, and parsed only when asked for. */
  noteReport(event: Buffer): void;
  usage(): Usage | undefined;
  sawDone(): boolean;
  endedProperly(): boolean;
  tokensSeen(): number;
}

function createSseStreamLog(): SseStreamLog {
  let events = 0;
  let done = false;
  let ended = false;
  let firstReport: Buffer | undefined;
  let lastReport: Buffer | undefined;
  return {
    noteRole(role) {
      if (role === "data" || role === "last") events++;
      if (role === "done") done = true;
      if (role === "done" || role === "last") ended = true;
    },
    noteReport(event) {
      firstReport ??= event;
      lastReport = event;
    },
    usage: () => joinUsage(eventUsage(firstReport), eventUsage(lastReport)),
    sawDone: () => done,
    endedProperly: () => ended,
    tokensSeen: () => events,
  };
}

/** Finds where server-sent events end, in a stream that comes in chunks. */
interface BoundaryFinder {
  /**
   * The offset behind the next blank line of the chunk at or after `from`, or -1. Must be called for each chunk in
   * turn, with its own last answer as `from`, until it gives -1.
   */
  next(chunk: Buffer, from: number): number;
}

/** An event ends at a line end (LF, CR LF or CR) that follows a line end (HTML Living Standard, section 9.2.5). */
function createBoundaryFinder(): BoundaryFinder {
  let lineIsBlank = true;
  /** Whether the last line end was a carriage return, to which a line feed would belong. */
  let isAfterReturn = false;
  /** Whether an event ended with it. A line feed is then an event of its own, for the next one may be taken out. */
  let hasEnded = false;
  /** Whether an event has ended but for a line feed that may come. */
  let isPending = false;
  /** The chunk that was searched for a carriage return, and where the next one is in it; its length if nowhere. */
  let searched: Buffer | undefined;
  let returnAt = 0;

  /** Few streams have any: so that none is looked for twice. */
  const findReturn = (chunk: Buffer, at: number): number => {
    if (searched === chunk && returnAt >= at) return returnAt;
    const found = chunk.indexOf(carriageReturn, at);
    searched = chunk;
    returnAt = found < 0 ? chunk.length : found;
    return returnAt;
  };
  /** @returns behind the carriage return that ends an event, and its line feed; -1 where that may be in the next chunk */
  const endAt = (chunk: Buffer, at: number): number => {
    // Where lines end in a carriage return alone, nothing is waited for.
    hasEnded = isAfterReturn;
    if (hasEnded) return at;
    isPending = at === chunk.length;
    if (isPending) return -1;
    return chunk[at] === lineFeed ? at + 1 : at;
  };
  return {
    next(chunk, from) {
      let at = from;
      if (isPending && at < chunk.length) {
        isPending = false;
        return chunk[at] === lineFeed ? at + 1 : at;
      }
      for (;;) {
        while (lineIsBlank) {
          if (at === chunk.length) return -1;
          const code = chunk[at++];
          if (code === carriageReturn) return endAt(chunk, at);
          const isEnd = code === lineFeed && (hasEnded || !isAfterReturn);
          isAfterReturn = false;
          hasEnded = false;
          if (isEnd) return at;
          lineIsBlank = code === lineFeed;
        }
        const found = chunk.indexOf(lineFeed, at);
        const end = Math.min(found < 0 ? chunk.length : found, findReturn(chunk, at));
        if (end === chunk.length) return -1;
        isAfterReturn = chunk[end] === carriageReturn;
        hasEnded = false;
        at = end + 1;
        lineIsBlank = true;
      }
    },
  };
}
