/**
 * Spreads the two words of a chain hash over 32 bits, with the finaliser of MurmurHash3, so that the tables stand on any
 * chains, also on such that count up.
 */
export function mixWords(low: number, high: number): number {
  let mixed = low ^ Math.imul(high, 0x9e3779b1);
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/**
 * The place of mixed 32 bits among `slots`, which need not be a power of two: their share of the range. Places grow with
 * the mixed value, so a table that is copied in order into a larger one is written in order.
 */
export function slotOf(mixed: number, slots: number): number {
  return Math.floor((mixed * slots) / 0x1_0000_0000);
}
