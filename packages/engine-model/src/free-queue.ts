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

/** All of the `blocks` blocks, in order of their numbers. */
export function createFreeQueue(blocks: number): FreeQueue {
  // A ring through one sentinel at index `blocks`.
  const next = new Int32Array(blocks + 1);
  const previous = new Int32Array(blocks + 1);
  for (let at = 0; at <= blocks; at++) {
    next[at] = at === blocks ? 0 : at + 1;
    previous[at] = at === 0 ? blocks : at - 1;
  }
  let size = blocks;

  const insertAfter = (before: number, block: number): void => {
    const left = before === HEAD ? blocks : before;
    const right = next[left]!;
    next[left] = block;
    previous[block] = left;
    next[block] = right;
    previous[right] = block;
    size++;
  };
  const remove = (block: number): void => {
    const left = previous[block]!;
    const right = next[block]!;
    next[left] = right;
    previous[right] = left;
    size--;
  };
  return {
    size: () => size,
    take() {
      const block = next[blocks]!;
      remove(block);
      return block;
    },
    remove,
    append: (block) => insertAfter(previous[blocks]!, block),
    insertAfter,
  };
}
