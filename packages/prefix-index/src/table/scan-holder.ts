import { slotWords } from "./find-slot.ts";
import type { HolderTable } from "./holder-table.ts";

const twoTo32 = 0x1_0000_0000;
/** A chunk ends with the run of slots that makes it this long, far from the most that it may have. */
const wantedBlocks = 16_384;
/** Slots visited between two chunks, so that a step takes well below a millisecond. */
const slotsPerStep = 32_768;

/**
 * Reads the blocks of a holder in chunks of at most 256 KiB, in no particular order. The table may change between two
 * chunks: every block that is held all the while comes exactly once. A chunk is empty where little was found in a
 * bounded stretch of the table. It ends early when the holder is cleared.
 */
export function* scanHolder(table: HolderTable, holder: number): Generator<Uint32Array, void, undefined> {
  const id = table.ids.find(holder);
  let bound = twoTo32;
  while (bound > 0 && id >= 0 && table.ids.find(holder) === id) {
    const found: number[] = [];
    for (let visited = 0; bound > 0 && visited < slotsPerStep && found.length < wantedBlocks * 2; ) {
      const { slots, sets } = table;
      slots.runBelow(bound);
      const { words, runStart, runEnd, runBound } = slots;
      for (let at = runStart * slotWords; at < runEnd * slotWords; at += slotWords) {
        const low = words[at]!;
        const set = words[at + 2]!;
        if (set !== 0 && low >= runBound && low < bound && sets.has(set, id)) found.push(low, words[at + 1]!);
      }
      visited += slots.homeOf(bound - 1) / slotWords - runStart + 1;
      bound = runBound;
    }
    let from = 0;
    do {
      yield Uint32Array.from(found.slice(from, from + wantedBlocks * 4));
      from += wantedBlocks * 4;
    } while (from < found.length);
  }
}
