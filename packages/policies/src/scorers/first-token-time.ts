import type { Scorer } from "../decision.ts";
import type { TierCredits } from "../match.ts";
import { createScratch } from "../scratch.ts";
import { countingWeight } from "../weights.ts";
import { createForeignPrefill, createUncachedTokens } from "./prefill-work.ts";

export interface FirstTokenTimeOptions {
  readonly credits: TierCredits;
  /** What a queued request of another client is taken to weigh, in tokens. */
  readonly foreignRequestTokens: number;
  /** Prefill of an engine of weight 1 of which nothing is learned. */
  readonly tokensPerSecond: number;
}

/**
 * Milliseconds until the request in hand would begin to be answered: the prompts before it, ours and those of other
 * clients in the engine's queue, and the part of its own that the candidate has to compute. What is learned of a
 * candidate counts; what is not, its pending tokens and the given rate stand in for.
 */
export function createFirstTokenTime(options: FirstTokenTimeOptions): Scorer {
  const foreign = createForeignPrefill(options.foreignRequestTokens);
  const uncached = createUncachedTokens(options.credits);
  const scratch = createScratch();
  const msPerToken = 1_000 / options.tokensPerSecond;
  return {
    name: "first_token_ms",
    score(decision, out) {
      const { candidates, eligible, eligibleCount } = decision;
      const { weight, pendingPrefillTokens, backlogMs, prefillMsPerToken } = candidates;
      const others = scratch.of(decision);
      foreign.score(decision, others);
      uncached.score(decision, out);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const share = countingWeight(weight[index]!);
        const learnedMs = prefillMsPerToken[index]!;
        const tokenMs = Number.isNaN(learnedMs) ? msPerToken / share : learnedMs;
        const knownMs = backlogMs[index]!;
        const pendingMs = Number.isNaN(knownMs) ? pendingPrefillTokens[index]! * tokenMs : knownMs;
        // Both scorers divide by the weight, which a time per token of the engine itself has in it already.
        out[index] = pendingMs + (others[index]! + out[index]!) * share * tokenMs;
      }
    },
  };
}
