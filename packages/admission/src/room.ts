import type { AdmissionTarget, OthersLoad } from "./admission-target.ts";

/** Metrics older than this say nothing about now. */
const freshSignalMs = 2_000;

/** From where on an engine gets no more. */
export interface Knee {
  readonly maxWaiting: number;
  readonly maxKvUse: number;
  readonly others: OthersLoad;
}

/** Prompt tokens that wait at a target for all routers, per unit of weight. */
export function pendingTokens(target: AdmissionTarget, others: OthersLoad): number {
  const { weight } = target.engine;
  const tokens = target.load.pendingPrefillTokens + at(others.pendingPrefillTokens, target.index);
  // An engine without a weight is asked only when no other one is there: then it counts as any other.
  return weight > 0 ? tokens / weight : tokens;
}

/** Milliseconds that a target is expected to compute on what all routers have sent, until the last first token. */
function pendingWorkMs(target: AdmissionTarget, others: OthersLoad): number {
  return target.load.pendingWorkMs + at(others.pendingWorkMs, target.index);
}

/** Requests in flight to a target from all routers. */
export function requestsAt(target: AdmissionTarget, others: OthersLoad): number {
  return target.load.inFlight + at(others.inFlight, target.index);
}

/** Reading beyond the end of a typed array is slow, and this is done for every engine of every request. */
function at(column: Float64Array, index: number): number {
  return index < column.length ? column[index]! : 0;
}

/** How much may wait at an engine for one request more to go there. */
export interface PendingBounds {
  /** Prompt tokens, for an engine of weight 1. */
  readonly maxPendingTokens: number;
  /** Of computing; Infinity where the request has no deadline. */
  readonly maxPendingMs: number;
}

/**
 * Whether a target is before its knee. Its own metrics count while they are fresh: requests that have ended since they
 * were read are taken off its queue, so that an old report does not keep an engine empty.
 */
export function hasRoom(target: AdmissionTarget, bounds: PendingBounds, knee: Knee): boolean {
  if (pendingTokens(target, knee.others) >= bounds.maxPendingTokens) return false;
  const workMs = pendingWorkMs(target, knee.others);
  if (workMs > 0 && workMs >= bounds.maxPendingMs) return false;
  const { waiting, kvUse, inFlightAtScrape } = target.signals;
  if (!(waiting >= 1) || target.signals.ageMs() > freshSignalMs) return true;
  const change = requestsAt(target, knee.others) - inFlightAtScrape;
  const stillWaiting = change < 0 ? waiting + change : waiting;
  return stillWaiting < knee.maxWaiting && !(stillWaiting >= 1 && kvUse >= knee.maxKvUse);
}
