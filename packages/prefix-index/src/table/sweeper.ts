import type { BatchWriter, TableParts } from "./batch-writer.ts";
import { slotWords } from "./find-slot.ts";

const twoTo32 = 0x1_0000_0000;

/** Takes retired internal ids out of all entries, from the highest hashes to the lowest, slice by slice. */
export class Sweeper {
  readonly #parts: TableParts;
  readonly #writer: BatchWriter;
  /** Hashes whose low word is at or above are done; 0 when no pass is under way. */
  #bound = 0;

  constructor(parts: TableParts, writer: BatchWriter) {
    this.#parts = parts;
    this.#writer = writer;
  }

  /** Whether no entry has been taken out of one part of the table only. */
  get isIdle(): boolean {
    return this.#bound === 0;
  }

  get isDone(): boolean {
    return this.#bound === 0 && !this.#parts.ids.isSweepDue && !this.#parts.slots.migrating;
  }

  /** Visits about this many slots. */
  sweep(budgetSlots: number): void {
    const { slots, ids } = this.#parts;
    let left = budgetSlots;
    while (left > 0) {
      if (this.#bound === 0) {
        if (!ids.isSweepDue) break;
        ids.beginSweep();
        this.#bound = twoTo32;
      }
      left -= this.#sweepRun();
    }
    slots.maintain(budgetSlots, this.isIdle);
  }

  #sweepRun(): number {
    const { slots, sets, ids } = this.#parts;
    const before = slots.homeOf(this.#bound - 1) / slotWords;
    slots.runBelow(this.#bound);
    const { runStart, runEnd, runBound } = slots;
    const { words } = slots;
    let lastSet = 0;
    let lastNext = 0;
    // From the end, as closing a gap moves what is behind it, which has been visited.
    for (let slot = runEnd - 1; slot >= runStart; slot--) {
      const at = slot * slotWords;
      const set = words[at + 2]!;
      if (set === 0) continue;
      if (set !== lastSet) {
        lastSet = set;
        lastNext = sets.without(set, ids.swept);
      }
      if (lastNext === set) continue;
      if (lastNext < 0) this.#writer.dropEntry(at);
      else {
        if (lastNext === 0) slots.erase(at);
        else words[at + 2] = lastNext;
        sets.retain(lastNext, 1);
        sets.release(set, 1);
      }
      // The set that was kept in mind may have gone with its last reference.
      lastSet = 0;
    }
    this.#bound = runBound;
    if (runBound === 0) ids.endSweep();
    return Math.max(1, before - runStart + 1);
  }
}
