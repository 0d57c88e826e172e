import type { HolderTable } from "../table/holder-table.ts";
import { maxSegmentBlocks, noSegment, type SegmentEdges, type Segments } from "./segments.ts";

/** Time of a use, and until when the chain counts. Monotonic milliseconds of the caller. */
export interface PlacementUse {
  /** Counts the uses of all targets, from 1. */
  readonly number: number;
  readonly nowMs: number;
  readonly expiryMs: number;
  /** 0 if the engine has confirmed nothing. */
  readonly confirmedUntilMs: number;
  /** A small number that the caller defines. */
  readonly by: number;
}

/** The part of a chain from `depth` to `blockCount` (exclusive), which is not placed yet. */
interface Continuation {
  readonly depth: number;
  readonly blockCount: number;
  readonly use: PlacementUse;
}

/** Storage that the trees of all targets share. */
export interface PlacementStorage {
  readonly segments: Segments;
  readonly edges: SegmentEdges;
  /** The targets with a placement that begins with a block. */
  readonly roots: HolderTable;
}

/**
 * The placements of one target as a radix tree of segments, listed by last use. A use covers a chain from its first
 * block, so no segment is used or expires later than the one it continues: the oldest is always a leaf.
 */
export class PlacementTree {
  /** Placed blocks, including expired ones not yet collected. */
  blocks = 0;
  /** Set when the target's engine starts a new epoch: the tree only waits to be dismantled. */
  isGivenUp = false;
  readonly number: number;
  readonly #target: number;
  readonly #storage: PlacementStorage;
  readonly #segments: Segments;
  readonly #heap: ExpiryHeap;
  readonly #recency: RecencyList;

  /** @param number identifies this tree among all others, including earlier ones of the target */
  constructor(target: number, number: number, storage: PlacementStorage) {
    this.number = number;
    this.#target = target;
    this.#storage = storage;
    this.#segments = storage.segments;
    this.#heap = new ExpiryHeap(storage.segments);
    this.#recency = new RecencyList(storage.segments);
  }

  get byteLength(): number {
    return this.#heap.byteLength;
  }

  /**
   * The most recently used segment. `older` leads from it through all; a segment comes before those that continue it.
   */
  get newest(): number {
    return this.#recency.newest;
  }

  /** The segment that continues `parent` with the block at `depth` of a chain. */
  next(parent: number, words: Uint32Array, depth: number): number {
    return this.#storage.edges.find(this.number, parent, words[depth * 2]!, words[depth * 2 + 1]!);
  }

  /**
   * Places the first blocks of a chain.
   *
   * @returns how many of them are placed: fewer than asked if they do not fit
   */
  use(words: Uint32Array, blockCount: number, use: PlacementUse): number {
    const segments = this.#segments;
    let depth = 0;
    let last = noSegment;
    while (depth < blockCount) {
      const segment = this.next(last, words, depth);
      if (segment === noSegment) break;
      const common = segments.commonBlocks(segment, words, depth, blockCount);
      const used = common < segments.length[segment]! ? this.#split(segment, common) : segment;
      if (used === noSegment) break;
      last = used;
      depth += common;
    }
    if (depth < blockCount && last !== noSegment) depth += this.#extend(last, words, { depth, blockCount, use });
    // What is placed but could not be split must not be placed a second time.
    while (depth < blockCount && this.next(last, words, depth) === noSegment) {
      const end = Math.min(blockCount, depth + maxSegmentBlocks);
      const added = this.#append(last, words, { depth, blockCount: end, use });
      if (added === noSegment) break;
      last = added;
      depth = end;
    }
    this.#touch(last, use);
    return depth;
  }

  /**
   * Drops a block of a chain and all that continues it.
   *
   * @returns how many blocks are dropped
   */
  cut(words: Uint32Array, depth: number): number {
    const segments = this.#segments;
    let parent = noSegment;
    for (let at = 0; ; ) {
      const segment = this.next(parent, words, at);
      if (segment === noSegment) return 0;
      const common = segments.commonBlocks(segment, words, at, depth + 1);
      if (at + common <= depth) {
        if (common < segments.length[segment]!) return 0;
        at += common;
        parent = segment;
        continue;
      }
      // If a split does not fit, the whole segment goes: a placement is a guess, and losing one does no harm.
      if (at < depth) this.#split(segment, depth - at);
      const before = this.blocks;
      while (this.blocks > 0) {
        const leaf = this.#leafBelow(segment);
        this.#drop(leaf);
        if (leaf === segment) break;
      }
      return before - this.blocks;
    }
  }

  /** Drops the least recently used blocks until at most `maxBlocks` are left. */
  shrinkTo(maxBlocks: number): void {
    const segments = this.#segments;
    while (this.blocks > maxBlocks) {
      const segment = this.#recency.oldest;
      const left = segments.length[segment]! - (this.blocks - maxBlocks);
      if (left <= 0) {
        this.#drop(segment);
        continue;
      }
      segments.keep(segment, 0, left);
      this.blocks = maxBlocks;
    }
  }

