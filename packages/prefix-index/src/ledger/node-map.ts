import type { NodeTable } from "./node-table.ts";

/** Bound of keys to warm at a time: their cache lines fit into the cache. */
export const maxWarmKeys = 128;

/**
 * A bucket of a `NodeMap`: the 64 bytes of a cache line, with space for 15 nodes. Word 0 has the number of nodes in it,
 * and the number of nodes that passed the bucket while it was full. Bytes 4 to 18 have a tag for each node, 1 to 255.
 * From byte 19 on are the node numbers, three bytes each. There are no gaps.
 */
const bucketWords = 16;
const bucketNodes = 15;

const segmentCount = 64;
const segmentBits = 6;
const homeBits = 18;
const homeScale = 1 / ((1 << homeBits) * bucketWords);
const growAboveLoad = 0.9;
const shrinkBelowLoad = 0.4;
const loadAfterShrinking = 0.7;
/** Up to this many buckets a segment doubles; above, finer steps keep idle memory below a fifth. */
const coarseBuckets = 64;
const coarseGrowth = 2;
const fineGrowth = 1.2;

/**
 * Finds nodes by 64-bit keys that the nodes themselves contain. The map has a node's number and eight bits of the key's
 * hash, so a lookup reads one cache line of the map and one node. Segments begin with their first node, and grow and shrink
 * independently, which bounds the work of one step to a 64th of the map.
 */
export class NodeMap {
  count = 0;
  readonly #table: NodeTable;
  readonly #keyAt: number;
  readonly #segments: Buckets[] = [];
  readonly #counts = new Uint32Array(segmentCount);
  readonly #hashes = new Uint32Array(maxWarmKeys);

  /** @param keyAt index of the key's low word in a node; the high word follows */
  constructor(table: NodeTable, keyAt: number) {
    this.#table = table;
    this.#keyAt = keyAt;
    for (let segment = 0; segment < segmentCount; segment++) this.#segments.push(noBuckets);
  }

