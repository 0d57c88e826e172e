import type { Random } from "@espalier/common";
import type { Decision, Scorer } from "../decision.ts";
import { lowestFirst, type Order } from "./ordered-draw.ts";

/**
 * What to expect of routers that decide at the same time with the same knowledge: without more, all would send what is
 * cold to the same engine until they hear of each other. Work that they have sent unseen is expected where it fills the
 * fleet evenly, as water fills a vessel: engines below that level count as filled up to it, so that none of them is better
 * than the others for being emptier, while what a prompt finds in a cache counts as before. Equals are then drawn, each
 * with a probability in proportion to what it is below the level to which the unseen work fills them alone, requests in
 * flight counted in. If every router does so, none is expected to rise above it, which is the lowest level there can be
 * (the equilibrium of Wardrop, 1952).
 */
export interface UnseenWork {
  /** Costs with the engines filled up to the level; of the last decision for which `level` said yes. */
  readonly costs: Float64Array;
  /** @returns whether there is unseen work to think of */
  level(decision: Decision): boolean;
  draw(decision: Decision, order: Order, random: Random): number;
  /** Writes, by candidate index, the probability with which `draw` takes each; `out` comes zeroed. */
  explain(decision: Decision, order: Order, out: Float64Array): void;
}

export interface UnseenWorkOptions {
  /** The part of a cost that does not depend on the prompt, in tokens of prefill. */
  readonly common: readonly Scorer[];
  /** What one point of the tie-breaker is worth between equals, in tokens. */
  readonly tieCost: number;
}

/** Candidates by index, in the first `count` entries. */
interface Indices {
  readonly indices: Int32Array;
  count: number;
}

export function createUnseenWork({ common, tieCost }: UnseenWorkOptions): UnseenWork {
  let heights = new Float64Array(0);
  let scores = new Float64Array(0);
  let costs = new Float64Array(0);
  let near: Indices = { indices: new Int32Array(0), count: 0 };

  const grow = (length: number): void => {
    if (heights.length >= length) return;
    heights = new Float64Array(length);
    scores = new Float64Array(length);
    costs = new Float64Array(length);
    near = { indices: new Int32Array(length), count: 0 };
  };
  /** Finds those that are as good as the best, and the level to which the unseen work fills them. */
  const fillNear = (decision: Decision, order: Order): number => {
    const { eligible, eligibleCount } = decision;
    const limit = lowestFirst(decision, order) + order.tolerance;
    near.count = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (!(order.first[index]! <= limit)) continue;
      near.indices[near.count++] = index;
      heights[index] = heights[index]! + tieCost * order.second[index]!;
    }
    return waterLevel(near, heights, decision.request.unseenTokens ?? 0);
  };
  /** Leaves only those of this router among the equals, where there are any. */
  const keepOwn = ({ candidates }: Decision): boolean => {
    let kept = 0;
    for (let place = 0; place < near.count; place++) {
      const index = near.indices[place]!;
      if (candidates.own[index] === 1) near.indices[kept++] = index;
    }
    if (kept > 0) near.count = kept;
    return kept > 0;
  };
  return {
    get costs() {
      return costs;
    },
    level(decision) {
      const { eligible, eligibleCount, request } = decision;
      const { unseenTokens = 0 } = request;
      if (!(unseenTokens > 0)) return false;
      grow(decision.costs.length);
      for (let place = 0; place < eligibleCount; place++) heights[eligible[place]!] = 0;
      for (const scorer of common) {
        scorer.score(decision, scores);
        for (let place = 0; place < eligibleCount; place++) heights[eligible[place]!]! += scores[eligible[place]!]!;
      }
      const level = waterLevel({ indices: eligible, count: eligibleCount }, heights, unseenTokens);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        costs[index] = decision.costs[index]! + Math.max(0, level - heights[index]!);
      }
      return true;
    },
    draw(decision, order, random) {
      const level = fillNear(decision, order);
      if (keepOwn(decision)) return leastOf(near, order.second, random);
      let chosen = near.indices[0]!;
      let sum = 0;
      for (let place = 0; place < near.count; place++) {
        const index = near.indices[place]!;
        const room = level - heights[index]!;
        if (!(room > 0)) continue;
        // A newcomer that takes over with its share of the room so far leaves everybody with theirs.
        sum += room;
        if (random.float() * sum < room) chosen = index;
      }
      return chosen;
    },
    explain(decision, order, out) {
      const level = fillNear(decision, order);
      if (keepOwn(decision)) {
        const own = near.indices.subarray(0, near.count);
        const least = own.reduce((lowest, index) => Math.min(lowest, order.second[index]!), Number.POSITIVE_INFINITY);
        const best = own.filter((index) => order.second[index] === least);
        for (const index of best) out[index] = 1 / best.length;
        return;
      }
      const chosen = near.indices.subarray(0, near.count);
      const sum = chosen.reduce((total, index) => total + Math.max(0, level - heights[index]!), 0);
      for (const index of chosen) out[index] = Math.max(0, level - heights[index]!) / sum;
    },
  };
}

/** The one of the lowest measure; equal ones with equal probability. */
function leastOf({ indices, count }: Indices, measures: Float64Array, random: Random): number {
  let best = indices[0]!;
  let equals = 1;
  for (let place = 1; place < count; place++) {
    const index = indices[place]!;
    if (measures[index]! > measures[best]!) continue;
    if (measures[index]! < measures[best]!) {
      best = index;
      equals = 1;
    } else if (random.integer(++equals) === 0) best = index;
  }
  return best;
}

/**
 * The level to which an amount fills candidates of these heights: what each is below it adds up to the amount. Found by
 * Newton's method on that sum, which is convex and piecewise linear, so that it ends exactly.
 */
function waterLevel({ indices, count }: Indices, heights: Float64Array, amount: number): number {
  let lowest = Number.POSITIVE_INFINITY;
  for (let place = 0; place < count; place++) lowest = Math.min(lowest, heights[indices[place]!]!);
  let level = lowest + amount;
  for (;;) {
    let sum = 0;
    let filled = 0;
    for (let place = 0; place < count; place++) {
      const height = heights[indices[place]!]!;
      if (height >= level) continue;
      sum += height - lowest;
      filled++;
    }
    const next = lowest + (sum + amount) / Math.max(1, filled);
    if (!(next < level)) return level;
    level = next;
  }
}
