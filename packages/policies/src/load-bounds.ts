import type { Decision } from "./decision.ts";
import { weightOf } from "./weights.ts";

/**
 * Writes, by candidate index, how many requests each eligible candidate may have:
 * ceil(loadFactor x (requests in flight + 1) x own share of the weight). As the bounds add up to more than all the
 * requests, somebody is always below theirs (Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads",
 * 2016).
 *
 * @param loads requests by candidate index
 * @param loadFactor at least 1, or 0 for no bound
 */
export function writeLoadBounds(decision: Decision, loads: Float64Array, loadFactor: number, out: Float64Array): void {
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
