import { mixWord } from "@espalier/core";
import { blockTokens, type SimRequest } from "../clients/workload.ts";
import type { RunRecord } from "../run.ts";

/** Computes upper bounds of the cached share during a run. */
export interface BoundsMeter {
  /** Called for every request, in order of sending. */
  add(request: SimRequest): void;
  /** Shares of the prompt tokens so far; NaN without requests, and when a cache had more blocks than it can hold. */
  result(): RunRecord["bounds"];
}

/**
 * Upper bounds of the cached share, over requests in order of sending. `infiniteCache`: all engines share one cache
 * that never evicts. `infiniteCacheFollowup`: the same without the first request of each session. `pooledLru`: all
 * engines share one cache of their total size. Both caches contain an answer from the moment its request is sent,
 * before an engine has generated it. That only raises the first bound, and keeps both independent of the fleet.
 *
 * @param options.capacityBlocks KV blocks of all engines together, at least 1
 * @throws RangeError when there is no capacity
 */
export function createBoundsMeter(options: {
  readonly capacityBlocks: number;
  /** Maximum blocks in each cache. */
  readonly maxBlocks?: number;
}): BoundsMeter {
  const infinite = createInfiniteCache(options);
  const pooled = createPooledCache(options);
  let promptTokens = 0;
  let followupTokens = 0;
  let infiniteTokens = 0;
  let infiniteFollowupTokens = 0;
  let pooledTokens = 0;
  return {
    add(request) {
      promptTokens += request.promptTokens;
      const found = infinite.add(request);
      infiniteTokens += found;
      if (request.turn > 0) {
        followupTokens += request.promptTokens;
        infiniteFollowupTokens += found;
      }
      pooledTokens += pooled.add(request);
    },
    result() {
      return {
        infiniteCache: infinite.isComplete ? infiniteTokens / promptTokens : Number.NaN,
        infiniteCacheFollowup: infinite.isComplete ? infiniteFollowupTokens / followupTokens : Number.NaN,
        pooledLru: pooled.isComplete ? pooledTokens / promptTokens : Number.NaN,
      };
    },
  };
}

/** Maximum distinct blocks in a cache without eviction: 0.4 GB in long chains, 1 GB in single blocks. */
const maxInfiniteBlocks = 50_000_000;

/** Blocks per array of hashes. The table uses as many arrays as needed, so none is ever copied. */
const pageBlocks = 65_536;
const firstRuns = 1_024;
/** Maximum load factor. */
const maxRunFill = 0.75;
/** Keeps unused memory small, even while a table is copied. */
const growth = 1.25;
const none = -1;

/** A cache shared by all engines that never evicts. */
interface InfiniteCache {
  readonly blocks: number;
  /** False after there were more blocks than it can hold: its hits are then no longer a bound. */
  readonly isComplete: boolean;
  /**
   * Looks up a request, then adds its blocks, including those of its answer.
   *
   * @returns prompt tokens found, in whole blocks from the beginning; never the last token of the prompt, which an
   * engine always computes
   */
  add(request: SimRequest): number;
}

/**
 * Stores chains as runs. The blocks that a request adds to the existing chains form one run, which is found by the hash
 * of its first block. A lookup follows a chain from run to run, with one table access per run. Where a chain leaves a
 * run in the middle, its remaining blocks begin another run. A hash identifies all blocks before it too: if a run and a
 * chain have equal blocks at one position, they are equal at all earlier ones. Bisection therefore finds where they
 * diverge.
 *
 * @param options.maxBlocks maximum distinct blocks
 */
export function createInfiniteCache({ maxBlocks = maxInfiniteBlocks } = {}): InfiniteCache {
  const runs = createRuns();
  let isComplete = true;
  return {
    get blocks() {
      return runs.blocks();
    },
    get isComplete() {
      return isComplete;
    },
    add(request) {
      const { chain } = request;
      const blocks = chain.length >>> 1;
      let known = 0;
      while (known < blocks) {
        const run = runs.find(chain, known);
        if (run === none) break;
        known += runs.matching(run, chain, known);
      }
      const capacity = maxBlocks - runs.blocks();
      if (blocks - known > capacity) isComplete = false;
      runs.append(chain, known, Math.min(blocks, known + capacity));
      return blockTokens * Math.min(known, reusableBlocks(request));
    },
  };
}

