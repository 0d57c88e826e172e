import { slotWords } from "./find-slot.ts";
import type { HolderTable } from "./holder-table.ts";

const twoTo32 = 0x1_0000_0000;
/** 256 KiB. */
const blocksPerChunk = 32_768;
/** Slots visited between two chunks, so that a step takes about a millisecond. */
const slotsPerStep = 32_768;

/**
 * Reads the blocks of a holder, in chunks of at most 256 KiB. First come empty chunks, one for every bounded stretch of
 * the table that is searched. The table may change meanwhile: every block that is held all the while comes exactly once.
 * It ends early when the holder is cleared before all is searched.
 *
 * The order jumps about all hashes: where another table is to take them, keys in the order of their homes would crowd in
 * one part of it.
 */
export function* scanHolder(table: HolderTable, holder: number): Generator<Uint32Array, void, undefined> {
  const id = table.ids.find(holder);
  if (id < 0) return;
  let found = new Uint32Array(table.ids.blocks[id]! * 2 + 2 * slotsPerStep);
  let length = 0;
  for (let bound = twoTo32; bound > 0; ) {
    if (table.ids.find(holder) !== id) return;
    for (let visited = 0; bound > 0 && visited < slotsPerStep; ) {
      const { slots, sets } = table;
      slots.runBelow(bound);
      const { words, runStart, runEnd, runBound } = slots;
      if (length + (runEnd - runStart) * 2 > found.length) found = lengthened(found, length + (runEnd - runStart) * 2);
      for (let at = runStart * slotWords; at < runEnd * slotWords; at += slotWords) {
        const low = words[at]!;
        const set = words[at + 2]!;
        if (set === 0 || low < runBound || low >= bound || !sets.has(set, id)) continue;
        found[length++] = low;
        found[length++] = words[at + 1]!;
      }
      visited += slots.homeOf(bound - 1) / slotWords - runStart + 1;
      bound = runBound;
    }
    if (bound > 0) yield new Uint32Array();
  }
  yield* spreadOut(found, length / 2);
}

function lengthened(words: Uint32Array, length: number): Uint32Array<ArrayBuffer> {
  const longer = new Uint32Array(length * 2);
  longer.set(words);
  return longer;
}

/** Yields all blocks in steps of about the golden ratio of their number, so that any part of them is spread evenly. */
function* spreadOut(found: Uint32Array, blocks: number): Generator<Uint32Array, void, undefined> {
  let stride = Math.max(1, Math.round(blocks * 0.618_033_988_75));
  while (greatestCommonDivisor(stride, blocks) > 1) stride++;
  let from = 0;
  for (let begin = 0; begin < blocks; begin += blocksPerChunk) {
    const chunk = new Uint32Array(Math.min(blocksPerChunk, blocks - begin) * 2);
    for (let to = 0; to < chunk.length; to += 2) {
      chunk[to] = found[from * 2]!;
      chunk[to + 1] = found[from * 2 + 1]!;
      from = (from + stride) % blocks;
    }
    yield chunk;
  }
}

function greatestCommonDivisor(one: number, other: number): number {
  return other === 0 ? one : greatestCommonDivisor(other, one % other);
}
