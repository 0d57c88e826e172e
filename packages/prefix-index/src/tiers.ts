/** Where an engine keeps a block, fastest first. */
export const tierNames = ["gpu", "cpu", "disk", "external"] as const;

export type TierName = (typeof tierNames)[number];

/** A tier as a small number: its index in `tierNames`. */
export const tier = { gpu: 0, cpu: 1, disk: 2, external: 3 } as const;

export type Tier = (typeof tier)[TierName];

/**
 * A block after which the engine of a hybrid model can continue: every cache group has what it needs there. It is kept
 * like a block in a tier of its own, whether or not the block itself is held.
 */
export const resumePoint = 4;

/**
 * Stands for the chunks of a target's external memory, of `blocks` blocks each. It is kept like a block there. A prompt
 * that ends or parts inside a chunk finds nothing of it.
 *
 * @param areFetchedWhole whether the engine fetches nothing where that brings less than a chunk
 */
export const externalChunks = (blocks: number, areFetchedWhole: boolean): Uint32Array =>
  Uint32Array.of(blocks | (areFetchedWhole ? wholeChunks : 0), 0);

/** Bit of an entry of `externalChunks`. */
export const wholeChunks = 0x1_0000;

/** Most blocks of such a chunk. */
export const maxChunkBlocks = 256;

/** What is said of a block: a tier that it is in, or that it is a resume point. */
export type FactKind = Tier | typeof resumePoint;

export const factKinds = [tier.gpu, tier.cpu, tier.disk, tier.external, resumePoint] as const;

/**
 * Stands for the empty prefix, where every engine can begin. A hybrid engine has it as its first resume point, so that
 * one without any other is told from an engine that can continue after every block.
 */
export const emptyPrefix: Uint32Array = new Uint32Array(2);
