import type { MsgpackCursor } from "./msgpack-cursor.ts";

/**
 * Reads `count` hashes into `words`, two words each, low word first.
 *
 * @param from index of the first word to write
 * @returns false when one of the values is neither an integer nor a byte string
 */
export function readHashes(cursor: MsgpackCursor, words: Uint32Array, from: number, count: number): boolean {
  const { bytes, view, end } = cursor;
  let at = cursor.at;
  for (let word = from, last = from + 2 * count; word < last; word += 2) {
    const head = at + 9 <= end ? bytes[at]! : -1;
    if (head === 0xcf || head === 0xd3) {
      words[word + 1] = view.getInt32(at + 1);
      words[word] = view.getInt32(at + 5);
      at += 9;
    } else {
      cursor.at = at;
      if (!readOtherHash(cursor, words, word)) return false;
      at = cursor.at;
    }
  }
  cursor.at = at;
  return true;
}

/** Hashes that happen to be small integers, and those that are byte strings: their last eight bytes count. */
function readOtherHash(cursor: MsgpackCursor, words: Uint32Array, word: number): boolean {
  if (cursor.readBinary()) {
    const { bytes, spanStart, spanEnd } = cursor;
    if (spanStart === spanEnd) return false;
    let low = 0;
    let high = 0;
    for (let at = Math.max(spanStart, spanEnd - 8); at < spanEnd; at++) {
      high = (high << 8) | (low >>> 24);
      low = (low << 8) | bytes[at]!;
    }
    words[word] = low;
    words[word + 1] = high;
    return true;
  }
  // Integers of 64 bits are read by the caller unless the bytes end within them, so this one is exact.
  const value = cursor.readInteger();
  if (Number.isNaN(value)) return false;
  words[word] = value;
  words[word + 1] = Math.floor(value / 0x1_0000_0000);
  return true;
}
