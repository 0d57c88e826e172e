import type { Picker } from "../decision.ts";

/**
 * Draws two distinct candidates and takes the one of lower cost (Mitzenmacher, "The power of two choices in randomized
 * load balancing", 2001). Which of two equals is drawn first is random already.
 */
export const betterOfTwo: Picker = {
  pick({ eligible, eligibleCount, costs }, random, choice) {
    const first = random.integer(eligibleCount);
    const other = random.integer(eligibleCount - 1);
    const second = other < first ? other : other + 1;
    const one = eligible[first]!;
    const two = eligible[second]!;
    choice.index = costs[two]! < costs[one]! ? two : one;
    choice.reason = "better_of_two";
  },
  explain({ eligible, eligibleCount, costs }, out) {
    const pairs = (eligibleCount * (eligibleCount - 1)) / 2;
    for (let first = 0; first < eligibleCount; first++) {
      const one = eligible[first]!;
      for (let second = 0; second < eligibleCount; second++) {
        const two = eligible[second]!;
        if (one === two) continue;
        // Each pair is met from both sides: the dearer one adds nothing, equals add half each.
        if (costs[one]! < costs[two]!) out[one] = out[one]! + 1 / pairs;
        else if (costs[one] === costs[two]) out[one] = out[one]! + 0.5 / pairs;
      }
    }
    return { reason: "better_of_two" };
  },
};
