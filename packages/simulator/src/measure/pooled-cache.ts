import { blockTokens, type SimRequest } from "../clients/workload.ts";
import { firstNotHeld } from "./bisect.ts";
import { mixWords, slotOf } from "./chain-hash.ts";
import { reusableBlocks } from "./reusable-blocks.ts";

/** Blocks that a pooled cache holds at most, whatever the fleet: 0.8 GB of them in long chains. */
const maxPooledBlocks = 50_000_000;

/** Used slots at most. */
const maxFill = 0.7;
const firstSlots = 1_024;

/** One cache of fixed size in place of those of all engines. */
export interface PooledCache {
  readonly blocks: number;
  /** False when it had to evict before the pool was full: what it finds is then no bound any more. */
  readonly isComplete: boolean;
  /**
   * Looks a request up and then makes its blocks the most recent ones, those of its answer as well.
   *
   * @returns prompt tokens found, whole blocks from the beginning; never the last token of the prompt
   */
  add(request: SimRequest): number;
}

/**
 * A cache that evicts the block least recently used, leaves first, as engines do. Plain LRU does that if each chain is
 * touched from its last block to its first: then whenever a block is touched, all blocks before it are touched later,
 * so a block is always more recent than those that continue it and is evicted after them. So if a block is there, all
 * before it are. Of a chain longer than the cache only the beginning stays.
 *
 * Later requests take blocks over from the beginning of a chain, and eviction takes them from its end. So the blocks
 * that one request was the last to touch are one stretch of its chain, and the order of use is that of the requests.
 * Where a chain leaves a stretch, its next block is nobody's or the first of another stretch: whoever has a block in the
 * middle of a stretch has the one before it, too. So a chain is followed from stretch to stretch, one look-up for each.
 *
 * 8 bytes a block, 16 at most where a stretch has become shorter.
 *
 * @param options.capacityBlocks KV blocks of all engines together, at least 1
 * @param options.maxBlocks blocks that it keeps in memory at most
 * @throws RangeError when there is no capacity
 */
export function createPooledCache(options: {
  readonly capacityBlocks: number;
  readonly maxBlocks?: number;
}): PooledCache {
  const { capacityBlocks, maxBlocks = maxPooledBlocks } = options;
  if (!(capacityBlocks >= 1)) throw new RangeError(`a pooled cache of ${capacityBlocks} blocks holds nothing`);
  const capacity = Math.floor(Math.min(capacityBlocks, maxBlocks));
  const order = createUseOrder();
  const table = createFirstBlocks();
  let used = 0;
  let isComplete = true;

  /** Takes the blocks over that a chain finds. @returns how many */
  const takeOver = (chain: Uint32Array): number => {
    let known = 0;
    while (2 * known < chain.length) {
      const stretch = table.find(chain, known);
      if (!stretch) break;
      table.remove(stretch);
      const common = stretch.common(chain);
      known += common;
      used -= common;
      stretch.shorten(stretch.first + common, stretch.end);
      if (stretch.first === stretch.end) order.remove(stretch);
      else table.insert(stretch);
    }
    return known;
  };
  const evict = (blocks: number): void => {
    for (let left = blocks; left > 0; ) {
      const stretch = order.oldest!;
      const evicted = Math.min(left, stretch.end - stretch.first);
      left -= evicted;
      used -= evicted;
      if (stretch.first === stretch.end - evicted) {
        table.remove(stretch);
        order.remove(stretch);
      } else {
        stretch.shorten(stretch.first, stretch.end - evicted);
      }
    }
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
      const kept = Math.min(blocks, capacity);
      const known = takeOver(chain);
      if (kept > 0) {
        const stretch = new Stretch(chain.slice(0, 2 * kept));
        order.addNewest(stretch);
        table.insert(stretch);
        used += kept;
      }
      const isFull = used > capacity || blocks > capacity;
      if (isFull && capacity < Math.floor(capacityBlocks)) isComplete = false;
      evict(used - capacity);
      return blockTokens * Math.min(known, reusableBlocks(request));
    },
  };
}

