import type { Random } from "@espalier/core";
import type { Decision } from "../decision.ts";
import { hashString } from "../hash.ts";
import { lowestFirst, type Order } from "./near-tie.ts";

export interface PeerLoadOptions {
  /**
   * Number of the policy's first terms that do not depend on the prompt. Their scores, of weight 1, are the candidate's
   * load.
   */
  readonly commonTerms: number;
  /** The peer load in the unit of those scores; 0 if there is none. */
  readonly amountOf: (decision: Decision) => number;
  /** Cost of one point of the tie-breaker between equals, in the same unit. */
  readonly tieCost: number;
}

/** Candidates by index, in the first `count` entries. */
interface Indices {
  readonly indices: Int32Array;
  count: number;
}

/**
 * The estimated load of peers: routers that decide at the same time with the same knowledge. Without it, all would send
 * cold prompts to the same engine until they hear of each other.
 *
 * The model assumes that the work peers have sent and not published yet fills the fleet evenly, as water fills a
 * vessel. Engines below that level count as filled up to it, so none is better for being emptier; cached blocks count
 * as before. Among equals, the picker draws each with a probability in proportion to its distance below a second level:
 * the one to which the peer load fills the equals alone, including requests in flight. If every router does so, no
 * engine is expected to rise above that level, which is the lowest possible (the equilibrium of Wardrop, 1952).
 *
 * In a burst, prompts that are cold from the same block on should meet, whichever routers they arrive at. Every router
 * computes the same order of candidates from the prompt (rendezvous hashing: Thaler and Ravishankar, 1998), and takes
 * the first equal below the level. Prompts without a common prefix have other orders, and so spread.
 *
 * Allocates nothing per decision, except if there are more candidates than ever before.
 */
export class PeerLoad {
  /** Costs with the engines filled up to the level, of the last decision for which `level` returned true. */
  costs = new Float64Array(0);
  readonly #options: PeerLoadOptions;
  /** Load by candidate; for equals including their requests in flight. */
  #heights = new Float64Array(0);
  /** The equals: candidates within the tolerance of the best. */
  #near: Indices = { indices: new Int32Array(0), count: 0 };

  constructor(options: PeerLoadOptions) {
    this.#options = options;
  }

  /** @returns whether there is peer load, or a burst rendezvous */
  level(decision: Decision): boolean {
    const { eligible, eligibleCount } = decision;
    const amount = this.#options.amountOf(decision);
    if (!(amount > 0) && decision.request.coldKey === undefined) return false;
    this.#grow(decision.costs.length);
    const heights = this.#heights;
    for (let place = 0; place < eligibleCount; place++) heights[eligible[place]!] = 0;
    for (let number = 0; number < this.#options.commonTerms; number++) {
      const scores = decision.scores[number]!;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        heights[index] = heights[index]! + scores[index]!;
      }
    }
    const level = waterLevel({ indices: eligible, count: eligibleCount }, heights, amount);
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      this.costs[index] = decision.costs[index]! + Math.max(0, level - heights[index]!);
    }
    return true;
  }

  draw(decision: Decision, order: Order, random: Random): number {
    const level = this.#fillNear(decision, order);
    const near = this.#near;
    if (decision.request.coldKey !== undefined) return this.#rendezvous(decision, level);
    if (this.#keepOwn(decision)) return leastOf(near, order.second, random);
    let chosen = near.indices[0]!;
    let sum = 0;
    for (let place = 0; place < near.count; place++) {
      const index = near.indices[place]!;
      const headroom = level - this.#heights[index]!;
      if (!(headroom > 0)) continue;
      // Replacing the choice with this probability gives every equal its share (reservoir sampling).
      sum += headroom;
      if (random.float() * sum < headroom) chosen = index;
    }
    return chosen;
  }

  /** Writes, by candidate index, the probability that `draw` takes it; `out` must be zeroed. */
  explain(decision: Decision, order: Order, out: Float64Array): void {
    const level = this.#fillNear(decision, order);
    if (decision.request.coldKey !== undefined) {
      out[this.#rendezvous(decision, level)] = 1;
      return;
    }
    const hasOwn = this.#keepOwn(decision);
    const near = this.#near.indices.subarray(0, this.#near.count);
    const least = near.reduce((lowest, index) => Math.min(lowest, order.second[index]!), Number.POSITIVE_INFINITY);
    const shareOf = (index: number): number => {
      if (hasOwn) return order.second[index] === least ? 1 : 0;
      return Math.max(0, level - this.#heights[index]!);
    };
    const sum = near.reduce((total, index) => total + shareOf(index), 0);
    for (const index of near) out[index] = shareOf(index) / sum;
  }

  #grow(length: number): void {
    if (this.#heights.length >= length) return;
    this.#heights = new Float64Array(length);
    this.costs = new Float64Array(length);
    this.#near = { indices: new Int32Array(length), count: 0 };
  }

  /** Finds the equals and the level to which the peer load fills them. */
  #fillNear(decision: Decision, order: Order): number {
    const { eligible, eligibleCount } = decision;
    const limit = lowestFirst(decision, order) + order.tolerance;
    const near = this.#near;
    near.count = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (!(order.first[index]! <= limit)) continue;
      near.indices[near.count++] = index;
      this.#heights[index] = this.#heights[index]! + this.#options.tieCost * order.second[index]!;
    }
    return waterLevel(near, this.#heights, this.#options.amountOf(decision));
  }

  /** The equal below the level with the highest hash of its key and the prompt's cold key. */
  #rendezvous({ candidates, request }: Decision, level: number): number {
    const near = this.#near;
    let chosen = near.indices[0]!;
    let highest = -1;
    for (let place = 0; place < near.count; place++) {
      const index = near.indices[place]!;
      if (this.#heights[index]! > level) continue;
      const hash = hashString(candidates.key[index]!, request.coldKey!);
      if (hash <= highest) continue;
      highest = hash;
      chosen = index;
    }
    return chosen;
  }

  /** Reduces the equals to those of this router, if there are any. @returns whether there are */
  #keepOwn({ candidates }: Decision): boolean {
    const near = this.#near;
    let kept = 0;
    for (let place = 0; place < near.count; place++) {
      const index = near.indices[place]!;
      if (candidates.own[index] === 1) near.indices[kept++] = index;
    }
    if (kept > 0) near.count = kept;
    return kept > 0;
  }
}

/** The candidate with the lowest measure; equal ones with equal probability. */
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
 * The level to which an amount fills candidates of these heights: their distances below it add up to the amount. Uses
 * Newton's method, which ends exactly because the sum is convex and piecewise linear.
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
