import type { Scorer } from "../decision.ts";
import { createTokenLoad } from "../load.ts";

export interface TokenLoadScoreOptions {
  /** The tokens at an engine of weight 1 from which on it scores nothing. */
  readonly thresholdTokens: number;
  /** What a queued request of another client is taken to weigh. */
  readonly foreignRequestTokens: number;
}

/** 1 without tokens in prefill or decode, those of the request in hand included, falling to 0 at the threshold. */
export function createTokenLoadScore({ thresholdTokens, foreignRequestTokens }: TokenLoadScoreOptions): Scorer {
  const load = createTokenLoad(foreignRequestTokens);
  return {
    name: "token_load",
    score(decision, out) {
      load.score(decision, out);
      const { eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = 1 - Math.min(1, out[index]! / thresholdTokens);
      }
    },
  };
}
