import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createMatchShare } from "../match.ts";
import { createAffinityPicker } from "../pickers/affinity.ts";
import { amount, foreignRequestTokens, share, tierCreditOptions, tierCredits } from "../policy-options.ts";
import { createUncachedTokens } from "../scorers/prefill-work.ts";
import { createQueuedPrefill } from "../scorers/queued-prefill.ts";
import { createQueuedPrefillTime } from "../scorers/queued-prefill-time.ts";
import { weightedOnly } from "../weights.ts";

/** Sums of equal tokens differ by less than this, whatever the order in which they were rounded. */
const roundingErrorTokens = 1e-6;

/**
 * The rule of llm-d/llm-d-router at ebab6879 (2026-08-22), with its defaults. Below pkg/epp/framework/plugins:
 * `scheduling/filter/prefixcacheaffinity/plugin.go` keeps those that hold the prompt unless the prompts in flight there take
 * too long at its `peakPrefillThroughput` (`ttftSource: prefillThroughput`); `scheduling/scorer/tokenload/token_load.go` adds
 * up tokens in flight and the uncached ones of the request; `requestcontrol/dataproducer/inflightload/producer.go` counts
 * uncached prompt tokens from dispatch to the first token; `scheduling/picker/maxscore/picker.go` draws equals. That the score
 * stops falling at four million tokens is left out.
 */
export const affinityFilter: PolicyDefinition = {
  summary:
    "Of the engines that hold most of the prompt the one with the least prefill: prompt tokens in flight there that have " +
    "to be computed and that are not answered yet, and those of the prompt in hand that its cache lacks. Of all engines, " +
    "where none holds it or where the prompts in flight at those that do take much longer than elsewhere. Equals at random " +
    "by weight.",
  source: "llm-d's prefix-cache-affinity-filter with its token-load-scorer, August 2026",
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
        "Milliseconds by which the prompts in flight at those that hold the prompt may take longer than at the best other " +
        "engine; 0 removes the bound.",
    }),
    {
      name: "prefill-tokens-per-second",
      default: 15_928,
      range: "1 or more",
      accepts: (value) => value >= 1 && value < Number.POSITIVE_INFINITY,
      meaning:
        "Prefill of an engine of weight 1, by which those milliseconds are reckoned. The default is llm-d's, for a model " +
        "of 32 billion parameters on two H100.",
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
      terms: [
        { scorer: createQueuedPrefill(requestTokens), weight: 1 },
        { scorer: createUncachedTokens(credits), weight: 1 },
      ],
      picker: createAffinityPicker({
        matchShare: createMatchShare("match_share", credits),
        threshold: option("affinity-threshold"),
        waitTime: createQueuedPrefillTime({
          foreignRequestTokens: requestTokens,
          tokensPerSecond: option("prefill-tokens-per-second"),
        }),
        maxPenaltyMs: option("max-ttft-penalty-ms"),
        tolerance: roundingErrorTokens,
      }),
    });
  },
};
