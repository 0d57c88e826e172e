/** What one router guesses of one target, on its way to the others. */
export interface OwnPlacement {
  readonly router: number;
  readonly target: number;
  readonly kind: "place" | "confirm" | "refute";
  /** Chain hashes, two words each, low word first; not changed any more. */
  readonly chain: Uint32Array;
  /** At least 1. Of a refutation, up to the block that the engine does not hold, that one included. */
  readonly blockCount: number;
  readonly atMs: number;
  /** 0 for a refutation. */
  readonly ttlMs: number;
}

/** How many blocks two chains begin with alike: a chain hash stands for its whole prefix. */
export function commonBlocks(
  one: { readonly chain: Uint32Array; readonly blockCount: number },
  other: Uint32Array,
  otherBlocks: number,
): number {
  const { chain } = one;
  let common = 0;
  let most = Math.min(one.blockCount, otherBlocks);
  // The whole of the shorter one is the usual case.
  let probe = most;
  while (common < most) {
    const at = probe * 2 - 2;
    if (chain[at] === other[at] && chain[at + 1] === other[at + 1]) common = probe;
    else most = probe - 1;
    probe = (common + most + 1) >>> 1;
  }
  return common;
}
