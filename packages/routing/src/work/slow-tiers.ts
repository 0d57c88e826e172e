/** Where blocks of a prompt may be instead of in the GPU's memory. */
export const slowTiers = ["cpu", "disk", "external"] as const;

export type SlowTier = (typeof slowTiers)[number];

/** Tokens of a prompt that an engine has to bring back from each. */
export type FetchedTokens = Readonly<Record<SlowTier, number>>;
