import { listTarget, type PrefixMatches } from "../prefix-matches.ts";
import { HolderTable } from "../table/holder-table.ts";
import { DroppedBlocks } from "./dropped-blocks.ts";
import { type PlacementStorage, PlacementTree, type PlacementUse } from "./placement-tree.ts";
import { noSegment, SegmentEdges, Segments } from "./segments.ts";

export interface PlacementsOptions {
  /** Targets are 0 to this, exclusive. */
  readonly maxTargets: number;
  /** Bound on placed blocks of one target. The least recently used go first, and within a run the deepest. */
  readonly maxBlocksPerTarget: number;
  /** Bound on placed blocks of all targets. Placements beyond it are refused. */
  readonly maxBlocks: number;
  /**
   * Bound on segments, the stretches between the points where chains diverge. Placements that need more are refused.
   */
  readonly maxSegments: number;
  /** Bound on dropped blocks that are remembered, a power of two. */
  readonly maxDroppedBlocks: number;
}

/** Start and duration of a placement. `nowMs` is the caller's monotonic clock. */
export interface PlacementTime {
  readonly nowMs: number;
  readonly ttlMs: number;
  /** Who places it: a small number that the caller defines, 0 by default. */
  readonly by?: number;
}

/** The blocks of a chain from `from` to `blockCount` (exclusive), which an engine did not hold. */
export interface RefutedBlocks {
  readonly from: number;
  readonly blockCount: number;
  readonly nowMs: number;
}

/** Collecting expired placements moves to the next target after this many segments. */
const segmentsPerTurn = 256;

/**
 * Predictions of what engines will hold: chains that were sent to targets. A query sees only what was placed, confirmed
 * and refuted, and the times given; `expire` and `sweep` reclaim memory and change no answer.
 */
export class Placements {
  /** Blocks refused at a bound on all targets. */
  refusedBlocks = 0;
  readonly #options: PlacementsOptions;
  readonly #storage: PlacementStorage;
  readonly #trees: (PlacementTree | undefined)[];
  readonly #candidates: Int32Array;
  readonly #capacities: Int32Array;
  readonly #dropped: DroppedBlocks;
  #uses = 0;
  #givenUp: PlacementTree[] = [];
  #nextNumber = 0;
  #nextTurn = 0;

  constructor(options: PlacementsOptions) {
    const { maxTargets, maxSegments } = options;
    this.#options = options;
    const segments = new Segments(options);
    const roots = new HolderTable({
      maxHolders: maxTargets,
      maxBlocks: maxSegments,
      maxSets: maxSegments,
      maxHoles: 0,
    });
    this.#storage = { segments, edges: new SegmentEdges(segments), roots };
    this.#trees = new Array<PlacementTree | undefined>(maxTargets).fill(undefined);
    this.#candidates = new Int32Array(maxTargets);
    this.#capacities = new Int32Array(maxTargets).fill(options.maxBlocksPerTarget);
    this.#dropped = new DroppedBlocks(options.maxDroppedBlocks);
  }

  get byteLength(): number {
    const { segments, edges, roots } = this.#storage;
    let heaps = 0;
    for (const tree of this.#trees) heaps += tree?.byteLength ?? 0;
    return segments.byteLength + edges.byteLength + roots.byteLength + this.#dropped.byteLength + heaps;
  }

  /** The tree of a target, for callers that walk it. */
  treeOf(target: number): PlacementTree | undefined {
    return this.#trees[target];
  }

  /** The targets with placements, ascending. */
  placedTargets(): number[] {
    return this.#trees.flatMap((tree, target) => (tree && tree.blocks > 0 ? [target] : []));
  }

  get storage(): PlacementStorage {
    return this.#storage;
  }

  /** Placed blocks of a target, including expired ones not yet collected. */
  blockCount(target: number): number {
    return this.#trees[target]?.blocks ?? 0;
  }

  /** Sets how many blocks of a target are believed, up to the bound on every target. Applies from the next use. */
  setCapacity(target: number, blocks: number): void {
    this.#capacities[target] = Math.max(1, Math.min(blocks, this.#options.maxBlocksPerTarget));
  }

  /** Placed blocks of all targets, including expired ones not yet collected. */
  get placedBlocks(): number {
    let blocks = 0;
    for (const tree of this.#trees) blocks += tree?.blocks ?? 0;
    return blocks;
  }

  /**
   * Records that a chain was sent to a target. Expiry only moves later: a later use with a shorter TTL does not shorten
   * an earlier one.
   */
  place(target: number, words: Uint32Array, blockCount: number, { nowMs, ttlMs, by = 0 }: PlacementTime): void {
    this.#use(target, words, blockCount, {
      number: ++this.#uses,
      nowMs,
      expiryMs: nowMs + ttlMs,
      confirmedUntilMs: 0,
      by,
    });
  }

