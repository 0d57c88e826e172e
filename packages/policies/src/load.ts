import type { Decision, Scorer } from "./decision.ts";
import { countingWeight, weightOf } from "./weights.ts";

/** Engine signals that are older than this, or of unknown age, are ignored. */
export const freshSignalMs = 2_000;

/**
 * Estimates the requests at every eligible candidate, by candidate index: the caller's own, which count at once, plus
 * those of clients that do not go through this fleet of routers.
 *
 * The others are what the engine reported beyond our own requests at the time of the report. So dispatches since then
 * add to an old report instead of hiding behind it. A candidate without a fresh report gets the mean per unit of weight
 * of those that have one: unknown is not zero.
 */
export function estimateRequests(decision: Decision, out: Float64Array): void {
  const { candidates, eligible, eligibleCount } = decision;
  const { running, waiting, signalAgeMs, inFlight, inFlightAtSignal } = candidates;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    // If our own count at the time of the report is not known, the present one replaces it. This can only underestimate
    // the others while ours grow.
    const kept = inFlightAtSignal[index]!;
    const ours = Number.isNaN(kept) ? inFlight[index]! : kept;
    out[index] =
      signalAgeMs[index]! <= freshSignalMs ? Math.max(0, running[index]! + waiting[index]! - ours) : Number.NaN;
  }
  fillUnknown(decision, out);
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    out[index] = out[index]! + inFlight[index]!;
  }
}

/** Present requests per unit of weight. */
export const presentLoad: Scorer = {
  name: "load",
  score(decision, out) {
    estimateRequests(decision, out);
    const { candidates, eligible, eligibleCount } = decision;
    const { weight } = candidates;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = out[index]! / countingWeight(weight[index]!);
    }
  },
};

/**
 * Requests per unit of weight, including this one. Counting it puts an idle candidate of weight 2 before an idle one of
 * weight 1.
 */
export const requestLoad: Scorer = {
  name: "requests",
  score(decision, out) {
    estimateRequests(decision, out);
    const { candidates, eligible, eligibleCount } = decision;
    const { weight } = candidates;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = (out[index]! + 1) / countingWeight(weight[index]!);
    }
  },
};

/**
 * Tokens per unit of weight, including this request: prompt tokens that wait for prefill plus context tokens in decode,
 * ours and others'.
 *
 * @param foreignRequestTokens assumed size of a request of another client if the engine does not report it
 */
export function createTokenLoad(foreignRequestTokens: number): Scorer {
  return {
    name: "tokens",
    score(decision, out) {
      estimateForeignTokens(decision, foreignRequestTokens, out);
      const { request, candidates, eligible, eligibleCount } = decision;
      const { weight, pendingPrefillTokens, decodeTokens } = candidates;
      const ownTokens = request.promptTokens + request.expectedOutputTokens;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const tokens = out[index]! + pendingPrefillTokens[index]! + decodeTokens[index]!;
        out[index] = (tokens + ownTokens) / countingWeight(weight[index]!);
      }
    },
  };
}

/**
 * Estimates the prompt tokens of other clients in the engines' queues, by candidate index. A silent candidate gets the
 * mean of the others for its weight.
 *
 * @param requestTokens assumed size of a queued request of another client
 */
export function estimateForeignQueue(decision: Decision, requestTokens: number, out: Float64Array): void {
  const { candidates, eligible, eligibleCount } = decision;
  const { running, waiting, signalAgeMs, inFlightAtSignal } = candidates;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    const queued = waiting[index]!;
    const requests = Math.max(0, running[index]! + queued - inFlightAtSignal[index]!);
    out[index] = signalAgeMs[index]! <= freshSignalMs ? Math.min(requests, queued) * requestTokens : Number.NaN;
  }
  fillUnknown(decision, out);
}

/** The same for all their tokens: those in KV blocks, and those of queued requests, which have no blocks yet. */
function estimateForeignTokens(decision: Decision, requestTokens: number, out: Float64Array): void {
  const { candidates, eligible, eligibleCount } = decision;
  const { running, waiting, signalAgeMs, inFlightAtSignal, kvUse, kvCapacityTokens, decodeTokens } = candidates;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    // Without our own count at the time of the report, each dispatch of ours would seem to remove a request of the
    // others, of a different size. Then requests count as unknown, and only the KV blocks show them.
    const requests = Math.max(0, running[index]! + waiting[index]! - inFlightAtSignal[index]!);
    const heldTokens = Math.max(0, kvUse[index]! * kvCapacityTokens[index]! - decodeTokens[index]!);
    const queuedTokens = Math.min(requests, waiting[index]!) * requestTokens;
    let tokens = heldTokens;
    if (Number.isNaN(heldTokens)) tokens = requests * requestTokens;
    else if (!Number.isNaN(queuedTokens)) tokens += queuedTokens;
    out[index] = signalAgeMs[index]! <= freshSignalMs ? tokens : Number.NaN;
  }
  fillUnknown(decision, out);
}

/**
 * Writes, by candidate index, how many requests each eligible candidate may have: ceil(loadFactor x (requests in flight
 * + 1) x own share of the weight). The bounds add up to more than all requests, so some candidate is always below its
 * bound (Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads", 2016).
 *
 * @param loads requests by candidate index
 * @param loadFactor at least 1, or 0 for no bound
 */
export function writeLoadBounds(decision: Decision, loads: Float64Array, loadFactor: number, out: Float64Array): void {
  const { candidates, eligible, eligibleCount } = decision;
  let totalLoad = 0;
  let totalWeight = 0;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    totalLoad += loads[index]!;
    totalWeight += weightOf(candidates, index);
  }
  const boundPerWeight = (loadFactor * (totalLoad + 1)) / totalWeight;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    out[index] = loadFactor === 0 ? Number.POSITIVE_INFINITY : Math.ceil(boundPerWeight * weightOf(candidates, index));
  }
}

/**
 * Replaces NaN among the eligible candidates' amounts by the mean of the known ones for the weight: unknown is not
 * zero. Writes 0 to all if none is known.
 *
 * @returns whether any is known
 */
export function fillUnknown({ candidates, eligible, eligibleCount }: Decision, amounts: Float64Array): boolean {
  const { weight } = candidates;
  let knownAmount = 0;
  let knownWeight = 0;
  let unknownCount = 0;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    const amount = amounts[index]!;
    if (Number.isNaN(amount)) {
      unknownCount += 1;
      continue;
    }
    knownAmount += amount;
    knownWeight += countingWeight(weight[index]!);
  }
  const amountPerWeight = knownWeight > 0 ? knownAmount / knownWeight : 0;
  for (let place = 0; place < eligibleCount && unknownCount > 0; place++) {
    const index = eligible[place]!;
    if (!Number.isNaN(amounts[index]!)) continue;
    amounts[index] = amountPerWeight * countingWeight(weight[index]!);
    unknownCount -= 1;
  }
  return knownWeight > 0;
}
