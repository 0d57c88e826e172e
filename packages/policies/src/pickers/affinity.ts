import type { Decision, Picker, Scorer } from "../decision.ts";
import type { ChoiceReason } from "../policy.ts";
import { drawLowest, explainLowest, type Order } from "./ordered-draw.ts";

export interface AffinityPickerOptions {
  /** The share of the prompt that a candidate has, 0 to 1. */
  readonly matchShare: Scorer;
  /** From this share on a candidate holds the prompt. */
  readonly threshold: number;
  /** How long the request in hand would wait for others, in milliseconds. */
  readonly waitTime: Scorer;
  /** Milliseconds by which the wait at those that hold the prompt may exceed that at the best other; 0 is without bound. */
  readonly maxPenaltyMs: number;
  /** Costs this close to the lowest count as equal to it. */
  readonly tolerance: number;
}

/**
 * The lowest cost among those that hold the prompt, unless the wait there is too much longer than at the best other, or
 * there is none: then the lowest of all. It narrows the choice as a filter would, but after all have been
 * judged: so everybody's numbers are explained, and what is assumed of a silent candidate does not depend on whom the
 * narrowing leaves.
 */
export function createAffinityPicker(options: AffinityPickerOptions): Picker {
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
