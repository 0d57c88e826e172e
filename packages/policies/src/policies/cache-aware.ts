import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { presentLoad } from "../load.ts";
import { createMatchShare } from "../match.ts";
import { createCacheAwarePicker } from "../pickers/cache-aware.ts";
import { amount, share, tierCreditOptions, tierCredits } from "../policy-options.ts";
import { weightedOnly } from "../weights.ts";

/**
 * The rule of lightseekorg/smg at 73da68ca (2026-08-07), model_gateway/src/policies/cache_aware.rs, with the defaults of its flags
 * (model_gateway/src/main.rs). The router of SGLang, from which it comes, does the same since
 * sgl-project/sglang@b93974f1, sgl-model-gateway/src/policies/cache_aware.rs; before, as of version 0.4, a prompt that no cache
 * has went where the cache holds least. SMG's triggers by KV use are off by default and left out.
 */
export const cacheAware: PolicyDefinition = {
  summary:
    "While the loads of engines are far apart, the engine with the fewest requests in flight; else the one with the " +
    "longest part of the prompt in its cache, if that is long enough; else again the one with the fewest requests in flight, " +
    "or, as in older versions, the one whose cache holds least.",
  source: "the routers of SGLang and SMG, whose flags have the names of the first three options",
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
    {
      name: "miss-to-free-cache",
      default: 0,
      range: "0 or 1",
      accepts: (value) => value === 0 || value === 1,
      meaning:
        "1: a prompt without such a match goes where the cache holds least, as in SGLang 0.4; 0: to the fewest requests in " +
        "flight.",
    },
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
        missesToFreeCache: option("miss-to-free-cache") === 1,
        matchShare: createMatchShare("match_share", tierCredits(option)),
      }),
    }),
};
