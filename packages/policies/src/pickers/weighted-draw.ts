import type { Decision, Picker } from "../decision.ts";
import { weightOf } from "../weights.ts";

/** Takes each candidate with a probability in proportion to its weight, whatever it costs. */
export const weightedDraw: Picker = {
  pick(decision, random, choice) {
    const { candidates, eligible, eligibleCount } = decision;
    let left = random.float() * totalWeight(decision);
    // Rounding may leave a crumb after the last subtraction: the last candidate then stands.
    choice.index = eligible[eligibleCount - 1]!;
    for (let place = 0; place < eligibleCount; place++) {
      left -= weightOf(candidates, eligible[place]!);
      if (left < 0) {
        choice.index = eligible[place]!;
        break;
      }
    }
    choice.reason = "random";
  },
  explain(decision, out) {
    const total = totalWeight(decision);
    for (const index of decision.eligible.subarray(0, decision.eligibleCount)) {
      out[index] = weightOf(decision.candidates, index) / total;
    }
    return { reason: "random" };
  },
};

function totalWeight({ candidates, eligible, eligibleCount }: Decision): number {
  let total = 0;
  for (let place = 0; place < eligibleCount; place++) total += weightOf(candidates, eligible[place]!);
  return total;
}
