import { blockTokens, type SimRequest } from "../clients/workload.ts";
import { firstNotHeld } from "./bisect.ts";
import { mixWords, slotOf } from "./chain-hash.ts";
import { reusableBlocks } from "./reusable-blocks.ts";

/** Distinct blocks that a cache without eviction holds at most: 0.4 GB of them in long chains, 1 GB in single ones. */
const maxInfiniteBlocks = 50_000_000;

/** Blocks whose hashes are kept in one array; there are as many arrays as needed, so that none is ever copied. */
const pageBlocks = 65_536;
const firstRuns = 1_024;
/** Used slots at most. */
const maxFill = 0.75;
/** Keeps what is not yet used small, and a table beside the one that takes its place. */
const growth = 1.25;
const none = -1;

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
      const room = maxBlocks - runs.blocks();
      if (blocks - known > room) isComplete = false;
      runs.append(chain, known, Math.min(blocks, known + room));
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
  let table = new Uint32Array(Math.ceil(firstRuns / maxFill));
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
    table = new Uint32Array(Math.ceil(starts.length / maxFill));
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
      return firstNotHeld(1, shared - 1, (block) => isAt(start + block, chain, from + block));
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
