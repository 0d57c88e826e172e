import type { Hash64 } from "../hash/hash64.ts";

/** Where a run of engine blocks is in an event, and what else identifies its blocks. */
export interface BlockRun {
  readonly tokens: Uint32Array;
  readonly start: number;
  readonly blocks: number;
  readonly keys: readonly (string | undefined)[] | undefined;
  /** Place of the first block's key. */
  readonly firstKey: number;
}

/** Blocks, given by payload, that follow each other below a node. */
export interface PayloadRun {
  /** The node, 0 at the beginning of a prompt. */
  readonly parent: number;
  /** Where chains begin that have no parent. */
  readonly root: Hash64;
  readonly payload: Uint32Array;
  /** Word of the first block's payload. */
  readonly from: number;
  readonly blocks: number;
}

/** Longest run that is worked on at a time, in engine blocks. */
export const maxRunBlocks = 256;

/**
 * Turns tokens into what identifies an engine's block by itself (its payload, which is all that can be known of it
 * while its parent is unknown), and payloads below a node into the chain hashes of the node to come.
 */
export interface ChainBuilder {
  /** Words of a payload. */
  readonly payloadWords: number;
  /** The payloads of the last run read, one after the other. */
  readonly payload: Uint32Array;
  /** Chain hashes; see `chainAt`. */
  readonly chain: Uint32Array;
  read(run: BlockRun): void;
  begin(run: PayloadRun): void;
  /** The word where the chain hashes of the run's block begin, whose parent this is. Blocks are asked for in order. */
  chainAt(block: number, parent: number): number;
  /** The block now has a node, be it a new one or not. */
  placed(block: number, node: number): void;
}
