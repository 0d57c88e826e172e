import type { Scorer } from "../decision.ts";
import type { TierCredits } from "../match.ts";
import { createScratch } from "../scratch.ts";
import { createUncachedTokens } from "./prefill-work.ts";
import { createQueuedPrefill } from "./queued-prefill.ts";

export interface TokenLoadScoreOptions {
  /** The tokens at an engine of weight 1 from which on it scores nothing. */
  readonly thresholdTokens: number;
  readonly credits: TierCredits;
  /** What a queued request of another client is taken to weigh. */
  readonly foreignRequestTokens: number;
}

/** 1 without prefill, that of the request in hand included, falling to 0 at the threshold. */
export function createTokenLoadScore(options: TokenLoadScoreOptions): Scorer {
  const { thresholdTokens, credits, foreignRequestTokens } = options;
  const queued = createQueuedPrefill(foreignRequestTokens);
  const uncached = createUncachedTokens(credits);
  const scratch = createScratch();
  return {
    name: "token_load",
    score(decision, out) {
      const own = scratch.of(decision);
      queued.score(decision, out);
      uncached.score(decision, own);
      const { eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = 1 - Math.min(1, (out[index]! + own[index]!) / thresholdTokens);
      }
    },
  };
}
