/** Above the position of a symbol in a key; the longest text, in bytes, stays below it. */
const positions = 2 ** 27;

/**
 * The pairs of a word that may be merged, lowest rank first and leftmost among equals. Keys are rank and position in
 * one number, which a double holds exactly.
 */
export interface MergeQueue {
  push(rank: number, position: number, merged: number): void;
  /** Takes the first pair away. @returns its position, or -1 when there is none; what it merges to is `merged` */
  pop(): number;
  readonly merged: number;
}

export function createMergeQueue(): MergeQueue {
  let keys = new Float64Array(256);
  let results = new Uint32Array(256);
  let size = 0;
  let merged = 0;

  const grow = (): void => {
    const [moreKeys, moreResults] = [new Float64Array(size * 2), new Uint32Array(size * 2)];
    moreKeys.set(keys);
    moreResults.set(results);
    [keys, results] = [moreKeys, moreResults];
  };

  return {
    push(rank, position, result) {
      if (size === keys.length) grow();
      const key = rank * positions + position;
      let at = size++;
      while (at > 0) {
        const parent = (at - 1) >> 1;
        if (keys[parent]! <= key) break;
        keys[at] = keys[parent]!;
        results[at] = results[parent]!;
        at = parent;
      }
      keys[at] = key;
      results[at] = result;
    },
    pop() {
      if (size === 0) return -1;
      const first = keys[0]!;
      merged = results[0]!;
      size--;
      const key = keys[size]!;
      const result = results[size]!;
      let at = 0;
      for (;;) {
        let child = at * 2 + 1;
        if (child >= size) break;
        if (child + 1 < size && keys[child + 1]! < keys[child]!) child++;
        if (keys[child]! >= key) break;
        keys[at] = keys[child]!;
        results[at] = results[child]!;
        at = child;
      }
      keys[at] = key;
      results[at] = result;
      return first % positions;
    },
    get merged() {
      return merged;
    },
  };
}
