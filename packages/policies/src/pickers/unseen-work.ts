import type { Random } from "@espalier/common";
import type { Decision, Scorer } from "../decision.ts";
import { drawLowest, explainLowest, lowestFirst, type Order } from "./ordered-draw.ts";

/**
 * What to expect of routers that decide at the same time with the same knowledge: without more, all would send what is
 * cold to the same engine until they hear of each other. Work that they have sent unseen is expected where it fills the
 * fleet evenly, as water fills a vessel: engines below that level count as filled up to it, so that none of them is better
 * than the others for being emptier, while what a prompt finds in a cache counts as before. Between equals each is drawn
 * with a probability in proportion to what it is below the level. If every router does so, none is expected to rise above
 * it, which is the lowest level there can be (the equilibrium of Wardrop, 1952).
 */
export interface UnseenWork {
  /** Costs with the engines filled up to the level; of the last decision for which `level` said yes. */
  readonly costs: Float64Array;
  /**
   * @param ties scores of the tie-breaker
   * @returns whether there is unseen work to think of
   */
  level(decision: Decision, ties: Float64Array): boolean;
  draw(decision: Decision, order: Order, random: Random): number;
  /** Writes, by candidate index, the probability with which `draw` takes each; `out` comes zeroed. */
  explain(decision: Decision, order: Order, out: Float64Array): void;
}

export interface UnseenWorkOptions {
  /** The part of a cost that does not depend on the prompt, in tokens of prefill. */
  readonly common: readonly Scorer[];
  /** What one point of the tie-breaker is worth, in tokens. */
  readonly tieCost: number;
}

export function createUnseenWork({ common, tieCost }: UnseenWorkOptions): UnseenWork {
  let heights = new Float64Array(0);
  let scores = new Float64Array(0);
  /** What each candidate is below the level; 0 for those above. */
  let room = new Float64Array(0);
  let costs = new Float64Array(0);

  const measure = (decision: Decision, ties: Float64Array): void => {
    const { eligible, eligibleCount } = decision;
    for (let place = 0; place < eligibleCount; place++) heights[eligible[place]!] = tieCost * ties[eligible[place]!]!;
    for (const scorer of common) {
      scorer.score(decision, scores);
      for (let place = 0; place < eligibleCount; place++) heights[eligible[place]!]! += scores[eligible[place]!]!;
    }
  };
  return {
    get costs() {
      return costs;
    },
    level(decision, ties) {
      const { unseenTokens = 0 } = decision.request;
      if (!(unseenTokens > 0)) return false;
      const { length } = decision.costs;
      if (heights.length < length) {
        heights = new Float64Array(length);
        scores = new Float64Array(length);
        room = new Float64Array(length);
        costs = new Float64Array(length);
      }
      measure(decision, ties);
      const level = waterLevel(decision, heights, unseenTokens);
      const { eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        room[index] = Math.max(0, level - heights[index]!);
        costs[index] = decision.costs[index]! + room[index]! + tieCost * ties[index]!;
      }
      return true;
    },
    draw(decision, order, random) {
      const { eligible, eligibleCount } = decision;
      const limit = lowestFirst(decision, order) + order.tolerance;
      let chosen = -1;
      let sum = 0;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        if (order.first[index]! > limit || room[index] === 0) continue;
        // A newcomer that takes over with its share of the room so far leaves everybody with theirs.
        sum += room[index]!;
        if (random.float() * sum < room[index]!) chosen = index;
      }
      return chosen >= 0 ? chosen : drawLowest(decision, order, random);
    },
    explain(decision, order, out) {
      const limit = lowestFirst(decision, order) + order.tolerance;
      const near = decision.eligible.subarray(0, decision.eligibleCount).filter((index) => order.first[index]! <= limit);
      const sum = near.reduce((total, index) => total + room[index]!, 0);
      if (sum === 0) explainLowest(decision, order, out);
      else for (const index of near) out[index] = room[index]! / sum;
    },
  };
}

/**
 * The level to which an amount fills candidates of these heights: what each is below it adds up to the amount. Found by
 * Newton's method on that sum, which is convex and piecewise linear, so that it ends exactly.
 */
function waterLevel(decision: Decision, heights: Float64Array, amount: number): number {
  const { eligible, eligibleCount } = decision;
  let lowest = Number.POSITIVE_INFINITY;
  for (let place = 0; place < eligibleCount; place++) lowest = Math.min(lowest, heights[eligible[place]!]!);
  let level = lowest + amount;
  for (;;) {
    let sum = 0;
    let count = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const height = heights[eligible[place]!]!;
      if (height >= level) continue;
      sum += height - lowest;
      count++;
    }
    const next = lowest + (sum + amount) / Math.max(1, count);
    if (!(next < level)) return level;
    level = next;
  }
}
