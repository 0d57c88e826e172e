import { GrowableWords, WordPool } from "../table/word-pool.ts";

/** Stands for "no segment". */
export const noSegment = 0xffff_ffff;

/** Bound of blocks in one segment; a longer run is a chain of several. */
export const maxSegmentBlocks = 256;

const wordColumns = 13;
const floatColumns = 5;
/** The pool rounds records up, by at most a third. */
const poolSlack = 1.5;

/**
 * The storage of segments. A segment is a run of blocks of one target that were always used together; it continues
 * another segment or begins a chain. Columns are indexed by segment. Growing replaces them, so read them from here.
 */
export class Segments {
  /** In the caller's monotonic milliseconds. */
  lastUseMs!: Float64Array;
  /** Number of the last use, in the order of all uses. */
  lastUse!: Float64Array;
  expiryMs!: Float64Array;
  /** 0 if no engine has confirmed it. */
  confirmedUntilMs!: Float64Array;
  /** Key of the segment in the heap of its tree: its expiry, or an earlier one. */
  filedMs!: Float64Array;
  /** Offset of its hashes in the pool. */
  offset!: Uint32Array;
  /** In blocks. */
  length!: Uint32Array;
  /** Depth of its first block in the chain. */
  start!: Uint32Array;
  parent!: Uint32Array;
  firstChild!: Uint32Array;
  nextSibling!: Uint32Array;
  previousSibling!: Uint32Array;
  /** Neighbours in the order of last use within the tree. */
  newer!: Uint32Array;
  older!: Uint32Array;
  heapPlace!: Uint32Array;
  /** The number of its tree. */
  tree!: Uint32Array;
  /** Next segment with the same hash of parent and first block. */
  nextInBucket!: Uint32Array;
  /** Last user, by a number that the caller defines. */
  lastUser!: Uint32Array;
  /** Segments in use. */
  count = 0;
  readonly pool: WordPool;
  readonly #words: readonly GrowableWords[];
  readonly #floats: readonly GrowableWords[];
  readonly #maxSegments: number;
  #capacity = 0;
  #handedOut = 0;
  #firstFree = noSegment;

  constructor({ maxSegments, maxBlocks }: { maxSegments: number; maxBlocks: number }) {
    this.#maxSegments = maxSegments;
    this.pool = new WordPool(Math.ceil(maxBlocks * 2 * poolSlack));
    this.#words = Array.from({ length: wordColumns }, () => new GrowableWords(maxSegments, 0));
    this.#floats = Array.from({ length: floatColumns }, () => new GrowableWords(maxSegments * 2, 0));
    this.#grow(Math.min(maxSegments, 64));
  }

  get byteLength(): number {
    return this.#capacity * (wordColumns * 4 + floatColumns * 8) + this.pool.byteLength;
  }

  /** @returns a segment of `blocks` blocks, with other columns undefined, or `noSegment` if it does not fit */
  allocate(blocks: number): number {
    if (this.#firstFree === noSegment && this.#handedOut === this.#maxSegments) return noSegment;
    const offset = this.pool.allocate(blocks * 2);
    if (offset < 0) return noSegment;
    let segment = this.#firstFree;
    if (segment !== noSegment) this.#firstFree = this.nextInBucket[segment]!;
    else {
      segment = this.#handedOut++;
      if (segment === this.#capacity) this.#grow(Math.min(this.#maxSegments, this.#capacity * 2));
    }
    this.offset[segment] = offset;
    this.length[segment] = blocks;
    this.count++;
    return segment;
  }

  /** Copies the last use and the expiry of another segment. */
  copyUse(segment: number, from: number): void {
    this.lastUseMs[segment] = this.lastUseMs[from]!;
    this.lastUse[segment] = this.lastUse[from]!;
    this.lastUser[segment] = this.lastUser[from]!;
    this.expiryMs[segment] = this.expiryMs[from]!;
    this.confirmedUntilMs[segment] = this.confirmedUntilMs[from]!;
  }

  /** Frees a segment and its hashes. */
  free(segment: number): void {
    this.pool.free(this.offset[segment]!);
    this.nextInBucket[segment] = this.#firstFree;
    this.#firstFree = segment;
    this.count--;
  }

  /**
   * Moves the hashes of a segment to a record of another length.
   *
   * @returns false if it does not fit, and nothing changed
   */
  resize(segment: number, blocks: number): boolean {
    const offset = this.pool.allocate(blocks * 2);
    if (offset < 0) return false;
    const old = this.offset[segment]!;
    this.pool.words.copyWithin(offset, old, old + Math.min(blocks, this.length[segment]!) * 2);
    this.pool.free(old);
    this.offset[segment] = offset;
    return true;
  }

  /** Writes hashes of `words` into a segment that is long enough, from its block `at`. */
  write(segment: number, at: number, words: Uint32Array, { from, to }: { from: number; to: number }): void {
    const pool = this.pool.words;
    let target = this.offset[segment]! + at * 2;
    for (let source = from * 2; source < to * 2; source++) pool[target++] = words[source]!;
  }

  /** Reduces a segment to `blocks` of its blocks, from its block `from`. */
  keep(segment: number, from: number, blocks: number): void {
    const offset = this.offset[segment]!;
    this.pool.words.copyWithin(offset, offset + from * 2, offset + (from + blocks) * 2);
    this.length[segment] = blocks;
    if (this.pool.roomAt(offset) >= blocks * 4) this.resize(segment, blocks);
  }

  /** How many blocks of a chain from `from` on match a segment; a hash identifies all blocks before it. */
  commonBlocks(segment: number, words: Uint32Array, from: number, blockCount: number): number {
    const pool = this.pool.words;
    const base = this.offset[segment]!;
    let missing = Math.min(this.length[segment]!, blockCount - from) + 1;
    let common = 0;
    let probe = missing - 1;
    while (missing - common > 1) {
      const ours = base + (probe - 1) * 2;
      const theirs = (from + probe - 1) * 2;
      if (pool[ours] === words[theirs] && pool[ours + 1] === words[theirs + 1]) common = probe;
      else missing = probe;
      probe = (common + missing) >>> 1;
    }
    return common;
  }

  #grow(capacity: number): void {
    for (const column of this.#words) column.ensure(capacity);
    for (const column of this.#floats) column.ensure(capacity * 2);
    this.#capacity = capacity;
    const [
      offset,
      length,
      start,
      parent,
      firstChild,
      nextSibling,
      previousSibling,
      newer,
      older,
      place,
      tree,
      next,
      user,
    ] = this.#words.map(({ words }) => words);
    const [lastUseMs, expiryMs, confirmedUntilMs, filedMs, lastUse] = this.#floats.map(({ floats }) => floats);
    this.lastUseMs = lastUseMs!;
    this.expiryMs = expiryMs!;
    this.confirmedUntilMs = confirmedUntilMs!;
    this.filedMs = filedMs!;
    this.lastUse = lastUse!;
    this.offset = offset!;
    this.length = length!;
    this.start = start!;
    this.parent = parent!;
    this.firstChild = firstChild!;
    this.nextSibling = nextSibling!;
    this.previousSibling = previousSibling!;
    this.newer = newer!;
    this.older = older!;
    this.heapPlace = place!;
    this.tree = tree!;
    this.nextInBucket = next!;
    this.lastUser = user!;
  }
}

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

  /** Adds a segment whose tree, parent and first block are set. */
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
