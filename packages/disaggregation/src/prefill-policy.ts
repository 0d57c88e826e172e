import { composePolicy, createLeastCostPicker, type Policy, type Scorer, weightedOnly } from "@espalier/policies";
import { usualPrefillMsPerToken } from "./chosen-signals.ts";

/**
 * What an answer that stands still counts beside a prompt that waits. In the simulator's `pd-mix`, answers end at the same
 * time within 4 % of the mean from 0.05 to 0.2; at 1, engines that only prefill get queues of seconds.
 */
const stallShare = 0.1;

/**
 * Chooses who computes a prompt for another engine: where the least time passes for the request and for the answers that
 * stand still meanwhile. In milliseconds.
 */
export function createPrefillPolicy(): Policy {
  return composePolicy({
    name: "least_work",
    filters: [weightedOnly],
    terms: [{ scorer: prefillCost, weight: 1 }],
    picker: createLeastCostPicker(),
  });
}

const prefillCost: Scorer = {
  name: "prefill_ms",
  score({ request: { promptTokens }, candidates, eligible, eligibleCount }, out) {
    for (let place = 0; place < eligibleCount; place++) {
      const at = eligible[place]!;
      const learned = candidates.prefillMsPerToken[at]!;
      const perToken = learned > 0 ? learned : usualPrefillMsPerToken;
      const perPair = candidates.prefillMsPerTokenPair[at]!;
      const matched = Math.min(promptTokens, candidates.matchedTokens[at]! + candidates.matchedCpuTokens[at]!);
      const uncached = promptTokens - matched;
      const ownMs = uncached * (perToken + (perPair > 0 ? perPair * (matched + uncached / 2) : 0));
      const running = candidates.running[at]!;
      const answers = Math.max(candidates.inFlight[at]!, Number.isNaN(running) ? 0 : running);
      const backlog = candidates.backlogMs[at]!;
      const waitMs = backlog >= 0 ? backlog : candidates.pendingPrefillTokens[at]! * perToken;
      out[at] = (waitMs + ownMs * (1 + stallShare * answers)) / (candidates.weight[at]! || 1);
    }
  },
};
