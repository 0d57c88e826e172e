/**
 * The state of each block of a pool, as `words` consecutive numbers, so that work on one block touches one cache line
 * of the processor. The last record is a sentinel: the ring of free blocks passes through it. An unused block's state
 * is all zeros, so that the system allocates memory only for used blocks.
 */
export type BlockRecords = Int32Array;

/** Offsets of the numbers in a record, and their count. */
export const recordField = {
  /** Requests that use the block. */
  references: 0,
  /** Its hash, while it is in the index. */
  hashA: 1,
  hashB: 2,
  /** Number + 1 of the next younger copy in the ring of those with the same hash; 0 when not in the index. */
  nextCopy: 3,
  previousCopy: 4,
  /** Neighbours in the ring of free blocks, minus the initial ones: number + 1, number - 1. */
  nextFree: 5,
  previousFree: 6,
  words: 8,
} as const;

const { words, hashA, hashB, nextCopy, previousCopy, nextFree, previousFree } = recordField;

/** Records of `blocks` blocks. */
export function createBlockRecords(blocks: number): BlockRecords {
  return new Int32Array((blocks + 1) * recordField.words);
}

/** The free blocks of a pool in the order in which they will be taken. Every operation takes constant time. */
export interface FreeQueue {
  readonly size: () => number;
  /** The block behind `previous`, or at the head when that is `HEAD`; `HEAD` behind the last one. */
  after(previous: number): number;
  /** Takes the block at the head. The queue must not be empty. */
  take(): number;
  remove(block: number): void;
  append(block: number): void;
  /** Puts `block` behind `previous`, or at the head when `previous` is `HEAD`. */
  insertAfter(previous: number, block: number): void;
}

/** Precedes the first block. */
export const HEAD = -1;

/** All blocks of the records, in order of their numbers. */
export function createFreeQueue(records: BlockRecords): FreeQueue {
  // A ring through one sentinel after the last block.
  const blocks = records.length / words - 1;
  let size = blocks;

  const nextOf = (block: number): number => records[block * words + nextFree]! + block + 1;
  const previousOf = (block: number): number => records[block * words + previousFree]! + block - 1;
  const join = (left: number, right: number): void => {
    records[left * words + nextFree] = right - left - 1;
    records[right * words + previousFree] = left - right + 1;
  };
  join(blocks, 0);

  const insertAfter = (before: number, block: number): void => {
    const left = before === HEAD ? blocks : before;
    const right = nextOf(left);
    join(left, block);
    join(block, right);
    size++;
  };
  const remove = (block: number): void => {
    join(previousOf(block), nextOf(block));
    size--;
  };
  return {
    size: () => size,
    after(previous) {
      const block = nextOf(previous === HEAD ? blocks : previous);
      return block === blocks ? HEAD : block;
    },
    take() {
      const block = nextOf(blocks);
      remove(block);
      return block;
    },
    remove,
    append: (block) => insertAfter(previousOf(blocks), block),
    insertAfter,
  };
}

/** Finds blocks by the hash of their content. Of several blocks with the same content it finds the oldest. */
export interface BlockIndex {
  /** The oldest block with this hash, or -1. */
  find(a: number, b: number): number;
  /** Adds a block under a hash. Returns whether it is the only one with that hash. */
  insert(block: number, a: number, b: number): boolean;
  /** Removes an inserted block. Returns whether it was the only one with its hash. */
  remove(block: number): boolean;
  has(block: number): boolean;
  clear(): void;
}

/** An index of the blocks in the records. */
export function createBlockIndex(records: BlockRecords): BlockIndex {
  const blocks = records.length / words - 1;
  // Open addressing with linear probing, at most half full. A slot is two consecutive numbers: block + 1 (0: free) and
  // the first word of its hash, so that records of other blocks are rarely read.
  let bits = 4;
  while (2 ** bits < 2 * blocks) bits++;
  const mask = 2 ** (bits + 1) - 2;
  const shift = 32 - bits;
  const table = new Int32Array(2 ** (bits + 1));

  const slotOf = (a: number, b: number): number => {
    const low = a | 0;
    const high = b | 0;
    let slot = homeOf(low, shift);
    for (let entry = table[slot]!; entry !== 0; entry = table[slot]!) {
      if (table[slot + 1] === low && records[(entry - 1) * words + hashB] === high) return slot;
      slot = (slot + 2) & mask;
    }
    return slot;
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
      records[block * words + hashA] = a;
      records[block * words + hashB] = b;
      if (oldest < 0) {
        table[slot] = block + 1;
        table[slot + 1] = a;
        joinCopies(block, block);
        return true;
      }
      joinCopies(records[oldest * words + previousCopy]!, block);
      joinCopies(block, oldest);
      return false;
    },
    remove(block) {
      const at = block * words;
      const slot = slotOf(records[at + hashA]!, records[at + hashB]!);
      const following = records[at + nextCopy]! - 1;
      const isOnly = following === block;
      if (isOnly) {
        freeSlot(table, slot, shift);
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

/**
 * Where the search for a hash begins. The multiplier is that of Fibonacci hashing (Knuth, volume 3, 6.4): words that
 * differ in few bits spread, too.
 */
function homeOf(low: number, shift: number): number {
  return (Math.imul(low, 0x9e3779b1) >>> shift) << 1;
}

/** Frees a slot and moves later entries of its run up, so that deletions leave no markers. */
function freeSlot(table: Int32Array, freed: number, shift: number): void {
  const mask = table.length - 2;
  let hole = freed;
  let slot = (freed + 2) & mask;
  for (let entry = table[slot]!; entry !== 0; entry = table[slot]!) {
    const low = table[slot + 1]!;
    if (((slot - homeOf(low, shift)) & mask) >= ((slot - hole) & mask)) {
      table[hole] = entry;
      table[hole + 1] = low;
      hole = slot;
    }
    slot = (slot + 2) & mask;
  }
  table[hole] = 0;
}