  /**
   * Collects expired segments.
   *
   * @returns the budget that is left
   */
  expire(nowMs: number, budget: number): number {
    let left = budget;
    for (; left > 0; left--) {
      const segment = this.#heap.expiredAt(nowMs);
      if (segment === noSegment) break;
      this.#drop(this.#leafBelow(segment));
    }
    return left;
  }

  /** Drops up to `budget` segments of an abandoned tree. Returns the budget that is left. */
  dismantle(budget: number): number {
    let left = budget;
    for (; left > 0 && this.#recency.oldest !== noSegment; left--) this.#drop(this.#recency.oldest);
    return left;
  }

  #leafBelow(segment: number): number {
    const { firstChild } = this.#segments;
    let leaf = segment;
    while (firstChild[leaf] !== noSegment) leaf = firstChild[leaf]!;
    return leaf;
  }

  /**
   * Extends a leaf if it and its continuation have the same state after this use.
   *
   * @returns by how many blocks
   */
  #extend(leaf: number, words: Uint32Array, { depth, blockCount, use }: Continuation): number {
    const segments = this.#segments;
    const length = segments.length[leaf]!;
    const blocks = Math.min(maxSegmentBlocks - length, blockCount - depth);
    const isAlike =
      segments.expiryMs[leaf]! <= use.expiryMs && segments.confirmedUntilMs[leaf]! <= use.confirmedUntilMs;
    if (segments.firstChild[leaf] !== noSegment || !isAlike || blocks <= 0) return 0;
    const isRoomy = segments.pool.roomAt(segments.offset[leaf]!) >= (length + blocks) * 2;
    if (!isRoomy && !segments.resize(leaf, length + blocks)) return 0;
    segments.write(leaf, length, words, { from: depth, to: depth + blocks });
    segments.length[leaf] = length + blocks;
    this.blocks += blocks;
    return blocks;
  }

  /** Adds a segment that continues `parent`; it is touched with the rest of its chain. */
  #append(parent: number, words: Uint32Array, { depth, blockCount, use }: Continuation): number {
    const segments = this.#segments;
    const blocks = blockCount - depth;
    const segment = segments.allocate(blocks);
    if (segment === noSegment) return noSegment;
    segments.write(segment, 0, words, { from: depth, to: blockCount });
    segments.start[segment] = depth;
    segments.expiryMs[segment] = use.expiryMs;
    segments.confirmedUntilMs[segment] = use.confirmedUntilMs;
    segments.firstChild[segment] = noSegment;
    this.#link(segment, parent);
    this.#recency.insertNewest(segment);
    this.#heap.add(segment);
    this.blocks += blocks;
    if (parent === noSegment) this.#storage.roots.store(this.#target, words, 0, 1);
    return segment;
  }

  /** Marks a chain as used, from its end, so that deeper blocks count as older. */
  #touch(last: number, { number, nowMs, expiryMs, confirmedUntilMs, by }: PlacementUse): void {
    const segments = this.#segments;
    for (let segment = last; segment !== noSegment; segment = segments.parent[segment]!) {
      this.#recency.remove(segment);
      this.#recency.insertNewest(segment);
      segments.lastUse[segment] = number;
      segments.lastUseMs[segment] = nowMs;
      segments.lastUser[segment] = by;
      segments.expiryMs[segment] = Math.max(segments.expiryMs[segment]!, expiryMs);
      segments.confirmedUntilMs[segment] = Math.max(segments.confirmedUntilMs[segment]!, confirmedUntilMs);
    }
  }

  /**
   * Splits the first `blocks` of a segment from the rest, which keeps its number and all that continues it.
   *
   * @returns the segment of the first part, or `noSegment` if it does not fit and nothing changed
   */
  #split(rest: number, blocks: number): number {
    const segments = this.#segments;
    const head = segments.allocate(blocks);
    if (head === noSegment) return noSegment;
    const parent = segments.parent[rest]!;
    const offset = segments.offset[rest]! >> 1;
    segments.write(head, 0, segments.pool.words, { from: offset, to: offset + blocks });
    segments.start[head] = segments.start[rest]!;
    segments.copyUse(head, rest);
    segments.firstChild[head] = noSegment;
    this.#unlink(rest);
    this.#link(head, parent);
    segments.keep(rest, blocks, segments.length[rest]! - blocks);
    segments.start[rest]! += blocks;
    this.#link(rest, head);
    this.#recency.insertNewerThan(rest, head);
    this.#heap.add(head);
    return head;
  }

  /** Drops a segment without continuations. */
  #drop(segment: number): void {
    const segments = this.#segments;
    const offset = segments.offset[segment]! >> 1;
    if (segments.parent[segment] === noSegment && !this.isGivenUp) {
      this.#storage.roots.remove(this.#target, segments.pool.words, offset, offset + 1);
    }
    this.#heap.remove(segment);
    this.#recency.remove(segment);
    this.#unlink(segment);
    this.blocks -= segments.length[segment]!;
    segments.free(segment);
  }

  /** Makes a segment findable as a continuation of `parent`. */
  #link(segment: number, parent: number): void {
    const segments = this.#segments;
    segments.tree[segment] = this.number;
    segments.parent[segment] = parent;
    segments.previousSibling[segment] = noSegment;
    segments.nextSibling[segment] = noSegment;
    if (parent !== noSegment) {
      const first = segments.firstChild[parent]!;
      segments.nextSibling[segment] = first;
      if (first !== noSegment) segments.previousSibling[first] = segment;
      segments.firstChild[parent] = segment;
    }
    this.#storage.edges.add(segment);
  }

  #unlink(segment: number): void {
    const { parent, nextSibling, previousSibling, firstChild } = this.#segments;
    const next = nextSibling[segment]!;
    const previous = previousSibling[segment]!;
    if (next !== noSegment) previousSibling[next] = previous;
    if (previous !== noSegment) nextSibling[previous] = next;
    else if (parent[segment] !== noSegment) firstChild[parent[segment]!] = next;
    this.#storage.edges.remove(segment);
  }
}

