import type { Decision, Picker, Scorer } from "../decision.ts";
import type { ChoiceReason } from "../policy.ts";
import { fillUnknown } from "../signals.ts";
import { countingWeight } from "../weights.ts";
import { drawLowest, explainLowest, type Order } from "./ordered-draw.ts";

export interface CacheAwarePickerOptions {
  /** The share of the prompt, 0 to 1, that has to be matched by more than this for a match to decide. */
  readonly cacheThreshold: number;
  /** Loads are apart when the highest is above the lowest by more than this many requests per unit of weight ... */
  readonly balanceAbsThreshold: number;
  /** ... and is more than this many times the lowest. */
  readonly balanceRelThreshold: number;
  /** Without a match that decides: the most room in the cache, and not the lowest load. */
  readonly missesToFreeCache: boolean;
  /** The share of the prompt that a candidate has, 0 to 1. */
  readonly matchShare: Scorer;
}

/**
 * The rule of the routers of SGLang and SMG over costs that are loads: the lowest while they are apart, else the longest match,
 * else the lowest again or the most room in the cache, which is where the least is held for the weight. Equals go to the
 * lowest load, then to chance.
 */
export function createCacheAwarePicker(options: CacheAwarePickerOptions): Picker {
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

/** Makes the highest value the lowest, and gives what it was. */
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

/** Writes tokens held per unit of weight; a candidate of which it is unknown is taken to hold the others' mean. */
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