/** Runs follow each other in pages. A run ends where the next one begins, or at the end of its page. */
function createRuns() {
  const pages: Uint32Array[] = [];
  /** Start of a run, counted in blocks. */
  let starts = new Uint32Array(firstRuns);
  /** Runs by the hash of their first block, counted from 1; 0 for a free slot. */
  let table = new Uint32Array(Math.ceil(firstRuns / maxRunFill));
  let runs = 0;
  let blocks = 0;

  const isAt = (position: number, chain: Uint32Array, block: number): boolean => {
    const page = pages[Math.floor(position / pageBlocks)]!;
    const at = 2 * (position % pageBlocks);
    return page[at] === chain[2 * block] && page[at + 1] === chain[2 * block + 1];
  };

  const homeOf = (chain: Uint32Array, block: number): number =>
    slotOf(mixWords(chain[2 * block]!, chain[2 * block + 1]!), table.length);

  const fill = (home: number, run: number): void => {
    let slot = home;
    while (table[slot] !== 0) slot = slot + 1 === table.length ? 0 : slot + 1;
    table[slot] = run + 1;
  };

  const grow = (): void => {
    const more = new Uint32Array(Math.ceil(starts.length * growth));
    more.set(starts);
    starts = more;
    table = new Uint32Array(Math.ceil(starts.length / maxRunFill));
    for (let run = 0; run < runs; run++) {
      fill(homeOf(pages[Math.floor(starts[run]! / pageBlocks)]!, starts[run]! % pageBlocks), run);
    }
  };

  return {
    blocks: (): number => blocks,
    find(chain: Uint32Array, block: number): number {
      for (let slot = homeOf(chain, block); table[slot] !== 0; slot = slot + 1 === table.length ? 0 : slot + 1) {
        const run = table[slot]! - 1;
        if (isAt(starts[run]!, chain, block)) return run;
      }
      return none;
    },
    /** Number of blocks that a chain shares with a run whose first block is the chain's block `from`; at least 1. */
    matching(run: number, chain: Uint32Array, from: number): number {
      const start = starts[run]!;
      const end = run + 1 < runs ? starts[run + 1]! : blocks;
      const shared = Math.min(end - start, (chain.length >>> 1) - from);
      if (isAt(start + shared - 1, chain, from + shared - 1)) return shared;
      return firstMissing(1, shared - 1, (block) => isAt(start + block, chain, from + block));
    },
    /** Adds blocks that are all absent. */
    append(chain: Uint32Array, from: number, to: number): void {
      for (let block = from; block < to; ) {
        const at = blocks % pageBlocks;
        if (at === 0) pages.push(new Uint32Array(2 * pageBlocks));
        const count = Math.min(to - block, pageBlocks - at);
        pages.at(-1)!.set(chain.subarray(2 * block, 2 * (block + count)), 2 * at);
        if (runs === starts.length) grow();
        starts[runs] = blocks;
        fill(homeOf(chain, block), runs);
        runs++;
        blocks += count;
        block += count;
      }
    },
  };
}

/** Maximum blocks in a pooled cache, for any fleet: 0.8 GB in long chains. */
const maxPooledBlocks = 50_000_000;

/** Maximum load factor. */
const maxStretchFill = 0.7;
const firstSlots = 1_024;

/** One cache of fixed size that replaces those of all engines. */
interface PooledCache {
  readonly blocks: number;
  /** False after it had to evict before the pool was full: its hits are then no longer a bound. */
  readonly isComplete: boolean;
  /**
   * Looks up a request, then makes its blocks the most recent ones, including those of its answer.
   *
   * @returns prompt tokens found, in whole blocks from the beginning; never the last token of the prompt
   */
  add(request: SimRequest): number;
}

