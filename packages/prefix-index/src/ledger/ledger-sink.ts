import type { Tier } from "../tiers.ts";

/**
 * What becomes of a target's blocks, in order. Hashes are chain hashes of the router's blocks, two words each, low word
 * first; positions are in hashes. The arrays are used again: they mean something during the call only.
 */
export interface LedgerSink {
  /** Blocks that were not in this tier are there now, parents before children. A hole that one of them was is gone. */
  stored(tier: Tier, words: Uint32Array, from: number, to: number): void;
  /** Blocks that were in this tier are no longer. */
  removed(tier: Tier, words: Uint32Array, from: number, to: number): void;
  /**
   * The block at `at` is not in this tier, but some block below it is: a hole. Told when an event has left it behind.
   *
   * @param depthBlocks router blocks before it
   */
  orphaned(tier: Tier, words: Uint32Array, at: number, depthBlocks: number): void;
  /** Nothing below a hole is in this tier any more. */
  holeGone(tier: Tier, words: Uint32Array, at: number): void;
  /** Nothing is left, holes neither. */
  cleared(): void;
}
