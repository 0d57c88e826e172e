/**
 * What is known of each block of a pool, `words` numbers side by side, so that the work on one block touches one line of
 * the processor's cache. The last record is no block: the ring of free blocks passes through it. All zero is the state of
 * a block that was never used, so that the system gives memory only to blocks that are.
 */
export type BlockRecords = Int32Array;

/** Places of the numbers in a record, and how many there are. */
export const recordField = {
  /** Requests that hold the block. */
  references: 0,
  /** The hash under which it is entered, kept while it is in the index. */
  laneA: 1,
  laneB: 2,
  /** Number + 1 of the next younger copy in the ring of those with the same hash; 0 when not in the index. */
  nextCopy: 3,
  previousCopy: 4,
  /** Neighbours in the ring of free blocks, less the ones they have at first: number + 1, number - 1. */
  nextFree: 5,
  previousFree: 6,
  words: 8,
} as const;

/** Records of `blocks` blocks. */
export function createBlockRecords(blocks: number): BlockRecords {
  return new Int32Array((blocks + 1) * recordField.words);
}
