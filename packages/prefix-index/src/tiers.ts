/** Where an engine keeps a block, fastest first. */
export const tierNames = ["gpu", "cpu", "disk", "external"] as const;

export type TierName = (typeof tierNames)[number];

/** A tier as a small number: its index in `tierNames`. */
export const tier = { gpu: 0, cpu: 1, disk: 2, external: 3 } as const;

export type Tier = (typeof tier)[TierName];
