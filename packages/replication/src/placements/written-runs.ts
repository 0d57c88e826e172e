import { RecencyMap } from "@espalier/common";
import type { JournalWriter } from "../documents/journal.ts";

/** Blocks that the writer can find again, at most; each may hide another. */
const cacheSlots = 2 ** 17;
/** Runs in a chain of references. */
export const maxRunLinks = 64;
/** Runs that can be referred to. */
export const maxWrittenRuns = 65_536;
/** A chain whose first run is older is written anew, so that no item is kept for ever. Readers count on it. */
export const referenceWindowMs = 600_000;

/** An item of the log, which gets its number when it is written. */
export interface LogItem {
  number: number | undefined;
}

/** A run that was written to the own journal. */
export interface WrittenRunInfo {
  readonly number: number;
  readonly parent: WrittenRunInfo | undefined;
  readonly item: LogItem;
  /** Blocks of the whole chain. */
  readonly blocks: number;
  /** Of the run that the chain of references begins with. */
  readonly oldestItem: LogItem;
  readonly begunMs: number;
  /** Runs from the first one to this. */
  readonly links: number;
  /** Its item, and those of all it refers to, stay that long. */
  keptUntilMs: number;
}

/** The deepest run that a chain can refer to, and how many blocks it has in common with it. */
export interface SharedRun {
  readonly run: WrittenRunInfo;
  readonly shared: number;
}

/**
 * Finds what of a chain stands in the own journal already. A direct-mapped cache from block to run: what two blocks map to
 * the later one has, which costs bytes on the wire and nothing else.
 */
export class WrittenRuns {
  readonly #journal: Pick<JournalWriter, "keepPlacements" | "holdsPlacements">;
  readonly #lows = new Uint32Array(cacheSlots);
  readonly #highs = new Uint32Array(cacheSlots);
  /** 0: the slot is empty. */
  readonly #numbers = new Float64Array(cacheSlots);
  readonly #runs = new RecencyMap<number, WrittenRunInfo>();

  constructor(journal: Pick<JournalWriter, "keepPlacements" | "holdsPlacements">) {
    this.#journal = journal;
  }

  get size(): number {
    return this.#runs.size;
  }

  find(words: Uint32Array, blockCount: number, nowMs: number): SharedRun | undefined {
    let useless = 0;
    for (let block = blockCount - 1; block >= 0; block--) {
      const low = words[block * 2]!;
      const slot = low & (cacheSlots - 1);
      const number = this.#numbers[slot]!;
      if (number === 0 || number === useless) continue;
      if (this.#lows[slot] !== low || this.#highs[slot] !== words[block * 2 + 1]) continue;
      const run = this.#runs.get(number);
      // A chain that needs a run of its own must not make the chain of references too long.
      const maxLinks = block === blockCount - 1 ? maxRunLinks : maxRunLinks - 1;
      if (run && run.links <= maxLinks && run.blocks > block && this.#isHeld(run, nowMs)) {
        return { run, shared: block + 1 };
      }
      useless = number;
    }
    return undefined;
  }

  /** Notes a run that was just written; its own blocks are those from `shared` on. */
  add(
    words: Uint32Array,
    blockCount: number,
    run: Pick<WrittenRunInfo, "number" | "item"> & WrittenAt,
  ): WrittenRunInfo {
    const { number, item, nowMs, parent, shared } = run;
    const info: WrittenRunInfo = {
      number,
      item,
      parent,
      blocks: blockCount,
      keptUntilMs: 0,
      oldestItem: parent?.oldestItem ?? item,
      begunMs: parent?.begunMs ?? nowMs,
      links: (parent?.links ?? 0) + 1,
    };
    this.#runs.set(number, info);
    if (this.#runs.size > maxWrittenRuns) this.#runs.deleteOldest();
    for (let block = shared; block < blockCount; block++) {
      const slot = words[block * 2]! & (cacheSlots - 1);
      this.#lows[slot] = words[block * 2]!;
      this.#highs[slot] = words[block * 2 + 1]!;
      this.#numbers[slot] = number;
    }
    return info;
  }

  /** Sees to it that a run and what it refers to stay in the log. */
  keep(run: WrittenRunInfo, untilMs: number): void {
    // What a run refers to is always kept for as long as the run.
    for (let each: WrittenRunInfo | undefined = run; each && each.keptUntilMs < untilMs; each = each.parent) {
      each.keptUntilMs = untilMs;
      if (each.item.number !== undefined) this.#journal.keepPlacements(each.item.number, untilMs);
    }
  }

  /** Nothing is written yet: the journal is another one. */
  clear(): void {
    this.#numbers.fill(0);
    this.#runs.clear();
  }

  #isHeld({ item, oldestItem, begunMs, keptUntilMs }: WrittenRunInfo, nowMs: number): boolean {
    if (nowMs - begunMs >= referenceWindowMs || keptUntilMs <= nowMs) return false;
    return this.#isItemHeld(oldestItem) && this.#isItemHeld(item);
  }

  #isItemHeld({ number }: LogItem): boolean {
    return number === undefined || this.#journal.holdsPlacements(number);
  }
}

interface WrittenAt {
  readonly nowMs: number;
  readonly parent: WrittenRunInfo | undefined;
  readonly shared: number;
}
