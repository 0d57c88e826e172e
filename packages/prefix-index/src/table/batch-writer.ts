import type { HolderIds } from "./holder-ids.ts";
import type { HolderSets } from "./holder-sets.ts";
import { createSetPairs, pairWords } from "./holder-sets.ts";
import type { SlotTable } from "./slot-table.ts";
import { findSlot, insertSlot, slotWords } from "./slot-table.ts";

/** What the parts of a holder table share. */
interface TableParts {
  readonly slots: SlotTable;
  readonly sets: HolderSets;
  readonly ids: HolderIds;
}

/** Changes the entries of batches of blocks, and maintains the counts and sums of holders. */
export class BatchWriter {
  /** Pairs of block and holder. */
  pairs = 0;
  /** Pairs not stored, or dropped, because of a bound. */
  refused = 0;
  readonly #parts: TableParts;
  readonly #members = createSetPairs();

  constructor(parts: TableParts) {
    this.#parts = parts;
  }

  /** Stores a batch for an internal id. Returns how many blocks it did not hold before. */
  store(id: number, words: Uint32Array, from: number, to: number): number {
    const { slots, sets, ids } = this.#parts;
    const hasRoom = slots.reserve(to - from);
    slots.touch(words, from, to);
    const { boundary, scaleLow, scaleHigh, words: table } = slots;
    let lastSet = 0;
    let lastNext = 0;
    let moved = 0;
    let stored = 0;
    let added = 0;
    let rest = to;
    let refused = 0;
    let sumLow = 0;
    let sumHigh = 0;
    for (let at = from * 2; at < to * 2; at += 2) {
      const low = words[at]!;
      const high = words[at + 1]!;
      const slot = findSlot(table, Math.imul(low * (low < boundary ? scaleLow : scaleHigh), slotWords), low, high);
      if (slot < 0) {
        if (!hasRoom) {
          refused++;
          continue;
        }
        const filled = insertSlot(table, ~slot, { low, high, value: (id + 1) >>> 0 });
        if (filled + slotWords === table.length) {
          // The last slot must be empty. From here on there are more slots, in other `words`.
          slots.lengthen();
          rest = (at >> 1) + 1;
        }
        added++;
      } else {
        const set = table[slot + 2]!;
        if (set !== lastSet) {
          sets.retain(lastNext, moved);
          sets.release(lastSet, moved);
          moved = 0;
          lastSet = set;
          lastNext = sets.plus(set, id);
        }
        if (lastNext === set) continue;
        if (lastNext === 0) {
          refused++;
          continue;
        }
        table[slot + 2] = lastNext;
        moved++;
      }
      stored++;
      sumLow += low;
      sumHigh += high;
      if (rest < to) break;
    }
    sets.retain(lastNext, moved);
    sets.release(lastSet, moved);
    slots.count += added;
    this.#count(id, stored, sumLow, sumHigh);
    if (refused > 0) ids.setLinear(id);
    this.refused += refused;
    return rest < to ? stored + this.store(id, words, rest, to) : stored;
  }

  /** Removes a batch for an internal id. Returns how many blocks of it were held. */
  remove(id: number, words: Uint32Array, from: number, to: number): number {
    const { slots, sets } = this.#parts;
    slots.touch(words, from, to);
    const { boundary, scaleLow, scaleHigh, words: table } = slots;
    let lastSet = 0;
    let lastNext = 0;
    let moved = 0;
    let removed = 0;
    let dropped = 0;
    let sumLow = 0;
    let sumHigh = 0;
    for (let at = from * 2; at < to * 2; at += 2) {
      const low = words[at]!;
      const high = words[at + 1]!;
      const slot = findSlot(table, Math.imul(low * (low < boundary ? scaleLow : scaleHigh), slotWords), low, high);
      if (slot < 0) continue;
      const set = table[slot + 2]!;
      if (set === id + 1) slots.erase(slot);
      else {
        if (set !== lastSet) {
          sets.retain(lastNext, moved);
          sets.release(lastSet, moved);
          moved = 0;
          lastSet = set;
          lastNext = sets.minus(set, id);
        }
        if (lastNext === set) continue;
        if (lastNext < 0) {
          // The smaller set does not fit, and a removed block must not be found.
          if (sets.has(set, id)) dropped++;
          this.dropEntry(slot);
          lastSet = 0;
          lastNext = 0;
          continue;
        }
        table[slot + 2] = lastNext;
        moved++;
      }
      removed++;
      sumLow += low;
      sumHigh += high;
    }
    sets.retain(lastNext, moved);
    sets.release(lastSet, moved);
    this.#count(id, -removed, -sumLow, -sumHigh);
    return removed + dropped;
  }

  /** Takes a block from all its holders, which are walked block by block from now on. */
  dropEntry(slot: number): void {
    const { slots, sets, ids } = this.#parts;
    const low = slots.words[slot]!;
    const high = slots.words[slot + 1]!;
    const set = slots.words[slot + 2]!;
    const members = this.#members;
    sets.pairsOf(set, members);
    for (let pair = 0; pair < members.count; pair++) {
      const at = members.at + pair * pairWords;
      const word = members.words[at]!;
      for (let bits = members.words[at + 1]! & ids.live[word]!; bits !== 0; bits &= bits - 1) {
        const id = word * 32 + 31 - Math.clz32(bits & -bits);
        this.#count(id, -1, -low, -high);
        ids.setLinear(id);
        this.refused++;
      }
    }
    sets.release(set, 1);
    slots.erase(slot);
  }

  #count(id: number, blocks: number, sumLow: number, sumHigh: number): void {
    const { ids } = this.#parts;
    ids.blocks[id]! += blocks;
    ids.sums[id * 2]! += sumLow;
    ids.sums[id * 2 + 1]! += sumHigh;
    this.pairs += blocks;
  }
}

const twoTo32 = 0x1_0000_0000;

/** Removes retired internal ids from all entries, from the highest hashes to the lowest, slice by slice. */
export class Sweeper {
  readonly #parts: TableParts;
  readonly #writer: BatchWriter;
  /** Hashes whose low word is at or above this are done; 0 if no pass is in progress. */
  #bound = 0;

  constructor(parts: TableParts, writer: BatchWriter) {
    this.#parts = parts;
    this.#writer = writer;
  }

  /** Whether no id has been removed from only a part of the table. */
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
    // From the end, because closing a gap moves the slots after it, which have been visited.
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
      // The remembered set may have been freed with its last reference.
      lastSet = 0;
    }
    this.#bound = runBound;
    if (runBound === 0) ids.endSweep();
    return Math.max(1, before - runStart + 1);
  }
}
