import type { CandidateSet } from "./candidates.ts";
import type { Filter } from "./decision.ts";

/** Leaves out candidates of weight 0. */
export const weightedOnly: Filter = {
  name: "weighted_only",
  keep({ candidates, eligible, eligibleCount }) {
    let kept = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (candidates.weight[index]! > 0) eligible[kept++] = index;
    }
    return kept;
  },
};

/** The candidate's weight; 1 if only candidates without a weight are left, so that they count equally. */
export function weightOf(candidates: CandidateSet, index: number): number {
  return countingWeight(candidates.weight[index]!);
}

/** The same for loops that already have the column of weights. */
export function countingWeight(weight: number): number {
  return weight > 0 ? weight : 1;
}
