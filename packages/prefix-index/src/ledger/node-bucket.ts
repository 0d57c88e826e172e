/**
 * A bucket of a `NodeMap`: the 64 bytes of a cache line, with room for 15 nodes. Word 0 has how many there are, and how
 * many had to go past the bucket while it was full; bytes 4 to 18 have a tag for each node, 1 to 255; from byte 19 on
 * are the nodes' numbers, three bytes each. There are no gaps.
 */
export const bucketWords = 16;
export const bucketNodes = 15;
const countMask = 0xf;
const pastOne = 0x10;
const tagAt = 4;
const idAt = 19;
const idBytes = 3;

/** The memory of buckets, in words and in bytes. */
export interface Buckets {
  readonly words: Uint32Array;
  readonly bytes: Uint8Array;
}

export function createBuckets(count: number): Buckets {
  const words = new Uint32Array(count * bucketWords);
  return { words, bytes: new Uint8Array(words.buffer) };
}

/** The places of a bucket whose nodes have a tag, a bit each for `placeOf`. Now and then one too many. */
export function matchesIn(words: Uint32Array, bucket: number, tag: number): number {
  const tags = tag * 0x01010101;
  return (
    (zeroBytes(words[bucket + 1]! ^ tags) >>> 7) |
    (zeroBytes(words[bucket + 2]! ^ tags) >>> 6) |
    (zeroBytes(words[bucket + 3]! ^ tags) >>> 5) |
    (zeroBytes(words[bucket + 4]! ^ tags) >>> 4)
  );
}

/** The highest bit of each byte that is zero, and of some above such a byte that are not. */
const zeroBytes = (word: number): number => (word - 0x01010101) & ~word & 0x80808080;

/** The place that the lowest bit of `matchesIn` is for, which has a bit; 15 is none. */
export function placeOf(matches: number): number {
  const bit = 31 - Math.clz32(matches & -matches);
  return 4 * (bit & 3) + (bit >>> 3);
}

/** The number of the node at a place (0 to 14) of the bucket that begins at word `bucket`; without meaning if empty. */
export function idIn(bytes: Uint8Array, bucket: number, place: number): number {
  const at = bucket * 4 + idAt + idBytes * place;
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16);
}

export const wasPassed = (words: Uint32Array, bucket: number): boolean => words[bucket]! >= pastOne;

export const countIn = (words: Uint32Array, bucket: number): number => words[bucket]! & countMask;

/** Counts a node that goes past (1), or one that is gone and had gone past (-1). */
export function pass(words: Uint32Array, bucket: number, nodes: 1 | -1): void {
  words[bucket]! += nodes * pastOne;
}

/** Puts a node into a bucket that is not full. */
export function putInto({ words, bytes }: Buckets, bucket: number, id: number, tag: number): void {
  const place = words[bucket]! & countMask;
  words[bucket]!++;
  bytes[bucket * 4 + tagAt + place] = tag;
  setId(bytes, bucket, place, id);
}

/** Takes the node at a place out; the last one of the bucket takes its place. */
export function takeOut({ words, bytes }: Buckets, bucket: number, place: number): void {
  words[bucket]!--;
  const last = words[bucket]! & countMask;
  const lastTagAt = bucket * 4 + tagAt + last;
  bytes[bucket * 4 + tagAt + place] = bytes[lastTagAt]!;
  setId(bytes, bucket, place, idIn(bytes, bucket, last));
  bytes[lastTagAt] = 0;
}

/** @returns the place of a node in a bucket, -1 when it is not there */
export function placeIn({ words, bytes }: Buckets, bucket: number, id: number, tag: number): number {
  for (let left = matchesIn(words, bucket, tag); left !== 0; left &= left - 1) {
    const place = placeOf(left);
    if (place < countIn(words, bucket) && idIn(bytes, bucket, place) === id) return place;
  }
  return -1;
}

function setId(bytes: Uint8Array, bucket: number, place: number, id: number): void {
  const at = bucket * 4 + idAt + idBytes * place;
  bytes[at] = id;
  bytes[at + 1] = id >>> 8;
  bytes[at + 2] = id >>> 16;
}
