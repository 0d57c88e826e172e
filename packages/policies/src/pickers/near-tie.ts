import type { Random } from "@espalier/core";
import type { Decision, Picker, Scorer } from "../decision.ts";
import type { ChoiceReason } from "../policy.ts";
import { countingWeight, weightOf } from "../weights.ts";
import type { PeerLoad } from "./peer-load.ts";

interface NearTiePickerOptions {
  readonly reason: ChoiceReason;
  /** Costs this close to the lowest count as equal to it. */
  readonly tolerance: number;
  /** Its lowest score decides between equals. Without it, or if it leaves equals, a draw by weight decides. */
  readonly tieBreaker?: Scorer;
  /** Estimated load of routers that decide at the same time; none if absent. */
  readonly peers?: PeerLoad;
}

/** Takes the lowest cost. Among costs within the tolerance, the tie-breaker decides. */
export function createNearTiePicker({ reason, tolerance, tieBreaker, peers }: NearTiePickerOptions): Picker {
  const order: Order = { first: new Float64Array(0), tolerance, second: new Float64Array(0) };

  const judge = (decision: Decision): Order => {
    order.first = decision.costs;
    if (order.second.length < decision.costs.length) order.second = new Float64Array(decision.costs.length);
    tieBreaker?.score(decision, order.second);
    if (peers?.level(decision)) order.first = peers.costs;
    return order;
  };
  const draw = (decision: Decision, random: Random): number => {
    judge(decision);
    return order.first === decision.costs ? drawLowest(decision, order, random) : peers!.draw(decision, order, random);
  };

  return {
    pick(decision, random, choice) {
      choice.index = draw(decision, random);
      choice.reason = reason;
    },
    explain(decision, out) {
      judge(decision);
      if (order.first === decision.costs) explainLowest(decision, order, out);
      else peers?.explain(decision, order, out);
      return tieBreaker === undefined ? { reason } : { reason, terms: { [tieBreaker.name]: order.second.slice() } };
    },
  };
}

/** Two measures by candidate index, lower is better. The second breaks ties of the first. */
export interface Order {
  first: Float64Array;
  /** How far above the lowest first measure still counts as equal. */
  tolerance: number;
  second: Float64Array;
}

/** Takes the lowest of an order; draws among equals in proportion to their weights. */
export function drawLowest(decision: Decision, order: Order, random: Random): number {
  const { candidates, eligible, eligibleCount } = decision;
  const { weight } = candidates;
  const { first, second } = order;
  const limit = lowestFirst(decision, order) + order.tolerance;
  let best = -1;
  let least = Number.POSITIVE_INFINITY;
  let weights = 0;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    if (first[index]! > limit) continue;
    const measure = second[index]!;
    if (best !== -1 && measure > least) continue;
    const share = countingWeight(weight[index]!);
    if (best === -1 || measure < least) {
      best = index;
      least = measure;
      weights = share;
      continue;
    }
    // Replacing the choice with this probability gives every candidate its share (reservoir sampling).
    weights += share;
    if (random.float() * weights < share) best = index;
  }
  return best;
}

/** Writes, by candidate index, the probability that `drawLowest` takes it; `out` must be zeroed. */
export function explainLowest(decision: Decision, order: Order, out: Float64Array): void {
  const limit = lowestFirst(decision, order) + order.tolerance;
  const near = decision.eligible.subarray(0, decision.eligibleCount).filter((index) => order.first[index]! <= limit);
  const least = near.reduce((lowest, index) => Math.min(lowest, order.second[index]!), Number.POSITIVE_INFINITY);
  const best = near.filter((index) => order.second[index]! <= least);
  const weights = best.reduce((sum, index) => sum + weightOf(decision.candidates, index), 0);
  for (const index of best) out[index] = weightOf(decision.candidates, index) / weights;
}

/** The lowest first measure of the eligible candidates. */
export function lowestFirst({ eligible, eligibleCount }: Decision, { first }: Order): number {
  let lowest = Number.POSITIVE_INFINITY;
  for (let place = 0; place < eligibleCount; place++) {
    const measure = first[eligible[place]!]!;
    if (measure < lowest) lowest = measure;
  }
  return lowest;
}
