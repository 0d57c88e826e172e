import { createMergeQueue } from "./merge-queue.ts";
import type { PairTable } from "./pair-table.ts";
import type { TokenBuffer } from "./token-buffer.ts";

/** A word while its symbols are being merged. */
export interface SymbolRow {
  clear(): void;
  add(id: number): void;
  /** Merges what the table allows, lowest rank first, and appends what is left. Takes n log n for n symbols. */
  mergeInto(buffer: TokenBuffer): void;
}

const none = -1;

/**
 * The algorithm of the reference, step by step, including what it does with entries of its queue that have become
 * stale: one is dropped unless the pair that stands there now merges to the same symbol.
 *
 * @param merges from a pair of ids to (rank, merged id)
 */
export function createSymbolRow(merges: PairTable): SymbolRow {
  let ids = new Int32Array(256);
  let next = new Int32Array(256);
  let previous = new Int32Array(256);
  let length = 0;
  const queue = createMergeQueue();

  const grow = (): void => {
    const copies = [ids, next, previous].map((row) => {
      const larger = new Int32Array(length * 2);
      larger.set(row);
      return larger;
    });
    [ids, next, previous] = [copies[0]!, copies[1]!, copies[2]!];
  };
  const offer = (left: number, right: number): void => {
    const slot = merges.find(ids[left]!, ids[right]!);
    if (slot >= 0) queue.push(merges.valueAt(slot), left, merges.extraAt(slot));
  };
  const mergeAt = (at: number): void => {
    const right = next[at]!;
    // A symbol that went into its left neighbour has no id any more.
    if (ids[at] === none || right === none) return;
    const slot = merges.find(ids[at]!, ids[right]!);
    if (slot < 0 || merges.extraAt(slot) !== queue.merged) return;
    ids[at] = queue.merged;
    ids[right] = none;
    const following = next[right]!;
    next[at] = following;
    if (following !== none) previous[following] = at;
    if (previous[at] !== none) offer(previous[at]!, at);
    if (following !== none) offer(at, following);
  };

  return {
    clear() {
      length = 0;
    },
    add(id) {
      if (length === ids.length) grow();
      ids[length] = id;
      previous[length] = length - 1;
      next[length] = none;
      if (length > 0) next[length - 1] = length;
      length++;
    },
    mergeInto(buffer) {
      for (let at = 0; at + 1 < length; at++) offer(at, at + 1);
      for (let at = queue.pop(); at >= 0; at = queue.pop()) mergeAt(at);
      for (let at = 0; at !== none && at < length; at = next[at]!) buffer.push(ids[at]!);
    },
  };
}