  get byteLength(): number {
    let total = 0;
    for (const buckets of this.#segments) if (buckets !== noBuckets) total += buckets.words.byteLength;
    return total;
  }

  /**
   * Halves of a key may be signed or unsigned. Callers on a hot path pass signed ones, which do not allocate.
   *
   * @returns the number of the node with this key, 0 if there is none
   */
  find(keyLow: number, keyHigh: number): number {
    const low = keyLow | 0;
    const high = keyHigh | 0;
    const hash = hashOf(low, high);
    const { words, bytes } = this.#segments[hash & (segmentCount - 1)]!;
    const nodes = this.#table.words;
    const { stride } = this.#table;
    const keyAt = this.#keyAt;
    const tag = tagOf(hash);
    const home = homeOf(hash, words);
    let bucket = home;
    do {
      for (let left = matchesIn(words, bucket, tag); left !== 0; left &= left - 1) {
        const place = placeOf(left);
        if (place >= countIn(words, bucket)) continue;
        const id = idIn(bytes, bucket, place);
        const key = id * stride + keyAt;
        if ((nodes[key]! | 0) === low && (nodes[key + 1]! | 0) === high) return id;
      }
      if (!wasPassed(words, bucket)) return 0;
      bucket = nextBucket(bucket, words);
      // Nodes may have passed every bucket, though not all at the same time.
    } while (bucket !== home);
    return 0;
  }

  /**
   * Reads everything that lookups of these keys will read, for all of them at once, so that the memory latencies
   * overlap.
   *
   * @param keys two words each; `from` and `to` (at most `maxWarmKeys` apart) are counted in keys
   * @returns a meaningless value; use it, so that the reads are not optimized away
   */
  warm(keys: Uint32Array, from: number, to: number): number {
    const hashes = this.#hashes;
    const segments = this.#segments;
    const nodes = this.#table.words;
    const { stride } = this.#table;
    let seen = 0;
    for (let key = from; key < to; key++) {
      const hash = hashOf(keys[2 * key]! | 0, keys[2 * key + 1]! | 0);
      hashes[key - from] = hash;
      const { words } = segments[hash & (segmentCount - 1)]!;
      seen ^= words[homeOf(hash, words)]!;
    }
    for (let at = 0; at < to - from; at++) {
      const hash = hashes[at]! | 0;
      const { words, bytes } = segments[hash & (segmentCount - 1)]!;
      const bucket = homeOf(hash, words);
      const matches = matchesIn(words, bucket, tagOf(hash));
      const place = matches === 0 ? 0 : placeOf(matches);
      if (place < countIn(words, bucket)) seen ^= nodes[idIn(bytes, bucket, place) * stride]!;
    }
    return seen;
  }

  /** Adds a node whose key is not in the map. */
  add(id: number): void {
    const key = id * this.#table.stride + this.#keyAt;
    const hash = hashOf(this.#table.words[key]! | 0, this.#table.words[key + 1]! | 0);
    const segment = hash & (segmentCount - 1);
    const count = this.#counts[segment]! + 1;
    if (count === 1) this.#segments[segment] = createBuckets(1);
    const buckets = this.#segments[segment]!.words.length / bucketWords;
    if (count > buckets * bucketNodes * growAboveLoad) {
      this.#rebuild(segment, Math.ceil(buckets * (buckets < coarseBuckets ? coarseGrowth : fineGrowth)));
    }
    this.#counts[segment] = count;
    this.count++;
    put(this.#segments[segment]!, hash, id);
  }

  /** Removes a node that is in the map and still has its key. */
  remove(id: number): void {
    const key = id * this.#table.stride + this.#keyAt;
    const hash = hashOf(this.#table.words[key]! | 0, this.#table.words[key + 1]! | 0);
    const segment = hash & (segmentCount - 1);
    const buckets = this.#segments[segment]!;
    const { words } = buckets;
    const tag = tagOf(hash);
    let bucket = homeOf(hash, words);
    let place = placeIn(buckets, bucket, id, tag);
    while (place < 0) {
      pass(words, bucket, -1);
      bucket = nextBucket(bucket, words);
      place = placeIn(buckets, bucket, id, tag);
    }
    takeOut(buckets, bucket, place);
    this.count--;
    const count = this.#counts[segment]! - 1;
    this.#counts[segment] = count;
    const size = words.length / bucketWords;
    if (count === 0) this.#segments[segment] = noBuckets;
    else if (size > 1 && count < size * bucketNodes * shrinkBelowLoad) {
      this.#rebuild(segment, Math.max(1, Math.ceil(count / bucketNodes / loadAfterShrinking)));
    }
  }

  #rebuild(segment: number, size: number): void {
    const { words, bytes } = this.#segments[segment]!;
    const rebuilt = createBuckets(size);
    const nodes = this.#table.words;
    const { stride } = this.#table;
    for (let bucket = 0; bucket < words.length; bucket += bucketWords) {
      const count = countIn(words, bucket);
      for (let place = 0; place < count; place++) {
        const id = idIn(bytes, bucket, place);
        const key = id * stride + this.#keyAt;
        put(rebuilt, hashOf(nodes[key]! | 0, nodes[key + 1]! | 0), id);
      }
    }
    this.#segments[segment] = rebuilt;
  }
}

/** Engines may number their blocks, so all bits of a key enter the hash (a finalizer like that of MurmurHash3). */
function hashOf(low: number, high: number): number {
  let hash = Math.imul(low, 0x9e3779b1) ^ Math.imul((high << 15) | (high >>> 17), 0x85ebca77);
  hash = Math.imul(hash ^ (hash >>> 15), 0xc2b2ae3d);
  hash = Math.imul(hash ^ (hash >>> 13), 0x27d4eb2f);
  return hash ^ (hash >>> 16);
}

/** 1 to 255: empty places have the tag 0. */
const tagOf = (hash: number): number => ((((hash >>> segmentBits) & 0xff) * 0xff) >>> 8) + 1;

const homeOf = (hash: number, words: Uint32Array): number =>
  (((hash >>> (32 - homeBits)) * words.length * homeScale) | 0) * bucketWords;

const nextBucket = (bucket: number, words: Uint32Array): number =>
  bucket + bucketWords === words.length ? 0 : bucket + bucketWords;

function put(buckets: Buckets, hash: number, id: number): void {
  const { words } = buckets;
  let bucket = homeOf(hash, words);
  while (countIn(words, bucket) === bucketNodes) {
    pass(words, bucket, 1);
    bucket = nextBucket(bucket, words);
  }
  putInto(buckets, bucket, id, tagOf(hash));
}

const countMask = 0xf;
const pastOne = 0x10;
const tagAt = 4;
const idAt = 19;
const idBytes = 3;

/** The memory of buckets, in words and in bytes. */
interface Buckets {
  readonly words: Uint32Array;
  readonly bytes: Uint8Array;
}

function createBuckets(count: number): Buckets {
  const words = new Uint32Array(count * bucketWords);
  return { words, bytes: new Uint8Array(words.buffer) };
}

/** What every segment without nodes has: an engine's maps would else be hundreds of objects before its first block. */
const noBuckets: Buckets = createBuckets(1);

/** The slots of a bucket whose nodes have a tag, one bit each for `placeOf`. Rarely one too many. */
function matchesIn(words: Uint32Array, bucket: number, tag: number): number {
  const tags = tag * 0x01010101;
  return (
    (zeroBytes(words[bucket + 1]! ^ tags) >>> 7) |
    (zeroBytes(words[bucket + 2]! ^ tags) >>> 6) |
    (zeroBytes(words[bucket + 3]! ^ tags) >>> 5) |
    (zeroBytes(words[bucket + 4]! ^ tags) >>> 4)
  );
}

/** The highest bit of each zero byte, and of some bytes above one that are not zero. */
const zeroBytes = (word: number): number => (word - 0x01010101) & ~word & 0x80808080;

/** The slot of the lowest bit of `matchesIn`; 15 for none. */
function placeOf(matches: number): number {
  const bit = 31 - Math.clz32(matches & -matches);
  return 4 * (bit & 3) + (bit >>> 3);
}

/**
 * The number of the node in a slot (0 to 14) of the bucket that begins at word `bucket`; undefined if the slot is
 * empty.
 */
function idIn(bytes: Uint8Array, bucket: number, place: number): number {
  const at = bucket * 4 + idAt + idBytes * place;
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16);
}

const wasPassed = (words: Uint32Array, bucket: number): boolean => words[bucket]! >= pastOne;

const countIn = (words: Uint32Array, bucket: number): number => words[bucket]! & countMask;

/** Counts a node that passes the bucket (1), or the removal of one that had passed it (-1). */
function pass(words: Uint32Array, bucket: number, nodes: 1 | -1): void {
  words[bucket]! += nodes * pastOne;
}

/** Adds a node to a bucket that is not full. */
function putInto({ words, bytes }: Buckets, bucket: number, id: number, tag: number): void {
  const place = words[bucket]! & countMask;
  words[bucket]!++;
  bytes[bucket * 4 + tagAt + place] = tag;
  setId(bytes, bucket, place, id);
}

/** Removes the node in a slot; the last one of the bucket takes its slot. */
function takeOut({ words, bytes }: Buckets, bucket: number, place: number): void {
  words[bucket]!--;
  const last = words[bucket]! & countMask;
  const lastTagAt = bucket * 4 + tagAt + last;
  bytes[bucket * 4 + tagAt + place] = bytes[lastTagAt]!;
  setId(bytes, bucket, place, idIn(bytes, bucket, last));
  bytes[lastTagAt] = 0;
}

/** @returns the slot of a node in a bucket, -1 if it is not there */
function placeIn({ words, bytes }: Buckets, bucket: number, id: number, tag: number): number {
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
