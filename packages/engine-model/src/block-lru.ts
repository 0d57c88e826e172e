import { createBlockIndex } from "./block-index.ts";
import { createBlockRecords, recordField } from "./block-records.ts";
import { createFreeQueue } from "./free-queue.ts";

/** A bounded set of blocks by the two lanes of their hashes, in order of their last use. Everything takes constant time. */
export interface BlockLru {
  size(): number;
  has(a: number, b: number): boolean;
  /** Counts as a use of a block. Returns whether it is there. */
  touch(a: number, b: number): boolean;
  /**
   * Enters a block that is not there. Where there is no room, the one that was not used for longest goes.
   *
   * @param gone where the lanes of that one are written
   * @returns whether one went
   */
  put(a: number, b: number, gone: Uint32Array): boolean;
  clear(): void;
}

const { words, laneA, laneB } = recordField;

/** @param capacity in blocks, at least 1 */
export function createBlockLru(capacity: number): BlockLru {
  const records = createBlockRecords(capacity);
  const index = createBlockIndex(records);
  // All places are in the queue at all times, the empty ones first.
  const byAge = createFreeQueue(records);
  let size = 0;
  return {
    size: () => size,
    has: (a, b) => index.find(a, b) >= 0,
    touch(a, b) {
      const place = index.find(a, b);
      if (place < 0) return false;
      byAge.remove(place);
      byAge.append(place);
      return true;
    },
    put(a, b, gone) {
      const place = byAge.take();
      const isTaken = index.has(place);
      if (isTaken) {
        gone[0] = records[place * words + laneA]!;
        gone[1] = records[place * words + laneB]!;
        index.remove(place);
      } else size++;
      index.insert(place, a, b);
      byAge.append(place);
      return isTaken;
    },
    clear() {
      index.clear();
      size = 0;
    },
  };
}
