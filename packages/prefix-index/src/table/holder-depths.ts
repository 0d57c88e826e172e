/** Holders and how many leading blocks each of them has, as a structure of arrays that is reused between queries. */
export interface HolderDepths {
  count: number;
  readonly holders: Int32Array;
  readonly depths: Int32Array;
}

/** @param maxHolders as the table was made with */
export function createHolderDepths(maxHolders: number): HolderDepths {
  return { count: 0, holders: new Int32Array(maxHolders), depths: new Int32Array(maxHolders) };
}