/** Blocks of one chain that one request was the last to touch: those from `first` to `end`, which is not one of them. */
class Stretch {
  first = 0;
  end: number;
  older: Stretch | undefined;
  newer: Stretch | undefined;
  #words: Uint32Array;
  /** The block whose hash the words begin with. */
  #start = 0;

  constructor(words: Uint32Array) {
    this.#words = words;
    this.end = words.length >>> 1;
  }

  /** A place in a table of so many slots, by the hash of the first block. */
  homeIn(slots: number): number {
    const at = 2 * (this.first - this.#start);
    return slotOf(mixWords(this.#words[at]!, this.#words[at + 1]!), slots);
  }

  holds(chain: Uint32Array, block: number): boolean {
    const at = 2 * (block - this.#start);
    return this.#words[at] === chain[2 * block] && this.#words[at + 1] === chain[2 * block + 1];
  }

  /** How many blocks it has in common with a chain that has its first one. */
  common(chain: Uint32Array): number {
    const { first } = this;
    const shared = Math.min(this.end, chain.length >>> 1) - first;
    if (this.holds(chain, first + shared - 1)) return shared;
    return firstNotHeld(1, shared - 1, (block) => this.holds(chain, first + block));
  }

  shorten(first: number, end: number): void {
    this.first = first;
    this.end = end;
    if (4 * (end - first) >= this.#words.length) return;
    this.#words = this.#words.slice(2 * (first - this.#start), 2 * (end - this.#start));
    this.#start = first;
  }
}

/** Stretches by the hash of their first block, in open addressing with linear probing. */
function createFirstBlocks() {
  let table = new Array<Stretch | undefined>(firstSlots).fill(undefined);
  let count = 0;

  const next = (slot: number): number => (slot + 1 === table.length ? 0 : slot + 1);
  const fill = (stretch: Stretch): void => {
    let slot = stretch.homeIn(table.length);
    while (table[slot]) slot = next(slot);
    table[slot] = stretch;
  };
  const grow = (): void => {
    const before = table;
    table = new Array<Stretch | undefined>(2 * before.length).fill(undefined);
    for (const stretch of before) if (stretch) fill(stretch);
  };

  return {
    /** The stretch that begins with a block of a chain. */
    find(chain: Uint32Array, block: number): Stretch | undefined {
      let slot = slotOf(mixWords(chain[2 * block]!, chain[2 * block + 1]!), table.length);
      for (let stretch = table[slot]; stretch; stretch = table[slot]) {
        if (stretch.first === block && stretch.holds(chain, block)) return stretch;
        slot = next(slot);
      }
      return undefined;
    },
    insert(stretch: Stretch): void {
      if (count >= maxFill * table.length) grow();
      fill(stretch);
      count++;
    },
    /** Closes the gap with what follows, so that no markers of removed stretches are needed. */
    remove(removed: Stretch): void {
      let gap = removed.homeIn(table.length);
      while (table[gap] !== removed) gap = next(gap);
      let slot = next(gap);
      for (let stretch = table[slot]; stretch; stretch = table[slot]) {
        const home = stretch.homeIn(table.length);
        const isReachable = gap <= slot ? home > gap && home <= slot : home > gap || home <= slot;
        if (!isReachable) {
          table[gap] = stretch;
          gap = slot;
        }
        slot = next(slot);
      }
      table[gap] = undefined;
      count--;
    },
  };
}

/** Stretches from the least to the most recently used. */
function createUseOrder() {
  let oldest: Stretch | undefined;
  let newest: Stretch | undefined;
  return {
    get oldest(): Stretch | undefined {
      return oldest;
    },
    remove({ older, newer }: Stretch): void {
      if (newer) newer.older = older;
      else newest = older;
      if (older) older.newer = newer;
      else oldest = newer;
    },
    addNewest(stretch: Stretch): void {
      stretch.older = newest;
      if (newest) newest.newer = stretch;
      else oldest = stretch;
      newest = stretch;
    },
  };
}
