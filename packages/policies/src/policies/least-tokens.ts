import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createTokenLoad } from "../load.ts";
import { createLeastCostPicker } from "../pickers/least-cost.ts";
import { foreignRequestTokens } from "../policy-options.ts";
import { weightedOnly } from "../weights.ts";

export const leastTokens: PolicyDefinition = {
  summary: "The engine with the fewest tokens waiting for prefill or being decoded, for its weight; equals at random.",
  source: "token-aware routing",
  readsPrefixes: false,
  options: [foreignRequestTokens],
  create: (option) =>
    composePolicy({
      name: "least_tokens",
      filters: [weightedOnly],
      terms: [{ scorer: createTokenLoad(option(foreignRequestTokens.name)), weight: 1 }],
      picker: createLeastCostPicker(),
    }),
};
