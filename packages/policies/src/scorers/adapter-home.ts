import { adapterState } from "../adapter-state.ts";
import type { Decision } from "../decision.ts";
import { hashString } from "../hash.ts";
import { countingWeight } from "../weights.ts";

/** Sets places of adapters apart from other uses of the hash. */
const adapterSeed = 0x5bd1e995;

/**
 * Where an adapter should be loaded that nobody has: the same candidate whoever asks, so that routers that decide at the
 * same time load it once. The highest of numbers that depend on adapter and candidate alone, by weight (rendezvous
 * hashing: Thaler and Ravishankar 1998), among those with an empty slot, or among all where nobody has one.
 *
 * @returns the index of a candidate; -1 where somebody has the adapter or requests for it, or the request is for none
 */
export function homeOfAdapter({ request, candidates, eligible, eligibleCount }: Decision): number {
  const { adapter } = request;
  if (adapter === undefined) return -1;
  const { adapterState: states, weight, key } = candidates;
  let hasRoom = false;
  for (let place = 0; place < eligibleCount; place++) {
    const state = states[eligible[place]!]!;
    if (state === adapterState.active || state === adapterState.waiting) return -1;
    hasRoom ||= state !== adapterState.none;
  }
  const seed = hashString(adapter, adapterSeed);
  let home = -1;
  let highest = Number.NEGATIVE_INFINITY;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    if (hasRoom && states[index] === adapterState.none) continue;
    const uniform = (hashString(key[index]!, seed) + 0.5) / 0x1_0000_0000;
    const number = countingWeight(weight[index]!) / -Math.log(uniform);
    if (number > highest) {
      home = index;
      highest = number;
    }
  }
  return home;
}
