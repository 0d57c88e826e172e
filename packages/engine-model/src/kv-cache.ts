import type { HashChain } from "./hash-chain.ts";

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
