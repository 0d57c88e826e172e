/** Words of a slot: low word of the hash, high word, and what is known of it, where zero marks an empty slot. */
export const slotWords = 3;

/**
 * Looks for a hash from its home onwards, in slots that are sorted by low word.
 *
 * @param home index of the first word of the home slot
 * @returns the index of the slot's first word, or, when it is not there, `~index` of the slot that it belongs in front of
 */
export function findSlot(words: Uint32Array, home: number, low: number, high: number): number {
  for (let at = home; ; at += slotWords) {
    if (words[at + 2] === 0) return ~at;
    const present = words[at]!;
    if (present < low) continue;
    if (present > low) return ~at;
    if (words[at + 1] === high) return at;
  }
}

/**
 * Writes a key into a slot, and moves what is in it, and in the slots right behind it, up by one.
 *
 * @returns the index of the slot that is no longer empty
 */
export function insertSlot(words: Uint32Array, at: number, key: { low: number; high: number; value: number }): number {
  let { low, high, value } = key;
  for (let to = at; ; to += slotWords) {
    const nextLow = words[to]!;
    const nextHigh = words[to + 1]!;
    const nextValue = words[to + 2]!;
    words[to] = low;
    words[to + 1] = high;
    words[to + 2] = value;
    if (nextValue === 0) return to;
    low = nextLow;
    high = nextHigh;
    value = nextValue;
  }
}
