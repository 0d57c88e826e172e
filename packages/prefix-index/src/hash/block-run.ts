import type { Hash64 } from "./hash64.ts";

/** The longest block, in bytes: 4,096 tokens. */
export const maxBlockBytes = 16_384;

/**
 * Where a chain starts and where its hashes go, two words for each block, the low one first. The room in `chain` bounds
 * the work: blocks for which there is none are not hashed.
 */
export interface ChainTarget {
  /** The hash of the prefix before the first block: that of the block before it, or the root. */
  readonly parent: Hash64;
  readonly chain: Uint32Array;
}

/** A chain, and room for the digests of the blocks by themselves when they are wanted: as much as in `chain`. */
export interface BlockTarget extends ChainTarget {
  readonly contents?: Uint32Array | undefined;
}

/** Tokens from `start` (0) up to `end` (the length), `blockSize` (1 to 4,096) to a block. */
export interface TokenRun extends BlockTarget {
  readonly tokens: Uint32Array;
  readonly start?: number;
  readonly end?: number;
  readonly blockSize: number;
}

/** Bytes from `start` (0) up to `end` (the length), `blockBytes` (1 to 16,384) to a block. */
export interface ByteRun extends BlockTarget {
  readonly bytes: Uint8Array;
  readonly start?: number;
  readonly end?: number;
  readonly blockBytes: number;
}

/** The UTF-8 of a text, `blockBytes` (1 to 16,384) to a block. A surrogate without its other half counts as U+FFFD. */
export interface TextRun extends BlockTarget {
  readonly text: string;
  readonly blockBytes: number;
}

/** Digests of blocks that are known already, two words each. */
export interface ContentRun extends ChainTarget {
  readonly contents: Uint32Array;
  /** How many of them to mix. */
  readonly blocks: number;
}
