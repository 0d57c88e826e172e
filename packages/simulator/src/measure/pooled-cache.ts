import { blockTokens, type SimRequest } from "../clients/workload.ts";
import { firstNotHeld } from "./bisect.ts";
import { mixWords, slotOf } from "./chain-hash.ts";
import { reusableBlocks } from "./reusable-blocks.ts";

/** Blocks that a pooled cache holds at most, whatever the fleet: 1.1 GB of them. */
const maxPooledBlocks = 50_000_000;

/** Used slots at most. */
const maxFill = 0.7;
const none = -1;

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
 * 16 bytes a block (hash, neighbours in order of use) and 4 for each of the slots, which hold the number of an entry:
 * 22 in all. Neighbouring blocks of a chain are mostly neighbours in order of use too, so most are found there instead
 * of in the table.
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
  const table = createEntryTable(capacity);
  const order = createUseOrder(capacity);
  let used = 0;
  let isComplete = true;

  const insert = (chain: Uint32Array, block: number): void => {
    let entry = used;
    if (used < capacity) {
      used++;
    } else {
      if (capacity < Math.floor(capacityBlocks)) isComplete = false;
      entry = order.oldest();
      order.remove(entry);
      table.remove(entry);
    }
    table.insert(entry, chain, block);
    order.addNewest(entry);
  };

  /** @returns the entry next newer than where the block was, which mostly is that of the block before it */
  const touch = (chain: Uint32Array, block: number, guess: number): number => {
    const entry = guess !== none && table.isAt(guess, chain, block) ? guess : table.find(chain, block);
    if (entry === none) {
      insert(chain, block);
      return none;
    }
    const newer = order.newer(entry);
    order.remove(entry);
    order.addNewest(entry);
    return newer;
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
      const known = firstNotHeld(0, blocks, (block) => table.find(chain, block) !== none);
      if (blocks > capacity && capacity < Math.floor(capacityBlocks)) isComplete = false;
      const kept = Math.min(blocks, capacity);
      for (let block = kept - 1; block >= known; block--) insert(chain, block);
      let guess = none;
      for (let block = Math.min(known, kept) - 1; block >= 0; block--) guess = touch(chain, block, guess);
      return blockTokens * Math.min(known, reusableBlocks(request));
    },
  };
}

/** Entries by the hash of their block, in open addressing with linear probing. */
function createEntryTable(capacity: number) {
  const slots = Math.ceil(capacity / maxFill) + 1;
  /** Entries, counted from 1; 0 for a free slot. */
  const table = new Int32Array(slots);
  const words = new Uint32Array(2 * capacity);

  const homeOf = (entry: number): number => slotOf(mixWords(words[2 * entry]!, words[2 * entry + 1]!), slots);
  const next = (slot: number): number => (slot + 1 === slots ? 0 : slot + 1);

  const isAt = (entry: number, chain: Uint32Array, block: number): boolean =>
    words[2 * entry] === chain[2 * block] && words[2 * entry + 1] === chain[2 * block + 1];

  return {
    isAt,
    find(chain: Uint32Array, block: number): number {
      let slot = slotOf(mixWords(chain[2 * block]!, chain[2 * block + 1]!), slots);
      for (; table[slot] !== 0; slot = next(slot)) {
        const entry = table[slot]! - 1;
        if (isAt(entry, chain, block)) return entry;
      }
      return none;
    },
    /** Of a block that is not there. */
    insert(entry: number, chain: Uint32Array, block: number): void {
      words[2 * entry] = chain[2 * block]!;
      words[2 * entry + 1] = chain[2 * block + 1]!;
      let slot = homeOf(entry);
      while (table[slot] !== 0) slot = next(slot);
      table[slot] = entry + 1;
    },
    /** Closes the gap with what follows, so that no markers of removed entries are needed. */
    remove(entry: number): void {
      let gap = homeOf(entry);
      while (table[gap] !== entry + 1) gap = next(gap);
      for (let slot = next(gap); table[slot] !== 0; slot = next(slot)) {
        const home = homeOf(table[slot]! - 1);
        const isReachable = gap <= slot ? home > gap && home <= slot : home > gap || home <= slot;
        if (isReachable) continue;
        table[gap] = table[slot]!;
        gap = slot;
      }
      table[gap] = 0;
    },
  };
}

/** Entries from the least to the most recently used, as a list in two arrays. */
function createUseOrder(capacity: number) {
  const newerOf = new Int32Array(capacity);
  const olderOf = new Int32Array(capacity);
  let oldest = none;
  let newest = none;
  return {
    oldest: (): number => oldest,
    newer: (entry: number): number => newerOf[entry]!,
    remove(entry: number): void {
      const newer = newerOf[entry]!;
      const older = olderOf[entry]!;
      if (newer === none) newest = older;
      else olderOf[newer] = older;
      if (older === none) oldest = newer;
      else newerOf[older] = newer;
    },
    addNewest(entry: number): void {
      newerOf[entry] = none;
      olderOf[entry] = newest;
      if (newest === none) oldest = entry;
      else newerOf[newest] = entry;
      newest = entry;
    },
  };
}
