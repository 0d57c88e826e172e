/** Blocks that the writer can find again, at most; each may hide another. */
const cacheSlots = 2 ** 16;
const slotWords = 4;

/**
 * Every so many blocks of a run can be found again, and its last block. A found prefix is too short by less than that.
 */
import type { OwnJournal } from "../documents/own-journal.ts";
export const blockStride = 4;
/** Runs in a chain of references. */
export const maxRunLinks = 64;
/** Runs that others can refer to. A power of two. */
export const maxWrittenRuns = 65_536;
/** A chain whose first run is older is written again, so that no item is kept forever. Readers count on it. */
export const referenceWindowMs = 600_000;

const two32 = 2 ** 32;

/** An item of the log. It gets its number when it is written. */
export interface LogItem {
  number: number | undefined;
}

/** The deepest run that a chain can refer to, and how many blocks they share. */
export interface SharedRun {
  readonly run: number;
  readonly shared: number;
}

/** A run as it is written. Its own blocks are those from `shared` on. */
export interface NewRun {
  /** One higher than that of the run before, from 1. */
  readonly number: number;
  readonly item: LogItem;
  readonly nowMs: number;
  /** The run that it refers to. */
  readonly parent: number | undefined;
  readonly shared: number;
}

/**
 * Finds the part of a chain that is in the own journal already. It is a direct-mapped cache from block to run: of two
 * blocks in one place the later one stays, which costs bytes on the wire and nothing else. The latest runs are columns
 * of arrays, at their number modulo how many are kept, so that none is an object that lives for minutes.
 */
export class WrittenRuns {
  readonly #journal: Pick<OwnJournal, "keepPlacements" | "holdsPlacements">;
  /** A block's hash and the number of its run, two words each, low word first. Number 0: the slot is empty. */
  readonly #blocks = new Uint32Array(cacheSlots * slotWords);
  /** 0: none. */
  readonly #parents = new Float64Array(maxWrittenRuns);
  /** The first run of its chain of references. */
  readonly #firsts = new Float64Array(maxWrittenRuns);
  readonly #writtenMs = new Float64Array(maxWrittenRuns);
  /** Until then its item and those that it refers to stay. */
  readonly #keptUntilMs = new Float64Array(maxWrittenRuns);
  readonly #blockCounts = new Int32Array(maxWrittenRuns);
  /** Runs from the first one to this. */
  readonly #links = new Uint8Array(maxWrittenRuns);
  readonly #items: LogItem[] = [];
  /** The number of the latest run. */
  #latest = 0;

  constructor(journal: Pick<OwnJournal, "keepPlacements" | "holdsPlacements">) {
    this.#journal = journal;
  }

  /** Runs from the first one of a chain of references to this. */
  linksOf(run: number): number {
    return this.#links[placeOf(run)]!;
  }

  find(words: Uint32Array, blockCount: number, nowMs: number): SharedRun | undefined {
    let useless = 0;
    for (let shared = blockCount; shared > 0; shared = before(shared)) {
      const run = this.#runAt(words, shared - 1);
      if (run === 0 || run === useless) continue;
      // A chain that needs a run of its own must not make the chain of references too long.
      const maxLinks = shared === blockCount ? maxRunLinks : maxRunLinks - 1;
      if (this.#canBeShared(run, shared, nowMs) && this.linksOf(run) <= maxLinks) return { run, shared };
      useless = run;
    }
    return undefined;
  }

  /** Notes a run that was just written. */
  add(words: Uint32Array, blockCount: number, { number, item, nowMs, parent, shared }: NewRun): void {
    const at = placeOf(number);
    const above = parent === undefined ? undefined : placeOf(parent);
    this.#latest = number;
    this.#parents[at] = parent ?? 0;
    this.#firsts[at] = above === undefined ? number : this.#firsts[above]!;
    this.#links[at] = above === undefined ? 1 : this.#links[above]! + 1;
    this.#writtenMs[at] = nowMs;
    this.#keptUntilMs[at] = 0;
    this.#blockCounts[at] = blockCount;
    this.#items[at] = item;
    for (let blocks = blockCount; blocks > shared; blocks = before(blocks)) this.#enter(words, blocks - 1, number);
  }

  /** Keeps a run and what it refers to in the log. */
  keep(run: number, untilMs: number): void {
    // A run's parents are always kept while the run is kept.
    for (let each = run; each > 0; each = this.#parents[placeOf(each)]!) {
      const at = placeOf(each);
      if (this.#keptUntilMs[at]! >= untilMs) return;
      this.#keptUntilMs[at] = untilMs;
      const item = this.#items[at]?.number;
      if (item !== undefined) this.#journal.keepPlacements(item, untilMs);
    }
  }

  #enter(words: Uint32Array, block: number, number: number): void {
    const slot = slotOf(words, block);
    const blocks = this.#blocks;
    blocks[slot] = words[block * 2]!;
    blocks[slot + 1] = words[block * 2 + 1]!;
    blocks[slot + 2] = number;
    blocks[slot + 3] = number / two32;
  }

  /** The run that was last entered with a block; 0 for none. */
  #runAt(words: Uint32Array, block: number): number {
    const slot = slotOf(words, block);
    const blocks = this.#blocks;
    if (blocks[slot] !== words[block * 2] || blocks[slot + 1] !== words[block * 2 + 1]) return 0;
    return blocks[slot + 2]! + blocks[slot + 3]! * two32;
  }

  #canBeShared(run: number, shared: number, nowMs: number): boolean {
    if (!this.#isHere(run)) return false;
    const at = placeOf(run);
    // The first run has the lowest number of all that this one refers to, so while it is here all are.
    const first = this.#firsts[at]!;
    if (!this.#isHere(first) || this.#blockCounts[at]! < shared || this.#keptUntilMs[at]! <= nowMs) return false;
    const firstAt = placeOf(first);
    if (nowMs - this.#writtenMs[firstAt]! >= referenceWindowMs) return false;
    return this.#isItemHeld(firstAt) && this.#isItemHeld(at);
  }

  /** Whether a run is in the columns, and still is when one more has been added. */
  #isHere(run: number): boolean {
    return this.#latest - run < maxWrittenRuns - 1;
  }

  #isItemHeld(at: number): boolean {
    const item = this.#items[at]?.number;
    return item === undefined || this.#journal.holdsPlacements(item);
  }
}

function placeOf(run: number): number {
  return run & (maxWrittenRuns - 1);
}

function slotOf(words: Uint32Array, block: number): number {
  return (words[block * 2]! & (cacheSlots - 1)) * slotWords;
}

/** The greatest number of blocks below this one at whose end a run can be found. */
function before(blocks: number): number {
  return blocks - (blocks % blockStride || blockStride);
}
