import { blockTokens, type SimRequest } from "../clients/workload.ts";
import type { RunRecord } from "../run.ts";

/** Computes upper bounds of the cached share during a run. */
export interface BoundsMeter {
  /** Of every request, in order of sending. */
  add(request: SimRequest): void;
  /** Shares of the prompt tokens so far; NaN without requests, and when a cache had more blocks than it can keep. */
  result(): RunRecord["bounds"];
}

/**
 * Upper bounds of the cached share, over requests in order of sending. `infiniteCache`: all engines share one cache that
 * never evicts; `infiniteCacheFollowup` is the same without the first request of each session. `pooledLru`: they share one
 * cache of their total size. Both contain an answer from the moment its request is sent, before an engine has generated it;
 * that only raises the first bound, and keeps both independent of the fleet.
 *
 * @param options.capacityBlocks KV blocks of all engines together, at least 1
 * @throws RangeError when there is no capacity
 */
export function createBoundsMeter(options: {
  readonly capacityBlocks: number;
  /** Blocks in each of the caches at most. */
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

/** Distinct blocks in a cache without eviction at most: 0.4 GB of them in long chains, 1 GB in single ones. */
const maxInfiniteBlocks = 50_000_000;

/** Blocks whose hashes are kept in one array; there are as many arrays as needed, so that none is ever copied. */
const pageBlocks = 65_536;
const firstRuns = 1_024;
/** Used slots at most. */
const maxRunFill = 0.75;
/** Keeps unused memory small, also while a table is copied. */
const growth = 1.25;
const none = -1;

/** A cache that never evicts and that all engines share. */
interface InfiniteCache {
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
 * Keeps chains as runs: what a request adds to the chains before it is one run of blocks, found by the hash of its
 * first. A chain is followed from run to run, one look-up for each; where it leaves a run in the middle, what follows
 * it there begins another run. A hash names all blocks before it too, so if two blocks of a run and a chain are equal,
 * so are all before them, and where the two part is found by bisection.
 *
 * @param options.maxBlocks distinct blocks it may hold
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

/** Runs one behind the other in pages; a run ends where the next one begins, at the latest with its page. */
function createRuns() {
  const pages: Uint32Array[] = [];
  /** Where a run begins, counted in blocks. */
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
    /** Blocks that a chain has in common with a run, whose first block is the chain's block `from`; at least 1. */
    matching(run: number, chain: Uint32Array, from: number): number {
      const start = starts[run]!;
      const end = run + 1 < runs ? starts[run + 1]! : blocks;
      const shared = Math.min(end - start, (chain.length >>> 1) - from);
      if (isAt(start + shared - 1, chain, from + shared - 1)) return shared;
      return firstMissing(1, shared - 1, (block) => isAt(start + block, chain, from + block));
    },
    /** Adds blocks of which none is there. */
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

/** Blocks in a pooled cache at most, whatever the fleet: 0.8 GB of them in long chains. */
const maxPooledBlocks = 50_000_000;

/** Used slots at most. */
const maxStretchFill = 0.7;
const firstSlots = 1_024;

/** One cache of fixed size in place of those of all engines. */
interface PooledCache {
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
 * Where a chain leaves a stretch, its next block is in no stretch or the first of another stretch: a chain with a block in the
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

  /** Its home in a table of `slots` slots, by the hash of the first block. */
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
      if (count >= maxStretchFill * table.length) grow();
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

/** Bisects for the first number from `from` to below `to` that is absent, or `to`; after it all are absent. */
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
 * Spreads the two words of a chain hash over 32 bits, with the finaliser of MurmurHash3, so that the tables stand on any
 * chains, also on such that count up.
 */
function mixWords(low: number, high: number): number {
  let mixed = low ^ Math.imul(high, 0x9e3779b1);
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/**
 * The place of mixed 32 bits among `slots`, which need not be a power of two: their share of the range. Places grow with
 * the mixed value, so a table that is copied in order into a larger one is written in order.
 */
function slotOf(mixed: number, slots: number): number {
  return Math.floor((mixed * slots) / 0x1_0000_0000);
}

/** Blocks of a prompt that an engine may take from its cache: it always computes the last token. */
function reusableBlocks({ promptTokens, chain }: Pick<SimRequest, "promptTokens" | "chain">): number {
  return Math.min(Math.floor((promptTokens - 1) / blockTokens), chain.length >>> 1);
}
