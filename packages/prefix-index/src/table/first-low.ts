/**
 * The smallest low word whose home, by a scale in slots per low word, is at or above a slot. It may be 2^32 or more, where
 * there is none.
 */
export function firstLow(slot: number, scale: number): number {
  let low = Math.ceil(slot / scale);
  while (low > 0 && Math.floor((low - 1) * scale) >= slot) low--;
  while (Math.floor(low * scale) < slot) low++;
  return low;
}
