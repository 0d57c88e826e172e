import type { Scorer } from "../decision.ts";
import { estimateRequests } from "../load.ts";

/**
 * Milliseconds that the request waits for a place in the engine's batch: as many answers have to end before it as are there
 * beyond the limit, and each place is free again after the time of an answer. 0 where no limit is known.
 */
export const slotWait: Scorer = {
  name: "slot_wait_ms",
  score(decision, out) {
    const { request, candidates, eligible, eligibleCount } = decision;
    const { batchLimit } = candidates;
    const answerMs = request.expectedOutputTokens * (request.msPerOutputToken ?? 0);
    estimateRequests(decision, out);
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const limit = batchLimit[index]!;
      out[index] = Number.isNaN(limit) ? 0 : (Math.max(0, out[index]! + 1 - limit) * answerMs) / limit;
    }
  },
};
