import type { Scorer } from "../decision.ts";
import { requestLoad } from "../load.ts";
import type { TierCredits } from "../match.ts";
import { createScratch } from "../scratch.ts";
import { createUncachedTokens } from "./prefill-work.ts";
import { createQueuedPrefill } from "./queued-prefill.ts";

export interface PrefillTimesBatchOptions {
  readonly credits: TierCredits;
  /** What a queued request of another client is taken to weigh, in tokens. */
  readonly foreignRequestTokens: number;
}

/**
 * The prefill that there would be with the request in hand, in tokens, times the requests that there would be, each per
 * unit of weight. Neither factor is ever 0, so that neither can hide the other: the request itself is counted, and of a
 * prompt that is cached in full the last token.
 */
export function createPrefillTimesBatch({ credits, foreignRequestTokens }: PrefillTimesBatchOptions): Scorer {
  const queued = createQueuedPrefill(foreignRequestTokens);
  const uncached = createUncachedTokens(credits);
  const scratch = createScratch();
  return {
    name: "prefill_times_batch",
    parts: [...(queued.parts ?? []), uncached, requestLoad],
    score(decision, out) {
      const { eligible, eligibleCount } = decision;
      const other = scratch.of(decision);
      queued.score(decision, out);
      uncached.score(decision, other);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! + other[index]!;
      }
      requestLoad.score(decision, other);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! * other[index]!;
      }
    },
  };
}
