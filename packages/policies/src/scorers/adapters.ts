import { adapterState } from "../candidates.ts";
import type { Decision, Scorer } from "../decision.ts";
import { hashString } from "../hash.ts";
import { countingWeight } from "../weights.ts";

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

/** Sets places of adapters apart from other uses of the hash. */
const adapterSeed = 0x5bd1e995;

/**
 * Where an adapter should be loaded that nobody has: the same candidate whoever asks, so that routers that decide at the
 * same time load it once. The highest of numbers that depend on adapter and candidate alone, by weight (rendezvous
 * hashing: Thaler and Ravishankar 1998), among those with an empty slot, or among all where nobody has one.
 *
 * @returns the index of a candidate; -1 where somebody has the adapter or requests for it, or the request is for none
 */
function homeOfAdapter({ request, candidates, eligible, eligibleCount }: Decision): number {
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
