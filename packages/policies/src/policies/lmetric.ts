import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { foreignRequestTokens, tierCreditOptions, tierCredits } from "../policy-options.ts";
import { createPrefillTimesBatch } from "../scorers/prefill-times-batch.ts";
import { weightedOnly } from "../weights.ts";

/** Products of equal work differ by less than this, whatever the order in which they were rounded. */
const roundingError = 1e-6;

export const lmetric: PolicyDefinition = {
  summary:
    "The engine with the lowest product of the prefill that there would be, waiting prompts and what its cache lacks of " +
    "the one in hand, and the requests that there would be, both for its weight. Equals at random by weight.",
  source: "LMetric, Zhang et al. 2026 (arXiv 2603.15202)",
  readsPrefixes: true,
  options: [foreignRequestTokens, ...tierCreditOptions],
  create: (option) =>
    composePolicy({
      name: "lmetric",
      filters: [weightedOnly],
      terms: [
        {
          scorer: createPrefillTimesBatch({
            credits: tierCredits(option),
            foreignRequestTokens: option(foreignRequestTokens.name),
          }),
          weight: 1,
        },
      ],
      picker: createNearTiePicker({ reason: "least_cost", tolerance: roundingError }),
    }),
};
