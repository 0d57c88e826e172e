let words = new Uint32Array(1_024);

/**
 * Room for a chain that nobody reads: digests of blocks are wanted before it is known which root their chain has. What
 * is in it lasts until the next call.
 */
export function unusedChain(length: number): Uint32Array {
  if (words.length < length) words = new Uint32Array(length);
  return words.subarray(0, length);
}
