import { type BlockRecords, recordField } from "./block-records.ts";

/** Finds blocks by the hash of their content. Several blocks may hold the same content: the oldest one is found. */
export interface BlockIndex {
  /** The oldest block with this hash, or -1. */
  find(a: number, b: number): number;
  /** Enters a block under a hash. Returns whether it is the only one with it. */
  insert(block: number, a: number, b: number): boolean;
  /** Takes out a block that was inserted. Returns whether it was the only one with its hash. */
  remove(block: number): boolean;
  has(block: number): boolean;
  clear(): void;
}

const { words, laneA, laneB, nextCopy, previousCopy } = recordField;

/** An index of the blocks that the records are about. */
export function createBlockIndex(records: BlockRecords): BlockIndex {
  const blocks = records.length / words - 1;
  // Open addressing with linear probing, at most half full. A slot holds block + 1; 0 is free.
  let bits = 4;
  while (2 ** bits < 2 * blocks) bits++;
  const mask = 2 ** bits - 1;
  const shift = 32 - bits;
  const table = new Int32Array(2 ** bits);

  // The multiplier is that of Fibonacci hashing (Knuth, volume 3, 6.4): hashes that differ in few bits spread, too.
  const homeOf = (a: number, b: number): number => Math.imul(a ^ b, 0x9e3779b1) >>> shift;
  const slotOf = (a: number, b: number): number => {
    const low = a | 0;
    const high = b | 0;
    let slot = homeOf(low, high);
    for (let entry = table[slot]!; entry !== 0; entry = table[slot]!) {
      const at = (entry - 1) * words;
      if (records[at + laneA] === low && records[at + laneB] === high) return slot;
      slot = (slot + 1) & mask;
    }
    return slot;
  };
  /** Frees a slot and moves later entries of its run up, so that no marker of a deletion stays behind. */
  const freeSlot = (freed: number): void => {
    let hole = freed;
    let slot = (freed + 1) & mask;
    for (let entry = table[slot]!; entry !== 0; entry = table[slot]!) {
      const at = (entry - 1) * words;
      const home = homeOf(records[at + laneA]!, records[at + laneB]!);
      if (((slot - home) & mask) >= ((slot - hole) & mask)) {
        table[hole] = entry;
        hole = slot;
      }
      slot = (slot + 1) & mask;
    }
    table[hole] = 0;
  };
  /** Copies of one content form a ring in order of insertion: the one before the oldest is the youngest. */
  const joinCopies = (older: number, younger: number): void => {
    records[older * words + nextCopy] = younger + 1;
    records[younger * words + previousCopy] = older;
  };
  return {
    find: (a, b) => table[slotOf(a, b)]! - 1,
    insert(block, a, b) {
      const slot = slotOf(a, b);
      const oldest = table[slot]! - 1;
      records[block * words + laneA] = a;
      records[block * words + laneB] = b;
      if (oldest < 0) {
        table[slot] = block + 1;
        joinCopies(block, block);
        return true;
      }
      joinCopies(records[oldest * words + previousCopy]!, block);
      joinCopies(block, oldest);
      return false;
    },
    remove(block) {
      const at = block * words;
      const slot = slotOf(records[at + laneA]!, records[at + laneB]!);
      const following = records[at + nextCopy]! - 1;
      const isOnly = following === block;
      if (isOnly) {
        freeSlot(slot);
      } else {
        joinCopies(records[at + previousCopy]!, following);
        if (table[slot] === block + 1) table[slot] = following + 1;
      }
      records[at + nextCopy] = 0;
      return isOnly;
    },
    has: (block) => records[block * words + nextCopy] !== 0,
    clear() {
      table.fill(0);
      for (let at = nextCopy; at < records.length; at += words) records[at] = 0;
    },
  };
}
