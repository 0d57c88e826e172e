/** A set is pairs of {index of a word of 32 holders, bits}, by rising index; words without bits are left out. */
export const pairWords = 2;

/** A view of the pairs of a set, good until the next change of any set. */
export interface SetPairs {
  words: Uint32Array;
  /** Index of the first word of the first pair. */
  at: number;
  /** In pairs. */
  count: number;
  /** Where the pair of a set of one holder is written. */
  readonly own: Uint32Array;
}

export function createSetPairs(): SetPairs {
  const own = new Uint32Array(pairWords);
  return { words: own, at: 0, count: 0, own };
}