/**
 * A cache that evicts the least recently used block, leaves first, as engines do. Plain LRU does that if each chain is
 * touched from its last block to its first. Whenever a block is touched, all blocks before it are touched later. So a
 * block is always more recent than the blocks that continue it, and is evicted after them. If a block is present, all
 * blocks before it are. Only the beginning of a chain longer than the cache stays.
 *
 * Later requests take over blocks from the beginning of a chain, and eviction takes them from its end. So the blocks
 * that one request was the last to touch form one stretch of its chain, and the order of use is that of the requests.
 * Where a chain leaves a stretch, its next block is in no stretch or is the first of another one: a chain with a block
 * in the middle of a stretch has the previous block, too. So a lookup follows a chain from stretch to stretch, with one
 * table access per stretch.
 *
 * Takes 8 bytes per block, at most 16 where a stretch has become shorter.
 *
 * @param options.capacityBlocks KV blocks of all engines together, at least 1
 * @param options.maxBlocks maximum blocks kept in memory
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

  /** Removes the blocks of a chain from earlier stretches. @returns how many */
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

/** Blocks of one chain that one request was the last to touch, from `first` to `end` (exclusive). */
class Stretch {
  first = 0;
  end: number;
  older: Stretch | undefined;
  newer: Stretch | undefined;
  #words: Uint32Array;
  /** Index of the block whose hash comes first in the words. */
  #start = 0;

  constructor(words: Uint32Array) {
    this.#words = words;
    this.end = words.length >>> 1;
  }

  /** Its home slot in a table of `slots` slots, by the hash of the first block. */
  homeIn(slots: number): number {
    const at = 2 * (this.first - this.#start);
    return slotOf(mixWords(this.#words[at]!, this.#words[at + 1]!), slots);
  }

  holds(chain: Uint32Array, block: number): boolean {
    const at = 2 * (block - this.#start);
    return this.#words[at] === chain[2 * block] && this.#words[at + 1] === chain[2 * block + 1];
  }

  /** Number of blocks it shares with a chain that has its first one. */
  common(chain: Uint32Array): number {
    const { first } = this;
    const shared = Math.min(this.end, chain.length >>> 1) - first;
    if (this.holds(chain, first + shared - 1)) return shared;
    return firstMissing(1, shared - 1, (block) => this.holds(chain, first + block));
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
    /** The stretch whose first block is a given block of a chain. */
    find(chain: Uint32Array, block: number): Stretch | undefined {
      let slot = slotOf(mixWords(chain[2 * block]!, chain[2 * block + 1]!), table.length);
      for (let stretch = table[slot]; stretch; stretch = table[slot]) {
        if (stretch.first === block && stretch.holds(chain, block)) return stretch;
        slot = next(slot);
      }
      return undefined;
    },
    insert(stretch: Stretch): void {
      if (count >= maxStretchFill * table.length) grow();
      fill(stretch);
      count++;
    },
    /** Closes the gap with the following entries, so that removed stretches need no markers. */
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

/** Bisects [from, to) for the first absent number, or returns `to`. All numbers after an absent one are absent. */
function firstMissing(from: number, to: number, isPresent: (number: number) => boolean): number {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isPresent(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Spreads the two words of a chain hash over 32 bits, with the finaliser of MurmurHash3, so that the tables work for
 * any chains, even those with consecutive hashes.
 */
function mixWords(low: number, high: number): number {
  return mixWord(low ^ Math.imul(high, 0x9e3779b1));
}

/**
 * Maps 32 mixed bits to one of `slots` slots in proportion to their value; `slots` need not be a power of two. Slots
 * grow with the mixed value, so copying a table in order into a larger one writes in order.
 */
function slotOf(mixed: number, slots: number): number {
  return Math.floor((mixed * slots) / 0x1_0000_0000);
}

/** Number of prompt blocks that an engine may take from its cache. It always computes the last token. */
function reusableBlocks({ promptTokens, chain }: Pick<SimRequest, "promptTokens" | "chain">): number {
  return Math.min(Math.floor((promptTokens - 1) / blockTokens), chain.length >>> 1);
}
