/**
 * The KV memory of one engine with its prefix cache, as the scheduler sees it. `Seat` is what one request holds there;
 * only the cache looks inside. Token counts run from the start of the request.
 */
export interface KvCache<Seat, Chain extends HashChain> {
  /** A seat that holds nothing yet. */
  open(chain: Chain): Seat;
  /** Looks up the longest cached prefix of at most `limitTokens` tokens; the seat remembers it for `admit`. */
  match(seat: Seat, limitTokens: number): number;
  /**
   * Takes the matched prefix and slots for the first `tokens` tokens.
   *
   * @param roomTokens nothing is taken unless there is room for so many: the request so far, and what else must fit
   * @param readyTokens how many of the first `tokens` tokens the step will have computed; the others are for later
   * @returns false, with nothing changed, when there is no room
   */
  admit(seat: Seat, tokens: number, roomTokens: number, readyTokens: number): boolean;
  /** Slots for the first `tokens` tokens of an admitted request; false, with nothing changed, when there is no room. */
  grow(seat: Seat, tokens: number): boolean;
  /**
   * For a sequence that decodes: up to how many tokens `grow` would do nothing for this seat, whatever becomes of others.
   */
  idleUpTo(seat: Seat): number;
  /** Whether all that `grow` would do then is to enter a block that the seat holds: it takes none, and cannot fail. */
  entersNext(seat: Seat): boolean;
  /** Ends the planning of a step in which `decodes` sequences decode. */
  planned(decodes: number): void;
  /** Whether planning a step in which so many sequences decode, and none of them grows, would change nothing. */
  isSettled(decodes: number): boolean;
  /** A step computed a part of the prompt, up to `tokens`. */
  computed(seat: Seat, tokens: number): void;
  /**
   * Gives everything back.
   *
   * @param tokens how many tokens are computed
   * @param keep whether what was computed may stay behind for others
   */
  release(seat: Seat, tokens: number, keep: boolean): void;
  /** Forgets all content; false, with nothing changed, when some is held. */
  reset(): boolean;
  /** Blocks that no request holds. */
  freeBlocks(): number;
  /** Blocks with reusable content, held or not. */
  cachedBlocks(): number;
}

/** What a cache must know of one request: the chained hashes of its full blocks, two 32-bit lanes per block. */
export interface HashChain {
  readonly promptTokens: number;
  /** Tokens of the prompt and of the whole output. */
  readonly totalTokens: number;
  /** Lanes of block `i` at `2 i` and `2 i + 1`; valid as far as `hashBlocks` was asked to go. */
  readonly lanes: Uint32Array;
  readonly adapter: string | undefined;
  /** Makes the lanes of the first `blocks` blocks valid. Their tokens must be known. */
  hashBlocks(blocks: number): void;
}

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
