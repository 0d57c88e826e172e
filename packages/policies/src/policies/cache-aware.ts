import { composePolicy } from "../compose-policy.ts";
import type { Decision, Picker, Scorer } from "../decision.ts";
import { amount, type PolicyDefinition, share, tierCreditOptions, tierCredits } from "../definition.ts";
import { fillUnknown, presentLoad } from "../load.ts";
import { createMatchShare } from "../match.ts";
import { drawLowest, explainLowest, type Order } from "../pickers/near-tie.ts";
import type { ChoiceReason } from "../policy.ts";
import { countingWeight, weightedOnly } from "../weights.ts";

/**
 * The rule of lightseekorg/smg at 73da68ca (2026-08-07), model_gateway/src/policies/cache_aware.rs, with the defaults
 * of its flags (model_gateway/src/main.rs). It comes from the router of SGLang, which does the same since
 * sgl-project/sglang@b93974f1, sgl-model-gateway/src/policies/cache_aware.rs. Before that, as of version 0.4, SGLang
 * sent a prompt that no cache has to the emptiest cache. SMG's triggers by KV use are off by default and left out.
 */
export const cacheAware: PolicyDefinition = {
  summary:
    "While loads are imbalanced: fewest requests in flight. Otherwise: the longest cached prefix, if above " +
    "`cache-threshold`. Without such a match: fewest requests in flight, or, as in older versions, the emptiest " +
    "cache.",
  source: "SGLang's router and SMG; the first three options are named like their flags",
  readsPrefixes: true,
  options: [
    share({
      name: "cache-threshold",
      default: 0.3,
      meaning: "Share of the prompt that a match must exceed to decide.",
    }),
    amount({
      name: "balance-abs-threshold",
      default: 64,
      meaning:
        "Loads are imbalanced if the highest exceeds the lowest by more than this many requests in flight, at weight " +
        "1,",
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
        "Target of a prompt without a match: 1 for the emptiest cache, as in SGLang 0.4; 0 for the fewest requests " +
        "in flight.",
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

interface CacheAwarePickerOptions {
  /** A match decides if it covers more than this share of the prompt, 0 to 1. */
  readonly cacheThreshold: number;
  /** Loads are apart if the highest exceeds the lowest by more than this many requests per unit of weight ... */
  readonly balanceAbsThreshold: number;
  /** ... and is more than this many times the lowest. */
  readonly balanceRelThreshold: number;
  /** If no match decides: take the emptiest cache instead of the lowest load. */
  readonly missesToFreeCache: boolean;
  /** The share of the prompt that a candidate has, 0 to 1. */
  readonly matchShare: Scorer;
}

/**
 * The rule of the routers of SGLang and SMG, over costs that are loads. While loads are apart it takes the lowest.
 * Otherwise it takes the longest match, and without one the lowest load or the emptiest cache (fewest tokens held per
 * unit of weight). The lowest load breaks ties, then chance.
 */
function createCacheAwarePicker(options: CacheAwarePickerOptions): Picker {
  const { cacheThreshold, missesToFreeCache, matchShare } = options;
  let shares = new Float64Array(0);
  let held = new Float64Array(0);
  const order: Order = { first: shares, tolerance: 0, second: shares };

  const judge = (decision: Decision): ChoiceReason => {
    if (shares.length < decision.costs.length) {
      shares = new Float64Array(decision.costs.length);
      held = new Float64Array(decision.costs.length);
    }
    order.second = decision.costs;
    order.first = decision.costs;
    if (isImbalanced(decision, options)) return "imbalanced";
    order.first = shares;
    matchShare.score(decision, shares);
    if (turnSigns(decision, shares) > cacheThreshold) return "prefix_match";
    order.first = decision.costs;
    if (!missesToFreeCache) return "no_match";
    order.first = held;
    measureHeld(decision, held);
    return "most_free_cache";
  };

  return {
    pick(decision, random, choice) {
      choice.reason = judge(decision);
      choice.index = drawLowest(decision, order, random);
    },
    explain(decision, out) {
      const reason = judge(decision);
      explainLowest(decision, order, out);
      matchShare.score(decision, shares);
      measureHeld(decision, held);
      return { reason, terms: { match_share: shares.slice(), held_tokens: held.slice() } };
    },
  };
}

function isImbalanced(
  { eligible, eligibleCount, costs }: Decision,
  { balanceAbsThreshold, balanceRelThreshold }: CacheAwarePickerOptions,
): boolean {
  let lowest = Number.POSITIVE_INFINITY;
  let highest = 0;
  for (let place = 0; place < eligibleCount; place++) {
    const load = costs[eligible[place]!]!;
    if (load < lowest) lowest = load;
    if (load > highest) highest = load;
  }
  return highest - lowest > balanceAbsThreshold && highest > balanceRelThreshold * lowest;
}

/** Negates the values, so that the highest is the lowest. @returns the highest value */
function turnSigns({ eligible, eligibleCount }: Decision, values: Float64Array): number {
  let highest = 0;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    const value = values[index]!;
    if (value > highest) highest = value;
    values[index] = -value;
  }
  return highest;
}

/** Writes tokens held per unit of weight. Candidates whose tokens are unknown get the mean of the others. */
function measureHeld(decision: Decision, out: Float64Array): void {
  const { candidates, eligible, eligibleCount } = decision;
  const { weight, heldTokens } = candidates;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    out[index] = heldTokens[index]!;
  }
  fillUnknown(decision, out);
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    out[index] = out[index]! / countingWeight(weight[index]!);
  }
}