  /** Records that an engine itself reported that it holds a chain. */
  confirm(target: number, words: Uint32Array, blockCount: number, { nowMs, ttlMs, by = 0 }: PlacementTime): void {
    const expiryMs = nowMs + ttlMs;
    this.#use(target, words, blockCount, { number: ++this.#uses, nowMs, expiryMs, confirmedUntilMs: expiryMs, by });
  }

  /**
   * Records that an engine did not hold the block at depth `from` of a chain. Drops the block and all that continues
   * it.
   *
   * @returns how many blocks are dropped
   */
  refute(target: number, words: Uint32Array, { from, blockCount, nowMs }: RefutedBlocks): number {
    if (blockCount * 2 > words.length) throw new RangeError(`${words.length} words are no ${blockCount} blocks`);
    const tree = this.#tree(target);
    if (!tree || from < 0 || from >= blockCount) return 0;
    tree.expire(nowMs, Number.POSITIVE_INFINITY);
    return tree.cut(words, from);
  }

  /**
   * Records that an engine dropped the blocks `from` to `to` (exclusive) of `words`: what was placed before does not
   * count from them on. What is placed later does, as the engine computes them again.
   */
  dropped(target: number, words: Uint32Array, from: number, to: number): void {
    if (!this.#tree(target)) return;
    for (let block = from; block < to; block++) {
      this.#dropped.add(target, words[block * 2]!, words[block * 2 + 1]!, this.#uses);
    }
  }

  /** Drops all placements of a target in one step, whatever their number. */
  clear(target: number): void {
    const tree = this.#tree(target);
    if (!tree) return;
    tree.isGivenUp = true;
    this.#givenUp.push(tree);
    this.#trees[target] = undefined;
    this.#storage.roots.clear(target);
  }

  /**
   * Finds the targets that a chain, or its beginning, was sent to: lists them, and writes what is placed there. Reads
   * `gpuBlocks`, which are known to be held, dropped or not.
   *
   * @param resumesAtEnds 1 for a hybrid model. vLLM keeps what such a model needs at the ends of prompts and where two
   *   part, so a placed chain counts up to the last such end.
   * @throws RangeError if `words` is shorter than `blockCount` says
   */
  match(
    words: Uint32Array,
    blockCount: number,
    nowMs: number,
    out: PrefixMatches,
    resumesAtEnds?: Readonly<Uint8Array>,
  ): void {
    if (blockCount * 2 > words.length) throw new RangeError(`${words.length} words are no ${blockCount} blocks`);
    if (blockCount <= 0) return;
    const candidates = this.#storage.roots.holdersOf(words, 0, this.#candidates);
    for (let index = 0; index < candidates; index++) {
      const target = this.#candidates[index]!;
      this.#matchTarget(target, words, { blockCount, nowMs, resumesAtEnds: resumesAtEnds?.[target] === 1 }, out);
    }
  }

  /**
   * Collects about this many expired or abandoned segments, and slots of cleared targets.
   *
   * @returns whether more is left to do
   */
  expire(nowMs: number, budgetSegments: number): boolean {
    let left = budgetSegments;
    while (left > 0 && this.#givenUp.length > 0) {
      left = this.#givenUp.at(-1)!.dismantle(left);
      if (left > 0) this.#givenUp.pop();
    }
    for (let visited = 0; left > 0 && visited < this.#trees.length; visited++) {
      const turn = Math.min(left, segmentsPerTurn);
      const kept = this.#expireTarget(this.#nextTurn, nowMs, turn);
      left -= turn - kept;
      if (kept === 0) visited = -1;
      this.#nextTurn = (this.#nextTurn + 1) % this.#trees.length;
    }
    const isSwept = !this.#storage.roots.sweep(budgetSegments);
    return left === 0 || !isSwept;
  }

  #expireTarget(target: number, nowMs: number, budget: number): number {
    const tree = this.#trees[target];
    if (!tree) return budget;
    const left = tree.expire(nowMs, budget);
    if (tree.blocks === 0) this.#trees[target] = undefined;
    return left;
  }

