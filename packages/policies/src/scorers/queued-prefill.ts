import type { Scorer } from "../decision.ts";
import { createScratch } from "../scratch.ts";
import { createForeignPrefill, pendingPrefill } from "./prefill-work.ts";

/**
 * Prompt tokens that wait for prefill at the candidate or are in it, per unit of weight: ours, and those of other
 * clients in the engine's queue.
 *
 * @param requestTokens what a queued request of another client is taken to weigh
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
