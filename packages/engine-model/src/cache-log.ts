import type { HashChain } from "./hash-chain.ts";

/** What a cache tells of the blocks that come and go in it. */
export interface CacheLog<Chain extends HashChain> {
  /** Whether every copy of a block is to be told of, or only the first one that comes and the last one that goes. */
  readonly everyCopy: boolean;
  /** Blocks `from` to `to` (exclusive) of a chain became reusable. */
  stored(chain: Chain, from: number, to: number): void;
  /** Content was given up: pairs of lanes. The array is used again by the caller. */
  removed(lanes: Uint32Array, adapter: string | undefined): void;
  cleared(): void;
  /** Content that is about to be given up is in CPU memory now: one pair of lanes, which the caller uses again. */
  offloaded(lanes: Uint32Array): void;
  /** Content is in CPU memory no more: one pair of lanes, which the caller uses again. */
  discarded(lanes: Uint32Array): void;
}

/** A log for an observer that does not listen. */
export const silentLog: CacheLog<HashChain> = {
  everyCopy: false,
  stored() {},
  removed() {},
  cleared() {},
  offloaded() {},
  discarded() {},
};