  #use(target: number, words: Uint32Array, blockCount: number, use: PlacementUse): void {
    if (blockCount * 2 > words.length) throw new RangeError(`${words.length} words are no ${blockCount} blocks`);
    let tree = this.#tree(target);
    const capacity = this.#capacities[target]!;
    const blocks = Math.min(blockCount, capacity);
    if (blocks <= 0 || use.expiryMs <= use.nowMs) return;
    if (!tree) {
      tree = new PlacementTree(target, this.#nextNumber++, this.#storage);
      this.#trees[target] = tree;
    }
    // Expired blocks must not displace live ones.
    tree.expire(use.nowMs, Number.POSITIVE_INFINITY);
    this.refusedBlocks += blocks - tree.use(words, blocks, use);
    tree.shrinkTo(capacity);
  }

  #tree(target: number): PlacementTree | undefined {
    const last = this.#trees.length - 1;
    if (!(target >= 0 && target <= last)) throw new RangeError(`target ${target} is not in 0..${last}`);
    return this.#trees[target];
  }

  #matchTarget(
    target: number,
    words: Uint32Array,
    { blockCount, nowMs, resumesAtEnds }: { blockCount: number; nowMs: number; resumesAtEnds: boolean },
    out: PrefixMatches,
  ): void {
    const { segments } = this.#storage;
    const tree = this.#trees[target]!;
    const announced = out.gpuBlocks[target]!;
    let last = noSegment;
    let depth = 0;
    let confirmedDepth = 0;
    /** The use whose first unannounced block was not dropped since. */
    let upheld = 0;
    for (let segment = tree.next(noSegment, words, 0); segment !== noSegment; segment = tree.next(last, words, depth)) {
      if (segments.expiryMs[segment]! <= nowMs) break;
      const end = depth + segments.commonBlocks(segment, words, depth, blockCount);
      const unannounced = Math.max(depth, announced);
      // What one use placed is computed together, so the first block that is not announced speaks for all of it.
      const use = segments.lastUse[segment]!;
      const isDropped = unannounced < end && use !== upheld && this.#isDroppedSince(use, target, words, unannounced);
      if (isDropped && unannounced === depth) break;
      if (unannounced < end) upheld = use;
      const isWhole = !isDropped && end - depth === segments.length[segment]!;
      if (resumesAtEnds && !isWhole) break;
      depth = isDropped ? unannounced : end;
      if (segments.confirmedUntilMs[segment]! > nowMs) confirmedDepth = depth;
      last = segment;
      if (depth === blockCount || !isWhole) break;
    }
    if (depth === 0) return;
    listTarget(out, target);
    out.placedBlocks[target] = depth;
    out.placementAgeMs[target] = Math.max(0, nowMs - segments.lastUseMs[last]!);
    out.placedBy[target] = segments.lastUser[last]!;
    out.confirmedBlocks[target] = confirmedDepth;
  }

  #isDroppedSince(use: number, target: number, words: Uint32Array, block: number): boolean {
    return this.#dropped.isDroppedSince(target, words[block * 2]!, words[block * 2 + 1]!, use);
  }
}
