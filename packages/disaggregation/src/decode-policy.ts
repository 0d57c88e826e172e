import { composePolicy, createLeastCostPicker, type Policy, type Scorer, weightedOnly } from "@espalier/policies";
import { usualPrefillMsPerToken } from "./chosen-signals.ts";
import type { TransferCost } from "./transfer-cost.ts";

/** What one more answer in the batch adds to a decode step, and a token of context in it (KV read at 3 TB/s). */
const stepMsPerAnswer = 0.02;
const stepMsPerContextToken = 0.000_04;
/** Use of an engine's KV blocks from which on a long prompt is likely to push others out. */
const fullShare = 0.95;

/**
 * Chooses who goes on after the prompt was computed elsewhere: what has to be moved there, what prefill stands before the
 * first step, how slow the steps are, and whether there is room. In milliseconds for this request.
 */
export function createDecodePolicy(cost: Pick<TransferCost, "msPerToken">): Policy {
  return composePolicy({
    name: "least_tokens",
    filters: [weightedOnly],
    terms: [{ scorer: createDecodeCost(cost), weight: 1 }],
    picker: createLeastCostPicker(),
  });
}

function createDecodeCost(cost: Pick<TransferCost, "msPerToken">): Scorer {
  return {
    name: "decode_ms",
    score({ request, candidates, eligible, eligibleCount }, out) {
      const { promptTokens, expectedOutputTokens } = request;
      for (let place = 0; place < eligibleCount; place++) {
        const at = eligible[place]!;
        const learned = candidates.prefillMsPerToken[at]!;
        const prefillMs = learned > 0 ? learned : usualPrefillMsPerToken;
        const moved = Math.max(0, promptTokens - candidates.matchedTokens[at]!);
        const weight = candidates.weight[at]! || 1;
        const stepMs =
          stepMsPerAnswer * candidates.inFlight[at]! + stepMsPerContextToken * candidates.decodeTokens[at]!;
        const waitingMs = candidates.pendingPrefillTokens[at]! * prefillMs;
        // What does not fit is recomputed later, at the cost of somebody's prefill.
        const overflow = candidates.kvUse[at]! > fullShare ? moved * prefillMs : 0;
        out[at] =
          cost.msPerToken * moved + overflow + (waitingMs + stepMs * Math.max(1, expectedOutputTokens)) / weight;
      }
    },
  };
}
