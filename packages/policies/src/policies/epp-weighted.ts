import { composePolicy } from "../compose-policy.ts";
import { createScratch, type Picker, type Scorer, type Term } from "../decision.ts";
import { amount, foreignRequestTokens, type PolicyDefinition, tierCreditOptions, tierCredits } from "../definition.ts";
import { estimateRequests, fillUnknown, freshSignalMs } from "../load.ts";
import { createMatchShare, type TierCredits } from "../match.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { loraAffinityScore } from "../scorers/adapters.ts";
import { type ColdOrder, createColdOrder } from "../scorers/cold-order.ts";
import { createQueuedPrefill, createUncachedTokens } from "../scorers/prefill-work.ts";
import { countingWeight, weightedOnly } from "../weights.ts";

/** Rounding makes sums of equal scores differ by less than this. */
const roundingError = 1e-9;

/**
 * The rule of llm-d/llm-d-router at ebab6879 (2026-08-22), the successor of the endpoint picker of the Gateway API
 * Inference Extension: scorers and the drawing picker below pkg/epp/framework/plugins/scheduling, weights 2, 2 and 3 as
 * in config/charts/routerlib/templates/_config.yaml, and metrics read every 50 ms (pkg/epp/datalayer/runtime.go,
 * `--refresh-metrics-interval`).
 */
export const eppWeighted: PolicyDefinition = {
  summary:
    "Highest weighted sum of scores from 0 to 1; ties are random by weight. The cost is the negative sum. Scores " +
    "of weight 0 are skipped; an engine without the metric of a score gets the mean of the others.",
  source:
    "endpoint picker of the Gateway API Inference Extension and llm-d; each option ending in -weight is named " +
    "after its scorer",
  readsPrefixes: true,
  metricsEveryMs: 50,
  options: [
    amount({
      name: "queue-weight",
      default: 2,
      meaning: "Weight of the queue that an engine reports: 1 for the shortest, 0 for the longest.",
    }),
    amount({
      name: "kv-cache-utilization-weight",
      default: 2,
      meaning: "Weight of the free share of an engine's KV blocks.",
    }),
    amount({
      name: "prefix-cache-weight",
      default: 3,
      meaning: "Weight of the cached share of the prompt.",
    }),
    {
      name: "max-prefix-tokens",
      default: 131_072,
      range: "1 or more",
      accepts: (value) => value >= 1 && value < Number.POSITIVE_INFINITY,
      meaning: "Tokens at the start of a prompt for the cached share; llm-d's `maxPrefixTokensToMatch`.",
    },
    amount({
      name: "active-request-weight",
      default: 0,
      meaning: "Weight of the requests in flight: 1 for none, 0 for the maximum.",
    }),
    amount({
      name: "token-load-weight",
      default: 0,
      meaning: "Weight of the prefill in flight and of the request: 1 for none, 0 from `token-load-threshold`.",
    }),
    amount({
      name: "no-hit-lru-weight",
      default: 0,
      meaning:
        "Weight of the time since an engine's last uncached prompt: 1 for the longest, 0 for the shortest; 0.5 for " +
        "all if a cache holds part of the prompt.",
    }),
    amount({
      name: "lora-affinity-weight",
      default: 0,
      meaning:
        "Weight of the state of the requested LoRA adapter: 1 if loaded, 0.8 with a free slot, 0.6 with requests " +
        "waiting for it, else 0. An adapter without an engine counts as loaded where the hash of its name points.",
    }),
    {
      name: "token-load-threshold",
      default: 4_194_304,
      range: "1 or more",
      accepts: (value) => value >= 1 && value < Number.POSITIVE_INFINITY,
      meaning: "Tokens at an engine of weight 1 from which its token load scores 0.",
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

/** Wraps a picker so that its choices enter the order of cold prompts. */
function remembering(picker: Picker, coldOrder: ColdOrder): Picker {
  return {
    pick(decision, random, choice) {
      picker.pick(decision, random, choice);
      coldOrder.took(decision, choice.index);
    },
    explain: (decision, out) => picker.explain(decision, out),
  };
}

/** 1 for an engine without requests, 0 for the one with the most for its weight, linear in between. */
const activeRequestScore: Scorer = {
  name: "active_request",
  score(decision, out) {
    estimateRequests(decision, out);
    const { candidates, eligible, eligibleCount } = decision;
    const { weight } = candidates;
    let most = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const load = out[index]! / countingWeight(weight[index]!);
      out[index] = load;
      if (load > most) most = load;
    }
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = most > 0 ? 1 - out[index]! / most : 1;
    }
  },
};

/**
 * Share of free KV blocks, 0 to 1, as the engine reports it. Engines that do not report get the mean of those that do;
 * 0.5 for all if none does.
 */
const kvUtilizationScore: Scorer = {
  name: "kv_cache_utilization",
  score({ candidates, eligible, eligibleCount }, out) {
    const { kvUse, signalAgeMs } = candidates;
    let free = 0;
    let known = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const share = signalAgeMs[index]! <= freshSignalMs ? 1 - Math.min(1, Math.max(0, kvUse[index]!)) : Number.NaN;
      out[index] = share;
      if (Number.isNaN(share)) continue;
      free += share;
      known += 1;
    }
    const neutral = known > 0 ? free / known : 0.5;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (Number.isNaN(out[index]!)) out[index] = neutral;
    }
  },
};

/**
 * 1 for the shortest reported queue for its weight, 0 for the longest, linear in between; 1 for all if they are equal,
 * as in the Gateway API's queue-scorer. Engines that do not report get the mean; 0.5 for all if none does.
 */
const queueScore: Scorer = {
  name: "queue",
  score(decision, out) {
    const { candidates, eligible, eligibleCount } = decision;
    const { weight, waiting, signalAgeMs } = candidates;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = signalAgeMs[index]! <= freshSignalMs ? waiting[index]! : Number.NaN;
    }
    const known = fillUnknown(decision, out);
    let shortest = Number.POSITIVE_INFINITY;
    let longest = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const length = out[index]! / countingWeight(weight[index]!);
      out[index] = length;
      if (length < shortest) shortest = length;
      if (length > longest) longest = length;
    }
    const range = longest - shortest;
    const whenEqual = known ? 1 : 0.5;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = range > 0 ? (longest - out[index]!) / range : whenEqual;
    }
  },
};

interface TokenLoadScoreOptions {
  /** Tokens at which an engine of weight 1 scores 0. */
  readonly thresholdTokens: number;
  readonly credits: TierCredits;
  /** Assumed size of a queued request of another client, in tokens. */
  readonly foreignRequestTokens: number;
}

/** 1 without any prefill tokens, including those of this request, falling to 0 at the threshold. */
function createTokenLoadScore(options: TokenLoadScoreOptions): Scorer {
  const { thresholdTokens, credits, foreignRequestTokens } = options;
  const queued = createQueuedPrefill(foreignRequestTokens);
  const uncached = createUncachedTokens(credits);
  const scratch = createScratch();
  return {
    name: "token_load",
    score(decision, out) {
      const own = scratch.of(decision);
      queued.score(decision, out);
      uncached.score(decision, own);
      const { eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = 1 - Math.min(1, (out[index]! + own[index]!) / thresholdTokens);
      }
    },
  };
}
