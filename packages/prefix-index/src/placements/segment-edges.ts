import { noSegment, type Segments } from "./segments.ts";

const minBuckets = 256;

/** Finds the segment that continues another one, or begins a chain, with a given block. */
export class SegmentEdges {
  readonly #segments: Segments;
  #heads = new Uint32Array(minBuckets).fill(noSegment);

  constructor(segments: Segments) {
    this.#segments = segments;
  }

  get byteLength(): number {
    return this.#heads.byteLength;
  }

  /** @param parent `noSegment` for the first block of a chain */
  find(tree: number, parent: number, low: number, high: number): number {
    const segments = this.#segments;
    const pool = segments.pool.words;
    let segment = this.#heads[bucketOf(tree, parent, low) & (this.#heads.length - 1)]!;
    for (; segment !== noSegment; segment = segments.nextInBucket[segment]!) {
      const offset = segments.offset[segment]!;
      if (pool[offset] !== low || pool[offset + 1] !== high) continue;
      if (segments.parent[segment] === parent && segments.tree[segment] === tree) return segment;
    }
    return noSegment;
  }

  /** Files a segment whose tree, parent and first block are known. */
  add(segment: number): void {
    if (this.#segments.count > this.#heads.length) this.#rehash(this.#heads.length * 2);
    this.#link(segment);
  }

  remove(segment: number): void {
    const { nextInBucket } = this.#segments;
    const bucket = this.#bucketFor(segment);
    let before = this.#heads[bucket]!;
    if (before === segment) {
      this.#heads[bucket] = nextInBucket[segment]!;
      return;
    }
    while (nextInBucket[before] !== segment) before = nextInBucket[before]!;
    nextInBucket[before] = nextInBucket[segment]!;
  }

  #link(segment: number): void {
    const bucket = this.#bucketFor(segment);
    this.#segments.nextInBucket[segment] = this.#heads[bucket]!;
    this.#heads[bucket] = segment;
  }

  #bucketFor(segment: number): number {
    const { tree, parent, offset, pool } = this.#segments;
    const hash = bucketOf(tree[segment]!, parent[segment]!, pool.words[offset[segment]!]!);
    return hash & (this.#heads.length - 1);
  }

  #rehash(buckets: number): void {
    const old = this.#heads;
    this.#heads = new Uint32Array(buckets).fill(noSegment);
    for (let segment of old) {
      while (segment !== noSegment) {
        const next = this.#segments.nextInBucket[segment]!;
        this.#link(segment);
        segment = next;
      }
    }
  }
}

function bucketOf(tree: number, parent: number, low: number): number {
  const mixed = Math.imul(low ^ Math.imul(parent, 0x9e3779b1) ^ Math.imul(tree, 0x85ebca6b), 0xc2b2ae35);
  return mixed ^ (mixed >>> 15);
}
