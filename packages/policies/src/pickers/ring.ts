import type { Decision, Picker } from "../decision.ts";
import { hashString } from "../hash.ts";
import { estimateRequests } from "../load.ts";
import { weightOf } from "../weights.ts";
import { createHashRing } from "./hash-ring.ts";
import { createLeastCostPicker } from "./least-cost.ts";

export interface RingPickerOptions {
  /** Points on the ring of a candidate of weight 1. */
  readonly pointsPerWeight: number;
  /** How far above its even share of the requests a candidate may go; 0 removes the bound. */
  readonly loadFactor: number;
}

/** Keeps the seeds of session keys apart from those of ring points, which count from 0. */
const sessionSeed = 0x5e551047;

/**
 * Hashes the session key to a ring and walks clockwise past candidates that are at their bound of
 * ceil(loadFactor x (requests in flight + 1) x own share of the weight) requests (Mirrokni, Thorup, Zadimoghaddam,
 * "Consistent hashing with bounded loads", 2016). Without a session key it takes the lowest cost.
 */
export function createRingPicker({ pointsPerWeight, loadFactor }: RingPickerOptions): Picker {
  const ring = createHashRing(pointsPerWeight);
  const withoutKey = createLeastCostPicker("no_session_key");
  let loads = new Float64Array(0);
  let bounds = new Float64Array(0);

  const enter = (decision: Decision): void => {
    if (loads.length < decision.costs.length) {
      loads = new Float64Array(decision.costs.length);
      bounds = new Float64Array(decision.costs.length);
    }
    ring.enter(decision);
    estimateRequests(decision, loads);
    writeBounds(decision, loads, loadFactor, bounds);
  };
  /** The bounds add up to more than all the load, so somebody is always below theirs. */
  const walk = (key: string): { readonly home: number; readonly end: number } => {
    let position = ring.seek(hashString(key, sessionSeed));
    found.home = -1;
    for (let step = 0; step < ring.size; step++) {
      const index = ring.candidateAt(position);
      position = position + 1 === ring.size ? 0 : position + 1;
      if (index === -1) continue;
      if (found.home === -1) found.home = index;
      found.end = index;
      if (loads[index]! < bounds[index]!) break;
    }
    return found;
  };
  const found = { home: -1, end: -1 };

  return {
    pick(decision, random, choice) {
      const key = decision.request.sessionKey;
      if (!key) {
        withoutKey.pick(decision, random, choice);
        return;
      }
      enter(decision);
      const { home, end } = walk(key);
      choice.index = end;
      choice.reason = end === home ? "hash" : "hash_overflow";
    },
    explain(decision, out) {
      const key = decision.request.sessionKey;
      if (!key) return withoutKey.explain(decision, out);
      enter(decision);
      const { home, end } = walk(key);
      out[end] = 1;
      const order = new Float64Array(decision.candidates.count).fill(Number.NaN);
      let met = 0;
      const start = ring.seek(hashString(key, sessionSeed));
      for (let step = 0; step < ring.size; step++) {
        const index = ring.candidateAt((start + step) % ring.size);
        if (index !== -1 && Number.isNaN(order[index]!)) order[index] = met++;
      }
      return {
        reason: end === home ? "hash" : "hash_overflow",
        terms: { load: loads.slice(), load_bound: bounds.slice(), walk_order: order },
      };
    },
  };
}

function writeBounds(decision: Decision, loads: Float64Array, loadFactor: number, out: Float64Array): void {
  const { candidates, eligible, eligibleCount } = decision;
  let totalLoad = 0;
  let totalWeight = 0;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    totalLoad += loads[index]!;
    totalWeight += weightOf(candidates, index);
  }
  const boundPerWeight = (loadFactor * (totalLoad + 1)) / totalWeight;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    out[index] = loadFactor === 0 ? Number.POSITIVE_INFINITY : Math.ceil(boundPerWeight * weightOf(candidates, index));
  }
}
