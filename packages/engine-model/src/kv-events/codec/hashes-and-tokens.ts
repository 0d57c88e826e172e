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

/** Reads hashes that are small integers, or byte strings, whose last eight bytes count. */
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
  // The caller reads 64-bit integers unless the bytes end within them, so this one is exact.
  const value = cursor.readInteger();
  if (Number.isNaN(value)) return false;
  words[word] = value;
  words[word + 1] = Math.floor(value / 0x1_0000_0000);
  return true;
}

/** The longest plain token: a head and 32 bits. */
const tokenBytes = 5;

/**
 * How to read a plain token, by its first byte: bits 0 to 7 are its length (0: not plain), bits 8 to 15 where its bits
 * begin, and bits 16 to 23 how far to shift 32 bits from there. A table costs the same for every token, whereas
 * branches would be mispredicted, since lengths alternate at random.
 */
const plainTokens = new Uint32Array(0x100);
for (let head = 0; head < 0x80; head++) plainTokens[head] = plainToken(1, 0, 24);
plainTokens[0xcc] = plainToken(2, 1, 24);
plainTokens[0xcd] = plainToken(3, 1, 16);
plainTokens[0xce] = plainToken(5, 1, 0);

function plainToken(length: number, offset: number, shift: number): number {
  return length | (offset << 8) | (shift << 16);
}

/**
 * Reads `count` tokens. With EAGLE speculative decoding, SGLang sends pairs of a token and its successor; the first one
 * counts. Of integers beyond 32 bits the low 32 bits count.
 *
 * @param from index of the first token to write
 * @returns false when one of the values is neither an integer nor an array that begins with one
 */
export function readTokens(cursor: MsgpackCursor, tokens: Uint32Array, from: number, count: number): boolean {
  const { bytes, view } = cursor;
  const lastStart = cursor.end - tokenBytes;
  let at = cursor.at;
  for (let index = from, last = from + count; index < last; index++) {
    const plain = at <= lastStart ? plainTokens[bytes[at]!]! : 0;
    if (plain !== 0) {
      tokens[index] = view.getInt32(at + ((plain >>> 8) & 0xff)) >>> (plain >>> 16);
      at += plain & 0xff;
    } else {
      cursor.at = at;
      const token = readOtherToken(cursor);
      if (Number.isNaN(token)) return false;
      tokens[index] = token;
      at = cursor.at;
    }
  }
  cursor.at = at;
  return true;
}

/** @returns NaN when there is no token */
function readOtherToken(cursor: MsgpackCursor): number {
  const count = cursor.readArrayHeader();
  if (count < 0) return readInteger32(cursor);
  if (count === 0) return Number.NaN;
  const token = readInteger32(cursor);
  for (let others = count - 1; others > 0; others--) {
    if (!cursor.skip()) return Number.NaN;
  }
  return token;
}

/** @returns the low 32 bits of an integer, as a signed or unsigned number; NaN for anything else */
function readInteger32(cursor: MsgpackCursor): number {
  const { view, at } = cursor;
  const wide = cursor.peek() === 0xcf || cursor.peek() === 0xd3;
  const value = cursor.readInteger();
  if (!wide || Number.isNaN(value)) return value;
  return view.getUint32(at + 5);
}
