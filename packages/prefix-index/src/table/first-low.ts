const twoTo32 = 0x1_0000_0000;

/** How homes are told from low words: by one scale below a boundary, by another from there on. */
export interface HomeScales {
  readonly boundary: number;
  readonly scaleLow: number;
  readonly scaleHigh: number;
}

/** The smallest low word whose home is at or above a slot; 2^32 when there is none. */
export function firstLowIn({ boundary, scaleLow, scaleHigh }: HomeScales, slot: number): number {
  const below = firstLow(slot, scaleLow);
  return below < boundary ? below : Math.min(twoTo32, Math.max(boundary, firstLow(slot, scaleHigh)));
}

/**
 * The smallest low word whose home, by a scale in slots per low word, is at or above a slot. It may be 2^32 or more, where
 * there is none.
 */
function firstLow(slot: number, scale: number): number {
  let low = Math.ceil(slot / scale);
  while (low > 0 && Math.floor((low - 1) * scale) >= slot) low--;
  while (Math.floor(low * scale) < slot) low++;
  return low;
}