const minPlaces = 8;

/**
 * The segments of one tree by expiry. A segment whose expiry moves later stays in place until it reaches the top, so
 * using a segment costs nothing here.
 */
class ExpiryHeap {
  readonly #segments: Segments;
  #places = new Uint32Array(minPlaces);
  #count = 0;

  constructor(segments: Segments) {
    this.#segments = segments;
  }

  get byteLength(): number {
    return this.#places.byteLength;
  }

  add(segment: number): void {
    if (this.#count === this.#places.length) this.#resize(this.#count * 2);
    this.#segments.filedMs[segment] = this.#segments.expiryMs[segment]!;
    this.#rise(this.#count++, segment);
  }

  remove(segment: number): void {
    const place = this.#segments.heapPlace[segment]!;
    const last = this.#places[--this.#count]!;
    if (last !== segment) {
      this.#sink(place, last);
      if (this.#places[place] === last) this.#rise(place, last);
    }
    if (this.#places.length > minPlaces && this.#count * 4 < this.#places.length) this.#resize(this.#places.length / 2);
  }

  /** @returns an expired segment, or `noSegment` */
  expiredAt(nowMs: number): number {
    const { filedMs, expiryMs } = this.#segments;
    while (this.#count > 0) {
      const segment = this.#places[0]!;
      if (filedMs[segment]! > nowMs) return noSegment;
      if (expiryMs[segment]! <= nowMs) return segment;
      filedMs[segment] = expiryMs[segment]!;
      this.#sink(0, segment);
    }
    return noSegment;
  }

  #rise(from: number, segment: number): void {
    const { filedMs, heapPlace } = this.#segments;
    const places = this.#places;
    let place = from;
    while (place > 0) {
      const above = (place - 1) >>> 1;
      if (filedMs[places[above]!]! <= filedMs[segment]!) break;
      places[place] = places[above]!;
      heapPlace[places[place]!] = place;
      place = above;
    }
    places[place] = segment;
    heapPlace[segment] = place;
  }

  #sink(from: number, segment: number): void {
    const { filedMs, heapPlace } = this.#segments;
    const places = this.#places;
    let place = from;
    for (;;) {
      let below = place * 2 + 1;
      if (below >= this.#count) break;
      if (below + 1 < this.#count && filedMs[places[below + 1]!]! < filedMs[places[below]!]!) below++;
      if (filedMs[places[below]!]! >= filedMs[segment]!) break;
      places[place] = places[below]!;
      heapPlace[places[place]!] = place;
      place = below;
    }
    places[place] = segment;
    heapPlace[segment] = place;
  }

  #resize(length: number): void {
    const places = new Uint32Array(length);
    places.set(this.#places.subarray(0, this.#count));
    this.#places = places;
  }
}

/** The segments of one tree in the order of last use. */
class RecencyList {
  newest = noSegment;
  oldest = noSegment;
  readonly #segments: Segments;

  constructor(segments: Segments) {
    this.#segments = segments;
  }

  insertNewest(segment: number): void {
    this.insertNewerThan(this.newest, segment);
  }

  /** @param neighbour a listed segment, or `noSegment` if none is listed */
  insertNewerThan(neighbour: number, segment: number): void {
    const { newer, older } = this.#segments;
    const above = neighbour === noSegment ? noSegment : newer[neighbour]!;
    older[segment] = neighbour;
    newer[segment] = above;
    if (neighbour === noSegment) this.oldest = segment;
    else newer[neighbour] = segment;
    if (above === noSegment) this.newest = segment;
    else older[above] = segment;
  }

  remove(segment: number): void {
    const { newer, older } = this.#segments;
    const above = newer[segment]!;
    const below = older[segment]!;
    if (above === noSegment) this.newest = below;
    else older[above] = below;
    if (below === noSegment) this.oldest = above;
    else newer[below] = above;
  }
}
