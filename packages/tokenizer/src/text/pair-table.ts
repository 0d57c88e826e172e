/** Slots are at most three quarters full. */
const maxLoad = 0.75;
const emptySlot = 0xffff_ffff;

/**
 * A map from pairs of small integers to pairs of integers, in typed arrays: the merges of a BPE model, and the edges of
 * a trie. Keys and values are unsigned; a key's first integer is below 2^32 - 1.
 */
export type PairTable = ReturnType<typeof createPairTable>;

/** @param expected number of keys; the table grows beyond it */
export function createPairTable(expected: number) {
  let capacity = 16;
  while (capacity * maxLoad < expected) capacity *= 2;
  let keys = new Uint32Array(capacity * 2).fill(emptySlot);
  let values = new Uint32Array(capacity * 2);
  let mask = capacity - 1;
  let size = 0;

  const slotOf = (first: number, second: number): number => {
    let slot = mixed(first, second) & mask;
    for (;;) {
      const key = keys[slot * 2]!;
      if (key === emptySlot || (key === first && keys[slot * 2 + 1] === second)) return slot;
      slot = (slot + 1) & mask;
    }
  };
  const put = (first: number, second: number, value: number, extra: number): void => {
    const slot = slotOf(first, second);
    if (keys[slot * 2] === emptySlot) size++;
    keys[slot * 2] = first;
    keys[slot * 2 + 1] = second;
    values[slot * 2] = value;
    values[slot * 2 + 1] = extra;
  };
  const grow = (): void => {
    const [oldKeys, oldValues] = [keys, values];
    capacity *= 2;
    mask = capacity - 1;
    size = 0;
    keys = new Uint32Array(capacity * 2).fill(emptySlot);
    values = new Uint32Array(capacity * 2);
    for (let at = 0; at < oldKeys.length; at += 2) {
      if (oldKeys[at] !== emptySlot) put(oldKeys[at]!, oldKeys[at + 1]!, oldValues[at]!, oldValues[at + 1]!);
    }
  };

  return {
    /** A later value for the same key replaces the earlier one. */
    set(first: number, second: number, value: number, extra: number): void {
      if (size + 1 > capacity * maxLoad) grow();
      put(first, second, value, extra);
    },
    /** The slot of a key, or -1. */
    find(first: number, second: number): number {
      const slot = slotOf(first, second);
      return keys[slot * 2] === emptySlot ? -1 : slot;
    },
    /** The values set at a slot. */
    valueAt: (slot: number): number => values[slot * 2]!,
    extraAt: (slot: number): number => values[slot * 2 + 1]!,
  };
}

function mixed(first: number, second: number): number {
  let hash = Math.imul(first, 0x9e3779b1) ^ Math.imul(second, 0x85ebca77);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return hash ^ (hash >>> 13);
}

/** A trie over UTF-16 code units. Node 0 is the root. */
export type TextTrie = ReturnType<typeof createTextTrie>;

/** @param expected approximate number of code units in all texts */
export function createTextTrie(expected: number) {
  const edges: PairTable = createPairTable(expected);
  const firsts = new Uint8Array(0x10000);
  const values: number[] = [-1];
  const child = (node: number, codeUnit: number): number => {
    const slot = edges.find(node, codeUnit);
    return slot < 0 ? -1 : edges.valueAt(slot);
  };
  return {
    add(text: string, value: number): void {
      let node = 0;
      for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        let next = child(node, unit);
        if (next < 0) {
          next = values.push(-1) - 1;
          edges.set(node, unit, next, 0);
        }
        node = next;
      }
      if (text.length > 0) firsts[text.charCodeAt(0)] = 1;
      values[node] = value;
    },
    /** The child of `node` by a code unit, or -1. */
    child,
    /** The value added with the text that leads to `node`, or -1. */
    valueAt: (node: number): number => values[node]!,
    /** Whether any added text starts with this code unit. */
    starts: (codeUnit: number): boolean => firsts[codeUnit] === 1,
  };
}
