import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createTokenLoad } from "../load.ts";
import { createLeastCostPicker } from "../pickers/least-cost.ts";
import { weightedOnly } from "../weights.ts";

export const leastTokens: PolicyDefinition = {
  summary: "The engine with the fewest tokens waiting for prefill or being decoded, for its weight; equals at random.",
  source: "token-aware routing",
  options: [
    {
      name: "foreign-request-tokens",
      default: 1_024,
      range: "0 or more",
      accepts: (value) => value >= 0 && value < Number.POSITIVE_INFINITY,
      meaning: "What a queued request of a client outside the fleet is taken to weigh, in tokens.",
    },
  ],
  create: (option) =>
    composePolicy({
      name: "least_tokens",
      filters: [weightedOnly],
      terms: [{ scorer: createTokenLoad(option("foreign-request-tokens")), weight: 1 }],
      picker: createLeastCostPicker(),
    }),
};
