import type { Random } from "@espalier/core";
import type { Decision, Picker } from "../decision.ts";
import type { ChoiceReason } from "../policy.ts";

/** Takes the lowest cost; equal ones with equal probability. */
export function createLeastCostPicker(reason: ChoiceReason = "least_load"): Picker {
  return {
    pick(decision, random, choice) {
      choice.index = leastCost(decision, random);
      choice.reason = reason;
    },
    explain({ eligible, eligibleCount, costs }, out) {
      const places = eligible.subarray(0, eligibleCount);
      const least = places.reduce((lowest, index) => Math.min(lowest, costs[index]!), Number.POSITIVE_INFINITY);
      const best = places.filter((index) => costs[index] === least);
      for (const index of best) out[index] = 1 / best.length;
      return { reason };
    },
  };
}

/**
 * One pass: the k-th of equal costs replaces the current choice with probability 1/k, which makes all equally likely.
 */
function leastCost({ eligible, eligibleCount, costs }: Decision, random: Random): number {
  let best = eligible[0]!;
  let least = costs[best]!;
  let equals = 1;
  for (let place = 1; place < eligibleCount; place++) {
    const index = eligible[place]!;
    const cost = costs[index]!;
    if (cost > least) continue;
    if (cost < least) {
      best = index;
      least = cost;
      equals = 1;
    } else if (random.integer(++equals) === 0) {
      best = index;
    }
  }
  return best;
}
