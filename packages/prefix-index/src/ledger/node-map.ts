import type { NodeTable } from "./node-table.ts";

/** Keys that are warmed up at a time: so many cache lines fit where they are wanted. */
export const maxWarmKeys = 128;
const segmentCount = 64;
const segmentBits = 6;
const homeBits = 18;
const homeScale = 1 / (1 << homeBits);
/** A bucket is a cache line: how many nodes had to go past it, then the nodes, without gaps. */
const bucketWords = 16;
const bucketNodes = bucketWords - 1;
const growAboveLoad = 0.9;
const shrinkBelowLoad = 0.4;
const loadAfterShrinking = 0.7;
/** Up to so many buckets a segment doubles; above, finer steps keep idle memory below a fifth. */
const coarseBuckets = 64;
const coarseGrowth = 2;
const fineGrowth = 1.2;

/**
 * Finds nodes by 64-bit keys that are in the nodes themselves: an entry is a node's number and eight bits of its hash,
 * so that a look-up reads one cache line of the map and one node. Segments grow and shrink each for itself, which
 * bounds the work of one step to a 64th of the map.
 */
export class NodeMap {
  count = 0;
  readonly #table: NodeTable;
  readonly #keyAt: number;
  readonly #segments: Uint32Array[] = [];
  readonly #counts = new Uint32Array(segmentCount);
  readonly #hashes = new Uint32Array(maxWarmKeys);

  /** @param keyAt index of the key's low word in a node; the high word is the next */
  constructor(table: NodeTable, keyAt: number) {
    this.#table = table;
    this.#keyAt = keyAt;
    for (let segment = 0; segment < segmentCount; segment++) this.#segments.push(new Uint32Array(bucketWords));
  }

