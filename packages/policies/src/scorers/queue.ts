import type { Scorer } from "../decision.ts";
import { fillUnknown, freshSignalMs } from "../signals.ts";
import { countingWeight } from "../weights.ts";

/**
 * 1 for the shortest queue that an engine reports, for its weight, 0 for the longest, in between in proportion; 1 for
 * all when they are equally long, as the Gateway API's queue-scorer has it. Who does not report is taken to have the
 * mean; 0.5 for all when nobody does.
 */
export const queueScore: Scorer = {
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
