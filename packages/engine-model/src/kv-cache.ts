import type { TokenRange } from "./kv-pull.ts";

/**
 * The KV memory of one engine with its prefix cache, as the scheduler sees it. `Allocation` is the memory of one request;
 * only the cache looks inside. Token counts run from the start of the request.
 */
export interface KvCache<Allocation, Chain extends HashChain> {
  /** An empty allocation. */
  open(chain: Chain): Allocation;
  /** Finds the longest cached prefix of at most `limitTokens` tokens; the allocation keeps the result for `admit`. */
  match(allocation: Allocation, limitTokens: number): number;
  /**
   * How far the prefix that `match` found goes on in memory behind the KV memory, from where it would be loaded. The
   * allocation keeps the result for `admit` and `load`.
   *
   * @returns the end in tokens; `matchedTokens` when nothing would be loaded
   */
  reach(allocation: Allocation, matchedTokens: number, knownTokens: number): number;
  /** Whether the part that `reach` found is on its way for another request, which this one has to wait for. */
  isLoading(allocation: Allocation, matchedTokens: number, toTokens: number): boolean;
  /** Begins to load what `reach` found, for an admitted request. Returns when it arrives. */
  load(allocation: Allocation, range: TokenRange, nowMs: number): number;
  /** It has arrived. */
  loaded(allocation: Allocation): void;
  /**
   * Takes the matched prefix and slots for the first `tokens` tokens.
   *
   * @param requiredTokens capacity that must be available: the request so far, and what else must fit
   * @param readyTokens how many of the first `tokens` tokens the step will have computed; the others are for later
   * @returns false, with nothing changed, when memory is short
   */
  admit(allocation: Allocation, tokens: number, requiredTokens: number, readyTokens: number): boolean;
  /** Slots for the first `tokens` tokens of an admitted request; false, with nothing changed, when memory is short. */
  grow(allocation: Allocation, tokens: number): boolean;
  /**
   * For a decoding sequence: the number of tokens up to which `grow` does nothing for this allocation, regardless of
   * other requests.
   */
  idleUpTo(allocation: Allocation): number;
  /** Whether `grow` would then only index a block of the allocation: it takes no block, and cannot fail. */
  entersNext(allocation: Allocation): boolean;
  /** Ends the planning of a step in which `decodes` sequences decode. */
  planned(decodes: number): void;
  /** Whether planning a step with `decodes` decoding sequences that do not grow would change nothing. */
  isSettled(decodes: number): boolean;
  /** A step computed the prompt up to `tokens`. */
  computed(allocation: Allocation, tokens: number): void;
  /**
   * Frees the allocation.
   *
   * @param tokens how many tokens are computed
   * @param keep whether computed content stays cached
   */
  release(allocation: Allocation, tokens: number, keep: boolean): void;
  /** Clears the cache; false, with nothing changed, while requests use blocks. */
  reset(): boolean;
  /** Blocks that no request uses. */
  freeBlocks(): number;
  /** Blocks with reusable content, in use or free. */
  cachedBlocks(): number;
  /** Blocks in memory behind the KV memory. */
  cpuBlocks(): number;
}

/** One request as the cache sees it: the chained hashes of its full blocks, two 32-bit words per block. */
export interface HashChain {
  readonly promptTokens: number;
  /** Tokens of the prompt and of the whole output. */
  readonly totalTokens: number;
  /** Words of block `i` at `2 i` and `2 i + 1`; valid for the blocks that `hashBlocks` has covered. */
  readonly hashes: Uint32Array;
  readonly adapter: string | undefined;
  /** Computes the hashes of the first `blocks` blocks. Their tokens must be known. */
  hashBlocks(blocks: number): void;
}

/** Blocks of one group of a hybrid model. */
export interface GroupPositions {
  /** The group with full attention comes after the others. */
  readonly group: number;
  readonly kept: readonly number[];
}

/** Receives the blocks that a cache stores and evicts. */
export interface CacheLog<Chain extends HashChain> {
  /** Whether every copy of a block is logged, or only the first one stored and the last one removed. */
  readonly everyCopy: boolean;
  /**
   * Blocks `from` to `to` (exclusive) of a chain became reusable.
   *
   * @param only which of them, in a group of a hybrid model
   */
  stored(chain: Chain, from: number, to: number, only?: GroupPositions): void;
  /** Evicted content: hashes of two words each. The caller reuses the array. */
  removed(hashes: Uint32Array, adapter: string | undefined, group?: number): void;
  cleared(): void;
  /**
   * Consecutive blocks were copied to CPU memory together: hashes of two words each. The caller reuses the array.
   *
   * @param chain and `from`: where they are from; undefined for blocks that are in KV memory
   */
  offloaded(hashes: Uint32Array, chain?: Chain, from?: number): void;
  /** Content was evicted from CPU memory: hashes of two words each. The caller reuses the array. */
  discarded(hashes: Uint32Array): void;
}

/** Logs nothing. */
export const silentLog: CacheLog<HashChain> = {
  everyCopy: false,
  stored() {},
  removed() {},
  cleared() {},
  offloaded() {},
  discarded() {},
};
