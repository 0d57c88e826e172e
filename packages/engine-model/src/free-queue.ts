import { type BlockRecords, recordField } from "./block-records.ts";

/** The free blocks of a pool in the order in which they will be taken. Every operation takes constant time. */
export interface FreeQueue {
  readonly size: () => number;
  /** Takes the block at the head. The queue must not be empty. */
  take(): number;
  remove(block: number): void;
  append(block: number): void;
  /** Puts `block` behind `previous`, or at the head when `previous` is `HEAD`. */
  insertAfter(previous: number, block: number): void;
}

/** Stands before the first block. */
export const HEAD = -1;

const { words, nextFree, previousFree } = recordField;

/** All blocks of the records, in order of their numbers. */
export function createFreeQueue(records: BlockRecords): FreeQueue {
  // A ring through one sentinel behind the last block.
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
