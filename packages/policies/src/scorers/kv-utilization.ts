import type { Scorer } from "../decision.ts";
import { freshSignalMs } from "../signals.ts";

/**
 * The share of the KV blocks that is free, 0 to 1, as an engine reports it. Who does not report is taken to have the
 * mean of those that do; 0.5 for all when nobody does.
 */
export const kvUtilizationScore: Scorer = {
  name: "kv_cache_utilization",
  score({ candidates, eligible, eligibleCount }, out) {
    const { kvUse, signalAgeMs } = candidates;
    let free = 0;
    let known = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const share = signalAgeMs[index]! <= freshSignalMs ? 1 - Math.min(1, Math.max(0, kvUse[index]!)) : Number.NaN;
      out[index] = share;
      if (Number.isNaN(share)) continue;
      free += share;
      known += 1;
    }
    const neutral = known > 0 ? free / known : 0.5;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (Number.isNaN(out[index]!)) out[index] = neutral;
    }
  },
};
