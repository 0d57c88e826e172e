import type { CandidateSet } from "./candidates.ts";
import type { Decision, Scorer } from "./decision.ts";
import { weightOf } from "./weights.ts";

/** Engine signals older than this say nothing about now. */
const freshSignalMs = 2_000;

/**
 * Estimates the requests at every eligible candidate, by candidate index: the caller's own, counted at once, plus those
 * of clients that do not come through this fleet of routers.
 *
 * The others are what the engine reported beyond our own requests at the moment of the report, so that dispatches made
 * since then add to an old report instead of hiding behind it. A candidate without a fresh report is taken to have as
 * many per unit of weight as the reporting ones have on average: unknown is not zero.
 */
export function estimateRequests(decision: Decision, out: Float64Array): void {
  estimateForeign(decision, foreignRequests, out);
  const { candidates, eligible, eligibleCount } = decision;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    out[index] = out[index]! + candidates.inFlight[index]!;
  }
}

/**
 * Requests per unit of weight if the request in hand went there. Counting it lets an idle candidate of weight 2 come
 * before an idle one of weight 1.
 */
export const requestLoad: Scorer = {
  name: "requests",
  score(decision, out) {
    estimateRequests(decision, out);
    const { candidates, eligible, eligibleCount } = decision;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = (out[index]! + 1) / weightOf(candidates, index);
    }
  },
};

/**
 * Tokens per unit of weight if the request in hand went there: prompt tokens that wait to be processed plus tokens of
 * context being decoded, ours and others'.
 *
 * @param foreignRequestTokens what a request of another client is taken to weigh where the engine does not say
 */
export function createTokenLoad(foreignRequestTokens: number): Scorer {
  const foreignTokens = (candidates: CandidateSet, index: number): number => {
    // Without our own count at the moment of the report, each dispatch of ours would seem to take a request off the
    // others, at another weight than its own: then only the KV blocks tell of them.
    const apart = !Number.isNaN(candidates.inFlightAtSignal[index]!);
    const requests = apart ? foreignRequests(candidates, index) : Number.NaN;
    const heldTokens = candidates.kvUse[index]! * candidates.kvCapacityTokens[index]!;
    if (Number.isNaN(heldTokens)) return requests * foreignRequestTokens;
    const foreignHeldTokens = Math.max(0, heldTokens - candidates.decodeTokens[index]!);
    if (Number.isNaN(requests)) return foreignHeldTokens;
    // Queued requests hold no KV blocks yet.
    return foreignHeldTokens + Math.min(requests, candidates.waiting[index]!) * foreignRequestTokens;
  };
  return {
    name: "tokens",
    score(decision, out) {
      estimateForeign(decision, foreignTokens, out);
      const { request, candidates, eligible, eligibleCount } = decision;
      const ownTokens = request.promptTokens + request.expectedOutputTokens;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const tokens = out[index]! + candidates.pendingPrefillTokens[index]! + candidates.decodeTokens[index]!;
        out[index] = (tokens + ownTokens) / weightOf(candidates, index);
      }
    },
  };
}

/**
 * Requests at the engine that are not ours, NaN when it does not say. Where our own count at the moment of the report
 * was not kept, the present one stands in for it, which can only underestimate the others while ours grow.
 */
function foreignRequests(candidates: CandidateSet, index: number): number {
  const reported = candidates.running[index]! + candidates.waiting[index]!;
  const kept = candidates.inFlightAtSignal[index]!;
  return Math.max(0, reported - (Number.isNaN(kept) ? candidates.inFlight[index]! : kept));
}

/** Writes `measure` for candidates with fresh signals, and for the others the mean of those by weight. */
function estimateForeign(
  { candidates, eligible, eligibleCount }: Decision,
  measure: (candidates: CandidateSet, index: number) => number,
  out: Float64Array,
): void {
  let knownLoad = 0;
  let knownWeight = 0;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    const fresh = candidates.signalAgeMs[index]! <= freshSignalMs;
    const load = fresh ? measure(candidates, index) : Number.NaN;
    out[index] = load;
    if (Number.isNaN(load)) continue;
    knownLoad += load;
    knownWeight += weightOf(candidates, index);
  }
  const loadPerWeight = knownWeight > 0 ? knownLoad / knownWeight : 0;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    if (Number.isNaN(out[index]!)) out[index] = loadPerWeight * weightOf(candidates, index);
  }
}
