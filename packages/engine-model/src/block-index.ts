/** Finds blocks by the hash of their content. Several blocks may hold the same content: the oldest one is found. */
export interface BlockIndex {
  /** The oldest block with this hash, or -1. */
  find(a: number, b: number): number;
  /** Enters a block under the lanes it has in `lanesA` and `lanesB`. */
  insert(block: number): void;
  /** Takes out a block that was inserted. */
  remove(block: number): void;
  clear(): void;
}

/**
 * @param lanesA first lane of each block's hash, owned by the caller and constant while a block is in the index
 * @param lanesB second lane
 */
export function createBlockIndex(lanesA: Uint32Array, lanesB: Uint32Array): BlockIndex {
  const blocks = lanesA.length;
  // Open addressing with linear probing, at most half full. A slot holds block + 1; 0 is free.
  let slots = 16;
  while (slots < 2 * blocks) slots *= 2;
  const mask = slots - 1;
  const table = new Int32Array(slots);
  // Copies of one content form a ring in order of insertion: the one before the oldest is the youngest.
  const nextCopy = new Int32Array(blocks);
  const previousCopy = new Int32Array(blocks);

  const slotOf = (a: number, b: number): number => {
    let slot = a & mask;
    for (let entry = table[slot]!; entry !== 0; entry = table[slot]!) {
      if (lanesA[entry - 1] === a && lanesB[entry - 1] === b) return slot;
      slot = (slot + 1) & mask;
    }
    return slot;
  };
  /** Frees a slot and moves later entries of its run up, so that no marker of a deletion stays behind. */
  const freeSlot = (freed: number): void => {
    let hole = freed;
    let slot = (freed + 1) & mask;
    for (let entry = table[slot]!; entry !== 0; entry = table[slot]!) {
      const home = lanesA[entry - 1]! & mask;
      if (((slot - home) & mask) >= ((slot - hole) & mask)) {
        table[hole] = entry;
        hole = slot;
      }
      slot = (slot + 1) & mask;
    }
    table[hole] = 0;
  };
  return {
    find: (a, b) => table[slotOf(a, b)]! - 1,
    insert(block) {
      const slot = slotOf(lanesA[block]!, lanesB[block]!);
      const oldest = table[slot]! - 1;
      if (oldest < 0) {
        table[slot] = block + 1;
        nextCopy[block] = block;
        previousCopy[block] = block;
        return;
      }
      const youngest = previousCopy[oldest]!;
      nextCopy[youngest] = block;
      previousCopy[block] = youngest;
      nextCopy[block] = oldest;
      previousCopy[oldest] = block;
    },
    remove(block) {
      const slot = slotOf(lanesA[block]!, lanesB[block]!);
      const following = nextCopy[block]!;
      if (following === block) {
        freeSlot(slot);
        return;
      }
      const before = previousCopy[block]!;
      nextCopy[before] = following;
      previousCopy[following] = before;
      if (table[slot] === block + 1) table[slot] = following + 1;
    },
    clear: () => void table.fill(0),
  };
}