  get byteLength(): number {
    let total = 0;
    for (const segment of this.#segments) total += segment.byteLength;
    return total;
  }

  /** @returns the number of the node with this key, 0 when there is none */
  find(low: number, high: number): number {
    const hash = hashOf(low, high);
    const words = this.#segments[hash & (segmentCount - 1)]!;
    const nodes = this.#table.words;
    const { stride } = this.#table;
    const keyAt = this.#keyAt;
    const tag = tagOf(hash);
    let bucket = homeOf(hash, words);
    for (;;) {
      for (let at = bucket + 1; at < bucket + bucketWords; at++) {
        const entry = words[at]!;
        if (entry === 0) break;
        if ((entry & 0xff) !== tag) continue;
        const key = (entry >>> 8) * stride + keyAt;
        if (nodes[key] === low && nodes[key + 1] === high) return entry >>> 8;
      }
      if (words[bucket] === 0) return 0;
      bucket = nextBucket(bucket, words);
    }
  }

  /**
   * Looks at everything that look-ups of these keys will read, for all of them at a time, so that the waits for memory
   * overlap.
   *
   * @param keys two words each; `from` and `to` (at most `maxWarmKeys` apart) are counted in keys
   * @returns nothing of meaning; it is there to be used, so that the reads are not left out
   */
  warm(keys: Uint32Array, from: number, to: number): number {
    const hashes = this.#hashes;
    const segments = this.#segments;
    const nodes = this.#table.words;
    const { stride } = this.#table;
    let seen = 0;
    for (let key = from; key < to; key++) {
      const hash = hashOf(keys[2 * key]!, keys[2 * key + 1]!);
      hashes[key - from] = hash;
      const words = segments[hash & (segmentCount - 1)]!;
      seen ^= words[homeOf(hash, words) + 1]!;
    }
    for (let at = 0; at < to - from; at++) {
      const hash = hashes[at]!;
      const words = segments[hash & (segmentCount - 1)]!;
      const bucket = homeOf(hash, words);
      const tag = tagOf(hash);
      for (let slot = bucket + 1; slot < bucket + bucketWords; slot++) {
        if ((words[slot]! & 0xff) !== tag) continue;
        seen ^= nodes[(words[slot]! >>> 8) * stride]!;
        break;
      }
    }
    return seen;
  }

  /** Enters a node, whose key is not in the map. */
  add(id: number): void {
    const key = id * this.#table.stride + this.#keyAt;
    const hash = hashOf(this.#table.words[key]!, this.#table.words[key + 1]!);
    const segment = hash & (segmentCount - 1);
    const count = this.#counts[segment]! + 1;
    const buckets = this.#segments[segment]!.length / bucketWords;
    if (count > buckets * bucketNodes * growAboveLoad) {
      this.#rebuild(segment, Math.ceil(buckets * (buckets < coarseBuckets ? coarseGrowth : fineGrowth)));
    }
    this.#counts[segment] = count;
    this.count++;
    put(this.#segments[segment]!, hash, id);
  }

  /** Takes a node out, which is in the map and still has its key. */
  remove(id: number): void {
    const key = id * this.#table.stride + this.#keyAt;
    const hash = hashOf(this.#table.words[key]!, this.#table.words[key + 1]!);
    const segment = hash & (segmentCount - 1);
    const words = this.#segments[segment]!;
    const entry = ((id << 8) | tagOf(hash)) >>> 0;
    let bucket = homeOf(hash, words);
    let at = indexIn(bucket, words, entry);
    while (at === 0) {
      words[bucket]!--;
      bucket = nextBucket(bucket, words);
      at = indexIn(bucket, words, entry);
    }
    let last = bucket + bucketNodes;
    while (words[last] === 0) last--;
    words[at] = words[last]!;
    words[last] = 0;
    this.count--;
    const count = this.#counts[segment]! - 1;
    this.#counts[segment] = count;
    const buckets = words.length / bucketWords;
    if (buckets > 1 && count < buckets * bucketNodes * shrinkBelowLoad) {
      this.#rebuild(segment, Math.max(1, Math.ceil(count / bucketNodes / loadAfterShrinking)));
    }
  }

  #rebuild(segment: number, buckets: number): void {
    const old = this.#segments[segment]!;
    const words = new Uint32Array(buckets * bucketWords);
    const nodes = this.#table.words;
    const { stride } = this.#table;
    for (let bucket = 0; bucket < old.length; bucket += bucketWords) {
      for (let at = bucket + 1; at < bucket + bucketWords; at++) {
        const entry = old[at]!;
        if (entry === 0) break;
        const key = (entry >>> 8) * stride + this.#keyAt;
        put(words, hashOf(nodes[key]!, nodes[key + 1]!), entry >>> 8);
      }
    }
    this.#segments[segment] = words;
  }
}

/** Engines may number their blocks, so all bits of a key go into the hash (a finish in the manner of MurmurHash3). */
function hashOf(low: number, high: number): number {
  let hash = Math.imul(low, 0x9e3779b1) ^ Math.imul((high << 15) | (high >>> 17), 0x85ebca77);
  hash = Math.imul(hash ^ (hash >>> 15), 0xc2b2ae3d);
  hash = Math.imul(hash ^ (hash >>> 13), 0x27d4eb2f);
  return (hash ^ (hash >>> 16)) >>> 0;
}

const tagOf = (hash: number): number => (hash >>> segmentBits) & 0xff;

const homeOf = (hash: number, words: Uint32Array): number =>
  (((hash >>> (32 - homeBits)) * (words.length / bucketWords) * homeScale) | 0) * bucketWords;

const nextBucket = (bucket: number, words: Uint32Array): number =>
  bucket + bucketWords === words.length ? 0 : bucket + bucketWords;

/** @returns where in a bucket an entry is, 0 when it is not there */
function indexIn(bucket: number, words: Uint32Array, entry: number): number {
  for (let at = bucket + 1; at < bucket + bucketWords; at++) {
    if (words[at] === entry) return at;
  }
  return 0;
}

function put(words: Uint32Array, hash: number, id: number): void {
  let bucket = homeOf(hash, words);
  while (words[bucket + bucketNodes] !== 0) {
    words[bucket]!++;
    bucket = nextBucket(bucket, words);
  }
  let at = bucket + 1;
  while (words[at] !== 0) at++;
  words[at] = (id << 8) | tagOf(hash);
}
