import { composePolicy } from "../compose-policy.ts";
import type { Decision, Picker, Scorer } from "../decision.ts";
import {
  amount,
  foreignRequestTokens,
  type PolicyDefinition,
  share,
  tierCreditOptions,
  tierCredits,
} from "../definition.ts";
import { createMatchShare } from "../match.ts";
import { drawLowest, explainLowest, type Order } from "../pickers/near-tie.ts";
import type { ChoiceReason } from "../policy.ts";
import { createQueuedPrefill, createUncachedTokens } from "../scorers/prefill-work.ts";
import { weightedOnly } from "../weights.ts";

/** Rounding makes sums of equal tokens differ by less than this. */
const roundingErrorTokens = 1e-6;

/**
 * The rule of llm-d/llm-d-router at ebab6879 (2026-08-22), with its defaults. Paths are below
 * pkg/epp/framework/plugins. `scheduling/filter/prefixcacheaffinity/plugin.go` keeps engines that hold the prompt
 * unless the prompts in flight there take too long at its `peakPrefillThroughput` (`ttftSource: prefillThroughput`).
 * `scheduling/scorer/tokenload/token_load.go` adds up tokens in flight and the uncached ones of the request.
 * `requestcontrol/dataproducer/inflightload/producer.go` counts uncached prompt tokens from dispatch to the first
 * token. `scheduling/picker/maxscore/picker.go` draws among equals. Left out: the score stops falling at four million
 * tokens.
 */
export const affinityFilter: PolicyDefinition = {
  summary:
    "Least prefill among the engines that cache most of the prompt. Prefill counts the uncached tokens of " +
    "prompts in flight and of the request itself. All engines compete if none caches the prompt, or if the " +
    "backlog of those that do exceeds the best other engine's by `max-ttft-penalty-ms`. Ties are random by " +
    "weight.",
  source: "llm-d's prefix-cache-affinity-filter with its token-load-scorer, August 2026",
  readsPrefixes: true,
  options: [
    share({
      name: "affinity-threshold",
      default: 0.8,
      meaning: "Cached share of the prompt from which an engine counts as holding it.",
    }),
    amount({
      name: "max-ttft-penalty-ms",
      default: 18_000,
      meaning:
        "Maximum extra backlog of engines that hold the prompt over the best other engine, in milliseconds; 0 " +
        "removes the bound.",
    }),
    {
      name: "prefill-tokens-per-second",
      default: 15_928,
      range: "1 or more",
      accepts: (value) => value >= 1 && value < Number.POSITIVE_INFINITY,
      meaning:
        "Prefill speed of an engine of weight 1, for the conversion of backlog to milliseconds. The default is " +
        "llm-d's, for a model of 32 billion parameters on two H100.",
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

interface AffinityPickerOptions {
  /** The share of the prompt that a candidate has, 0 to 1. */
  readonly matchShare: Scorer;
  /** A candidate with at least this share counts as holding the prompt. */
  readonly threshold: number;
  /** Milliseconds that the request would wait for others. */
  readonly waitTime: Scorer;
  /**
   * How many milliseconds longer the wait may be at those that hold the prompt than at the best other; 0 means no
   * bound.
   */
  readonly maxPenaltyMs: number;
  /** Costs this close to the lowest count as equal to it. */
  readonly tolerance: number;
}

/**
 * Takes the lowest cost among candidates that hold the prompt. If there are none, or the wait there is too much longer
 * than at the best other, it takes the lowest of all. It narrows the choice like a filter, but after all candidates are
 * scored. So an explanation shows the numbers of all, and what is assumed about a silent candidate does not depend on
 * the narrowing.
 */
function createAffinityPicker(options: AffinityPickerOptions): Picker {
  const { matchShare, threshold, waitTime, maxPenaltyMs, tolerance } = options;
  let shares = new Float64Array(0);
  let timesMs = new Float64Array(0);
  const order: Order = { first: shares, tolerance, second: new Float64Array(0) };

  const judge = (decision: Decision): ChoiceReason => {
    const { costs, eligible, eligibleCount } = decision;
    if (shares.length < costs.length) {
      shares = new Float64Array(costs.length);
      timesMs = new Float64Array(costs.length);
      order.first = new Float64Array(costs.length);
      order.second = new Float64Array(costs.length);
    }
    matchShare.score(decision, shares);
    waitTime.score(decision, timesMs);
    let holders = 0;
    let holdersMs = Number.POSITIVE_INFINITY;
    let othersMs = Number.POSITIVE_INFINITY;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (shares[index]! >= threshold) {
        holders += 1;
        holdersMs = Math.min(holdersMs, timesMs[index]!);
      } else othersMs = Math.min(othersMs, timesMs[index]!);
    }
    const isTooLate = maxPenaltyMs > 0 && holdersMs - othersMs > maxPenaltyMs;
    const narrows = holders > 0 && !isTooLate;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      order.first[index] = narrows && shares[index]! < threshold ? Number.POSITIVE_INFINITY : costs[index]!;
    }
    if (narrows) return "affinity";
    return holders > 0 ? "affinity_too_slow" : "least_load";
  };

  return {
    pick(decision, random, choice) {
      choice.reason = judge(decision);
      choice.index = drawLowest(decision, order, random);
    },
    explain(decision, out) {
      const reason = judge(decision);
      explainLowest(decision, order, out);
      return { reason, terms: { [matchShare.name]: shares.slice(), [waitTime.name]: timesMs.slice() } };
    },
  };
}

interface QueuedPrefillTimeOptions {
  /** Assumed size of a queued request of another client, in tokens. */
  readonly foreignRequestTokens: number;
  /** Prefill rate of an engine of weight 1. */
  readonly tokensPerSecond: number;
}

/**
 * Milliseconds until the candidate has computed the prompts in prefill and in its queue, at the same rate for all
 * engines of a weight. Excludes this request's prompt.
 */
function createQueuedPrefillTime({ foreignRequestTokens, tokensPerSecond }: QueuedPrefillTimeOptions): Scorer {
  const queued = createQueuedPrefill(foreignRequestTokens);
  const msPerToken = 1_000 / tokensPerSecond;
  return {
    name: "queued_prefill_ms",
    score(decision, out) {
      queued.score(decision, out);
      const { eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! * msPerToken;
      }
    },
  };
}
