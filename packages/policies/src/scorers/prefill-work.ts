import { createScratch, type Scorer } from "../decision.ts";
import { estimateForeignQueue } from "../load.ts";
import { type TierCredits, writeCredits } from "../match.ts";
import { countingWeight } from "../weights.ts";

/** Prompt tokens of our requests in prefill or waiting for it, per unit of weight. */
export const pendingPrefill: Scorer = {
  name: "pending_prefill_tokens",
  score({ candidates, eligible, eligibleCount }, out) {
    const { weight, pendingPrefillTokens } = candidates;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = pendingPrefillTokens[index]! / countingWeight(weight[index]!);
    }
  },
};

/**
 * Uncached prompt tokens of the request at the candidate, per unit of weight. At least one: an engine computes the last
 * token of a prompt even if it holds all blocks, because the answer starts there.
 */
export function createUncachedTokens(credits: TierCredits): Scorer {
  return {
    name: "uncached_tokens",
    score(decision, out) {
      writeCredits(decision, credits, out);
      const { request, candidates, eligible, eligibleCount } = decision;
      const { promptTokens } = request;
      const { weight } = candidates;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = Math.max(1, promptTokens - out[index]!) / countingWeight(weight[index]!);
      }
    },
  };
}

/**
 * Prompt tokens of other clients' requests in the engine's queue, per unit of weight. Their running requests are left
 * out: no engine reports how much prefill those have left.
 *
 * @param requestTokens assumed size of a queued request of another client
 */
export function createForeignPrefill(requestTokens: number): Scorer {
  return {
    name: "foreign_prefill_tokens",
    score(decision, out) {
      estimateForeignQueue(decision, requestTokens, out);
      const { candidates, eligible, eligibleCount } = decision;
      const { weight } = candidates;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! / countingWeight(weight[index]!);
      }
    },
  };
}

/**
 * Prompt tokens in prefill or waiting for it at the candidate, per unit of weight: ours, and those of other clients in
 * the engine's queue.
 *
 * @param requestTokens assumed size of a queued request of another client
 */
export function createQueuedPrefill(requestTokens: number): Scorer {
  const foreign = createForeignPrefill(requestTokens);
  const scratch = createScratch();
  return {
    name: "queued_prefill_tokens",
    parts: [pendingPrefill, foreign],
    score(decision, out) {
      const others = scratch.of(decision);
      pendingPrefill.score(decision, out);
      foreign.score(decision, others);
      const { eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! + others[index]!;
      }
    },
  };
}
