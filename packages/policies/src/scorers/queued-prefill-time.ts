import type { Scorer } from "../decision.ts";
import { createQueuedPrefill } from "./queued-prefill.ts";

export interface QueuedPrefillTimeOptions {
  /** What a queued request of another client is taken to weigh, in tokens. */
  readonly foreignRequestTokens: number;
  /** Prefill of an engine of weight 1. */
  readonly tokensPerSecond: number;
}

/**
 * Milliseconds until the prompts that wait at the candidate or are in prefill there are computed, at a rate that is the same for
 * all engines of a weight. The prompt in hand is not in it.
 */
export function createQueuedPrefillTime({ foreignRequestTokens, tokensPerSecond }: QueuedPrefillTimeOptions): Scorer {
  const queued = createQueuedPrefill(foreignRequestTokens);
  const msPerToken = 1_000 / tokensPerSecond;
  return {
    name: "queued_prefill_ms",
    score(decision, out) {
      queued.score(decision, out);
      const { eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! * msPerToken;
      }
    },
  };
}
