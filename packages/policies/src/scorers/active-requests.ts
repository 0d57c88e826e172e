import type { Scorer } from "../decision.ts";
import { estimateRequests } from "../load.ts";
import { countingWeight } from "../weights.ts";

/** 1 for an engine without requests, 0 for the one with the most for its weight, in between in proportion. */
export const activeRequestScore: Scorer = {
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
