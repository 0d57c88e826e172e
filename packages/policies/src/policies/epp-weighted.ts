import { composePolicy } from "../compose-policy.ts";
import type { Picker, Term } from "../decision.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createMatchShare } from "../match.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { amount, foreignRequestTokens, tierCreditOptions, tierCredits } from "../policy-options.ts";
import { activeRequestScore } from "../scorers/active-requests.ts";
import { type ColdOrder, createColdOrder } from "../scorers/cold-order.ts";
import { kvUtilizationScore } from "../scorers/kv-utilization.ts";
import { loraAffinityScore } from "../scorers/lora-affinity.ts";
import { queueScore } from "../scorers/queue.ts";
import { createTokenLoadScore } from "../scorers/token-load.ts";
import { weightedOnly } from "../weights.ts";

/** Sums of equal scores differ by less than this, whatever the order in which they were rounded. */
const roundingError = 1e-9;

/**
 * The rule of llm-d/llm-d-router at ebab6879 (2026-08-22), which the endpoint picker of the Gateway API Inference Extension became:
 * scorers and the drawing picker below pkg/epp/framework/plugins/scheduling, weights 2, 2 and 3 as in
 * config/charts/routerlib/templates/_config.yaml, and metrics that are read every 50 ms
 * (pkg/epp/datalayer/runtime.go, `--refresh-metrics-interval`).
 */
export const eppWeighted: PolicyDefinition = {
  summary:
    "The engine with the highest weighted sum of scores from 0 to 1; equals at random by weight. Costs are that sum " +
    "with a minus. A score with weight 0 is not taken; an engine that does not report what a score needs has the " +
    "others' mean.",
  source:
    "the endpoint picker of the Gateway API Inference Extension and llm-d: each option ending in -weight has the " +
    "name of their scorer",
  readsPrefixes: true,
  metricsEveryMs: 50,
  options: [
    amount({
      name: "queue-weight",
      default: 2,
      meaning: "Of the queue that an engine reports: 1 for the shortest, 0 for the longest.",
    }),
    amount({
      name: "kv-cache-utilization-weight",
      default: 2,
      meaning: "Of the free share of an engine's KV blocks.",
    }),
    amount({
      name: "prefix-cache-weight",
      default: 3,
      meaning: "Of the share of the prompt that is in an engine's cache.",
    }),
    {
      name: "max-prefix-tokens",
      default: 131_072,
      range: "1 or more",
      accepts: (value) => value >= 1 && value < Number.POSITIVE_INFINITY,
      meaning: "Tokens at the beginning of a prompt of which that share is taken; llm-d's `maxPrefixTokensToMatch`.",
    },
    amount({
      name: "active-request-weight",
      default: 0,
      meaning: "Of the requests in flight: 1 for none, 0 for the most.",
    }),
    amount({
      name: "token-load-weight",
      default: 0,
      meaning: "Of the prefill in flight and of the prompt in hand: 1 for none, 0 from `token-load-threshold` on.",
    }),
    amount({
      name: "no-hit-lru-weight",
      default: 0,
      meaning:
        "Of the order in which engines last took a prompt that no cache had: 1 for the longest ago, 0 for the last; " +
        "0.5 for all when a cache has a part of the prompt.",
    }),
    amount({
      name: "lora-affinity-weight",
      default: 0,
      meaning:
        "Of how an engine stands to the LoRA adapter that is asked for: 1 when it is loaded, 0.8 with a free slot, 0.6 " +
        "when requests for it wait, 0 else. One that no engine has counts as loaded where its name's hash says.",
    }),
    {
      name: "token-load-threshold",
      default: 4_194_304,
      range: "1 or more",
      accepts: (value) => value >= 1 && value < Number.POSITIVE_INFINITY,
      meaning: "Tokens at an engine of weight 1 from which on its token load scores 0.",
    },
    foreignRequestTokens,
    ...tierCreditOptions,
  ],
  create: (option) => {
    const credits = tierCredits(option);
    const coldOrder = createColdOrder(credits);
    const tokenLoad = createTokenLoadScore({
      thresholdTokens: option("token-load-threshold"),
      credits,
      foreignRequestTokens: option(foreignRequestTokens.name),
    });
    const terms: readonly Term[] = [
      { scorer: queueScore, weight: -option("queue-weight") },
      { scorer: kvUtilizationScore, weight: -option("kv-cache-utilization-weight") },
      {
        scorer: createMatchShare("prefix_cache", credits, option("max-prefix-tokens")),
        weight: -option("prefix-cache-weight"),
      },
      { scorer: activeRequestScore, weight: -option("active-request-weight") },
      { scorer: tokenLoad, weight: -option("token-load-weight") },
      { scorer: loraAffinityScore, weight: -option("lora-affinity-weight") },
      { scorer: coldOrder.score, weight: -option("no-hit-lru-weight") },
    ];
    const highest = createNearTiePicker({ reason: "best_score", tolerance: roundingError });
    return composePolicy({
      name: "epp_weighted",
      filters: [weightedOnly],
      terms: terms.filter(({ weight }) => weight !== 0),
      picker: option("no-hit-lru-weight") > 0 ? remembering(highest, coldOrder) : highest,
    });
  },
};

/** The picker, whose choices enter the order of cold prompts. */
function remembering(picker: Picker, coldOrder: ColdOrder): Picker {
  return {
    pick(decision, random, choice) {
      picker.pick(decision, random, choice);
      coldOrder.took(decision, choice.index);
    },
    explain: (decision, out) => picker.explain(decision, out),
  };
}
