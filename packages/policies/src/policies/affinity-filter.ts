import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createTokenLoad } from "../load.ts";
import { createMatchShare } from "../match.ts";
import { createAffinityPicker } from "../pickers/affinity.ts";
import { amount, foreignRequestTokens, share, tierCreditOptions, tierCredits } from "../policy-options.ts";
import { createFirstTokenTime } from "../scorers/first-token-time.ts";
import { weightedOnly } from "../weights.ts";

/** Sums of equal tokens differ by less than this, whatever the order in which they were rounded. */
const roundingErrorTokens = 1e-6;

export const affinityFilter: PolicyDefinition = {
  summary:
    "Of the engines that hold most of the prompt the one with the fewest tokens in prefill and decode; of all engines, " +
    "where none holds it or where those would begin to answer much later than another. Equals at random by weight.",
  source: "llm-d's prefix-cache-affinity-filter with its token-load-scorer, July 2026",
  readsPrefixes: true,
  options: [
    share({
      name: "affinity-threshold",
      default: 0.8,
      meaning: "The share of the prompt from which on an engine holds it.",
    }),
    amount({
      name: "max-ttft-penalty-ms",
      default: 18_000,
      meaning:
        "Milliseconds by which the first token of those that hold the prompt may come later than that of the best other " +
        "engine; 0 removes the bound.",
    }),
    {
      name: "prefill-tokens-per-second",
      default: 15_928,
      range: "1 or more",
      accepts: (value) => value >= 1 && value < Number.POSITIVE_INFINITY,
      meaning:
        "Prefill of an engine of weight 1 as long as nothing is learned of it. The default is llm-d's, for a model of " +
        "32 billion parameters on two H100.",
    },
    foreignRequestTokens,
    ...tierCreditOptions,
  ],
  create: (option) => {
    const credits = tierCredits(option);
    const requestTokens = option(foreignRequestTokens.name);
    return composePolicy({
      name: "affinity_filter",
      filters: [weightedOnly],
      terms: [{ scorer: createTokenLoad(requestTokens), weight: 1 }],
      picker: createAffinityPicker({
        matchShare: createMatchShare("match_share", credits),
        threshold: option("affinity-threshold"),
        firstTokenTime: createFirstTokenTime({
          credits,
          foreignRequestTokens: requestTokens,
          tokensPerSecond: option("prefill-tokens-per-second"),
        }),
        maxPenaltyMs: option("max-ttft-penalty-ms"),
        tolerance: roundingErrorTokens,
      }),
    });
  },
};
