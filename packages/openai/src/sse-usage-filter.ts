import { type ByteHold, createByteHold } from "./byte-hold.ts";
import { type BoundaryFinder, createBoundaryFinder } from "./sse-boundaries.ts";
import { type EventRole, eventRole, isUsageOnly, parseEventData } from "./sse-event.ts";
import { createSseStreamLog, type SseStreamLog } from "./sse-stream-log.ts";
import type { Usage } from "./usage.ts";

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

interface FilterState {
  readonly strip: boolean;
  readonly boundaries: BoundaryFinder;
  readonly log: SseStreamLog;
  /** The event that is not complete yet. */
  readonly held: ByteHold;
  /** Set while an event beyond `maxEventBytes` passes: what its end will mean. */
  oversized: EventRole | undefined;
}

/**
 * Creates the filter for one stream. Without `strip` every chunk passes through by reference; with it, complete events
 * pass at once and only the last, incomplete one is held back. Lines may end in LF, CR LF or CR.
 */
export function createSseUsageFilter({ strip }: SseUsageFilterOptions): SseUsageFilter {
  const log = createSseStreamLog();
  const held = createByteHold();
  const state: FilterState = { strip, boundaries: createBoundaryFinder(), log, held, oversized: undefined };
  return {
    push: (chunk) => push(state, chunk),
    end: () => end(state),
    usage: log.usage,
    sawDone: log.sawDone,
    endedProperly: log.endedProperly,
    tokensSeen: log.tokensSeen,
    insideEvent: () => state.oversized !== undefined || (!strip && held.size() > 0),
  };
}

function push(state: FilterState, chunk: Buffer): Buffer | undefined {
  const { strip, boundaries, held } = state;
  const pieces: Buffer[] = [];
  /** First byte of the chunk that is neither in `pieces` nor dropped. */
  let passFrom = 0;
  let start = 0;
  let reportAt = chunk.indexOf(reportNeedle);
  for (let end = boundaries.next(chunk, 0); end >= 0; end = boundaries.next(chunk, end)) {
    if (held.size() > 0) {
      held.append(chunk.subarray(0, end));
      const event = held.take();
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
    held.append(start === 0 ? chunk : chunk.subarray(start));
    if (held.size() > maxEventBytes) {
      if (start > passFrom) pieces.push(chunk.subarray(passFrom, start));
      pieces.push(letPass(state));
      passFrom = chunk.length;
    }
  }
  if (!strip) return chunk;
  return joinPieces(chunk, pieces, passFrom, state.oversized ? chunk.length : start);
}

/** Takes in a complete event; true when it is to be dropped. */
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

/** Lets go of an event that is too long to be held; the rest of it will pass as it comes. */
function letPass(state: FilterState): Buffer {
  const head = state.held.take();
  state.oversized = eventRole(head, 0, head.length);
  return head;
}

function end(state: FilterState): Buffer | undefined {
  if (state.held.size() === 0) return undefined;
  const event = state.held.take();
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
