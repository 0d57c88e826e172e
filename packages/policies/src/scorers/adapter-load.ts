import { adapterState } from "../adapter-state.ts";
import type { Scorer } from "../decision.ts";
import { countingWeight } from "../weights.ts";
import { homeOfAdapter } from "./adapter-home.ts";

/**
 * What each state costs, in loads of an adapter: where one has to be given up, it will have to be loaded again. A
 * candidate where requests for the adapter wait will have loaded it by then.
 */
const loads: Readonly<Record<number, number>> = {
  [adapterState.active]: 0,
  [adapterState.waiting]: 0,
  [adapterState.room]: 1,
  [adapterState.none]: 2,
};

/**
 * What loading the LoRA adapter of the request costs, in tokens of prefill, per unit of weight; nothing at the home of one
 * that nobody has, since that one has to be loaded somewhere.
 *
 * @param loadTokens prompt tokens that an engine computes in the time of one load
 */
export function createAdapterLoad(loadTokens: number): Scorer {
  return createLoadCost("adapter_load_tokens", loadTokens);
}

/** Reading the weights of an adapter of usual rank from a local disk, and moving them to the GPU. */
const loadMs = 128;

/** The same in milliseconds. */
export function createAdapterLoadMs(): Scorer {
  return createLoadCost("adapter_load_ms", loadMs);
}

function createLoadCost(name: string, unit: number): Scorer {
  return {
    name,
    score(decision, out) {
      const { request, candidates, eligible, eligibleCount } = decision;
      const { adapterState: states, weight } = candidates;
      const isForAdapter = request.adapter !== undefined;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const cost = isForAdapter ? (loads[states[index]!] ?? 1) : 0;
        out[index] = (cost * unit) / countingWeight(weight[index]!);
      }
      const home = homeOfAdapter(decision);
      if (home !== -1) out[home] = 0;
    },
  };
}
