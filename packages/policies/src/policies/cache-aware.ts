import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { presentLoad } from "../load.ts";
import { createMatchShare } from "../match.ts";
import { createCacheAwarePicker } from "../pickers/cache-aware.ts";
import { amount, share, tierCreditOptions, tierCredits } from "../policy-options.ts";
import { weightedOnly } from "../weights.ts";

export const cacheAware: PolicyDefinition = {
  summary:
    "While the loads of engines are far apart, the engine with the fewest requests in flight; else the one with the " +
    "longest part of the prompt in its cache, if that is long enough; else the one whose cache holds least.",
  source: "the router of SGLang 0.4, whose flags have the names of the first three options",
  readsPrefixes: true,
  options: [
    share({
      name: "cache-threshold",
      default: 0.3,
      meaning: "The share of the prompt of which more than this must be in an engine's cache for the match to decide.",
    }),
    amount({
      name: "balance-abs-threshold",
      default: 64,
      meaning:
        "Loads are far apart when the highest exceeds the lowest by more than this many requests in flight, " +
        "at weight 1,",
    }),
    amount({
      name: "balance-rel-threshold",
      default: 1.5,
      meaning: "and is more than this many times the lowest.",
    }),
    ...tierCreditOptions,
  ],
  create: (option) =>
    composePolicy({
      name: "cache_aware",
      filters: [weightedOnly],
      terms: [{ scorer: presentLoad, weight: 1 }],
      picker: createCacheAwarePicker({
        cacheThreshold: option("cache-threshold"),
        balanceAbsThreshold: option("balance-abs-threshold"),
        balanceRelThreshold: option("balance-rel-threshold"),
        matchShare: createMatchShare("match_share", tierCredits(option)),
      }),
    }),
};
