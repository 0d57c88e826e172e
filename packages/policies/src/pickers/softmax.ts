import type { Decision, Picker } from "../decision.ts";
import { createScratch } from "../scratch.ts";
import { weightOf } from "../weights.ts";

/**
 * Draws a candidate with a probability that falls exponentially with its cost, as NVIDIA Dynamo's router does. Costs
 * are measured in the distance between the lowest and the highest, so that a temperature means the same whatever their
 * size: the dearest is exp(1 / temperature) times less likely than the cheapest. Weights multiply the probabilities.
 *
 * @param temperature above 0; near it the lowest cost is taken, far above it everybody is as likely as its weight
 */
export function createSoftmaxPicker(temperature: number): Picker {
  const scratch = createScratch();

  /** Writes what the candidates' probabilities are in proportion to. @returns the sum */
  const judge = (decision: Decision, out: Float64Array): number => {
    const { candidates, costs, eligible, eligibleCount } = decision;
    let lowest = Number.POSITIVE_INFINITY;
    let highest = Number.NEGATIVE_INFINITY;
    for (let place = 0; place < eligibleCount; place++) {
      const cost = costs[eligible[place]!]!;
      if (cost < lowest) lowest = cost;
      if (cost > highest && cost < Number.POSITIVE_INFINITY) highest = cost;
    }
    const scale = highest > lowest ? 1 / ((highest - lowest) * temperature) : 0;
    let sum = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const cost = costs[index]!;
      // What cannot be judged is taken only where nobody can be.
      const isLastResort = cost === Number.POSITIVE_INFINITY && lowest < cost;
      const merit = isLastResort ? 0 : cost === lowest ? 1 : Math.exp((lowest - cost) * scale);
      out[index] = merit * weightOf(candidates, index);
      sum += out[index]!;
    }
    return sum;
  };

  return {
    pick(decision, random, choice) {
      const shares = scratch.of(decision);
      let left = random.float() * judge(decision, shares);
      const { eligible, eligibleCount } = decision;
      // Rounding may leave a crumb after the last subtraction: the last candidate that can be drawn then stands.
      for (let place = 0; place < eligibleCount && left >= 0; place++) {
        const index = eligible[place]!;
        if (!(shares[index]! > 0)) continue;
        choice.index = index;
        left -= shares[index]!;
      }
      choice.reason = "softmax";
    },
    explain(decision, out) {
      const sum = judge(decision, out);
      const { eligible, eligibleCount } = decision;
      for (const index of eligible.subarray(0, eligibleCount)) out[index] = out[index]! / sum;
      return { reason: "softmax" };
    },
  };
}
