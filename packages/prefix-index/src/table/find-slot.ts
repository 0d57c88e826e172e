/** Words of a slot: low word of the hash, high word, and what is known of it, where zero marks an empty slot. */
export const slotWords = 3;

/**
 * Looks for a hash from its home onwards.
 *
 * @param home index of the first word of the home slot
 * @returns the index of the slot's first word, or, when it is not there, `~index` of the empty slot where it would go
 */
export function findSlot(words: Uint32Array, home: number, low: number, high: number): number {
  for (let at = home; ; at += slotWords) {
    if (words[at + 2] === 0) return ~at;
    if (words[at] === low && words[at + 1] === high) return at;
  }
}
