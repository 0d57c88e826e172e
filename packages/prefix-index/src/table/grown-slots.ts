/** Below this many slots, 6 MB, a table grows in large steps; above, fine ones keep it below 18 bytes per key. */
const fineGrowthSlots = 524_288;
const largeGrowth = 1.5;
const fineGrowth = 1.18;

/** How many slots a table of this many grows to. */
export function grownSlots(slots: number): number {
  return Math.ceil(slots * (slots < fineGrowthSlots ? largeGrowth : fineGrowth));
}
