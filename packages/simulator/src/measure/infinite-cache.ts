import { blockTokens, type SimRequest } from "../clients/workload.ts";
import { mixWords, slotOf } from "./chain-hash.ts";
import { reusableBlocks } from "./reusable-blocks.ts";

/** Distinct blocks that a cache without eviction holds at most: 0.8 GB of them. */
export const maxInfiniteBlocks = 50_000_000;

const firstSlots = 65_536;
/** Used slots at most; linear probing then looks at eight or nine of them for what is absent, within two cache lines. */
const maxFill = 0.75;
/** A new table beside the old one needs 24 bytes a block, a larger step would need more. */
const growth = 1.25;

/** A cache that never evicts and that all engines share. */
export interface InfiniteCache {
  readonly blocks: number;
  /** False when there were more blocks than it may hold: what it finds is then no bound any more. */
  readonly isComplete: boolean;
  /**
   * Looks a request up and then puts its blocks in, those of its answer as well.
   *
   * @returns prompt tokens found, whole blocks from the beginning; never the last token of the prompt, which an engine
   * always computes
   */
  add(request: SimRequest): number;
}

/**
 * A set of chain hashes, 8 bytes a slot. Every chain that is put in is put in whole, so if a block is there, all before
 * it are: the first that is missing is found by bisection. A hash of 0 marks a free slot, and stands for a hash of 1.
 *
 * @param options.maxBlocks distinct blocks it may hold
 */
export function createInfiniteCache({ maxBlocks = maxInfiniteBlocks } = {}): InfiniteCache {
  let slots = firstSlots;
  let words = new Uint32Array(2 * slots);
  let used = 0;
  let isComplete = true;

  /** The slot of a hash, or the free one where it belongs. */
  const find = (low: number, high: number): number => {
    let slot = slotOf(mixWords(low, high), slots);
    for (;;) {
      const at = 2 * slot;
      const storedLow = words[at]!;
      const storedHigh = words[at + 1]!;
      if ((storedLow === low && storedHigh === high) || (storedLow === 0 && storedHigh === 0)) return slot;
      if (++slot === slots) slot = 0;
    }
  };

  const grow = (): void => {
    const old = words;
    slots = Math.ceil(slots * growth);
    words = new Uint32Array(2 * slots);
    for (let at = 0; at < old.length; at += 2) {
      const low = old[at]!;
      const high = old[at + 1]!;
      if (low === 0 && high === 0) continue;
      const slot = find(low, high);
      words[2 * slot] = low;
      words[2 * slot + 1] = high;
    }
  };

  const lowWord = (chain: Uint32Array, block: number): number => {
    const low = chain[2 * block]!;
    return low === 0 && chain[2 * block + 1] === 0 ? 1 : low;
  };

  const has = (chain: Uint32Array, block: number): boolean => {
    const at = 2 * find(lowWord(chain, block), chain[2 * block + 1]!);
    return words[at] !== 0 || words[at + 1] !== 0;
  };

  const firstMissing = (chain: Uint32Array, blocks: number): number => {
    let low = 0;
    let high = blocks;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (has(chain, middle)) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  return {
    get blocks() {
      return used;
    },
    get isComplete() {
      return isComplete;
    },
    add(request) {
      const { chain } = request;
      const blocks = chain.length >>> 1;
      const known = firstMissing(chain, blocks);
      for (let block = known; block < blocks; block++) {
        if (used >= maxBlocks) {
          isComplete = false;
          break;
        }
        if (used + 1 > maxFill * slots) grow();
        const low = lowWord(chain, block);
        const high = chain[2 * block + 1]!;
        const slot = find(low, high);
        words[2 * slot] = low;
        words[2 * slot + 1] = high;
        used++;
      }
      return blockTokens * Math.min(known, reusableBlocks(request));
    },
  };
}
