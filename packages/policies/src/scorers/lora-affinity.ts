import { adapterState } from "../adapter-state.ts";
import type { Scorer } from "../decision.ts";
import { homeOfAdapter } from "./adapter-home.ts";

/** What the endpoint picker of the Gateway API gives for each state (`lora-affinity-scorer`). */
const affinities: Readonly<Record<number, number>> = {
  [adapterState.active]: 1,
  [adapterState.room]: 0.8,
  [adapterState.waiting]: 0.6,
  [adapterState.none]: 0,
};

/**
 * 1 where the LoRA adapter of the request is loaded, 0.8 where there is a slot for it, 0.6 where requests for it wait, 0
 * elsewhere. Who does not tell has the mean of those that do. An adapter that nobody has counts as loaded at its home.
 * For a request without an adapter, and where nobody tells and nothing is to be loaded, all have 0.5.
 */
export const loraAffinityScore: Scorer = {
  name: "lora_affinity",
  score(decision, out) {
    const { candidates, eligible, eligibleCount } = decision;
    const { adapterState: states } = candidates;
    let sum = 0;
    let known = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const affinity = affinities[states[index]!] ?? Number.NaN;
      out[index] = affinity;
      if (Number.isNaN(affinity)) continue;
      sum += affinity;
      known += 1;
    }
    const neutral = known > 0 ? sum / known : 0.5;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (Number.isNaN(out[index]!)) out[index] = neutral;
    }
    const home = homeOfAdapter(decision);
    if (home !== -1) out[home] = affinities[adapterState.active]!;
  },
};
