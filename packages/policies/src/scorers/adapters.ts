import { adapterState } from "../candidates.ts";
import type { Decision, Scorer } from "../decision.ts";
import { hashString } from "../hash.ts";
import { countingWeight } from "../weights.ts";

/**
 * Cost of each state, in adapter loads. An adapter that must be evicted will have to be loaded again. A candidate where
 * requests wait for the adapter will have loaded it by then.
 */
const loads: Readonly<Record<number, number>> = {
  [adapterState.active]: 0,
  [adapterState.waiting]: 0,
  [adapterState.room]: 1,
  [adapterState.none]: 2,
};

/**
 * Cost of loading the request's LoRA adapter, in prefill tokens per unit of weight. If no candidate has the adapter, it
 * costs nothing at its home, because some candidate must load it.
 *
 * @param loadTokens prompt tokens that an engine computes in the time of one load
 */
export function createAdapterLoad(loadTokens: number): Scorer {
  return createLoadCost("adapter_load_tokens", loadTokens);
}

/** Reading an adapter of usual rank from a local disk and moving it to the GPU. */
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

/** Separates the homes of adapters from other uses of the hash. */
const adapterSeed = 0x5bd1e995;

/**
 * The home of an adapter that no candidate has. Every router gets the same answer, so routers that decide at the same
 * time load it once. It is the highest weighted hash of adapter and candidate (rendezvous hashing: Thaler and
 * Ravishankar 1998) among candidates with an empty slot, or among all if none has one.
 *
 * @returns the index of a candidate; -1 if a candidate has the adapter or requests for it, or the request names no
 * adapter
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

/** Scores of the Gateway API's endpoint picker for each state (`lora-affinity-scorer`). */
const affinities: Readonly<Record<number, number>> = {
  [adapterState.active]: 1,
  [adapterState.room]: 0.8,
  [adapterState.waiting]: 0.6,
  [adapterState.none]: 0,
};

/**
 * 1 where the request's LoRA adapter is loaded, 0.8 where a slot is free for it, 0.6 where requests wait for it, 0
 * elsewhere. Candidates that report nothing get the mean of those that do. An adapter that no candidate has counts as
 * loaded at its home. All get 0.5 if the request names no adapter, or if no candidate reports and nothing has to be
 * loaded.
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
