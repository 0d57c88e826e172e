import { type ExportLimits, exportTargets, type FactsChunk, type FactsGroup } from "./export-targets.ts";
import { HybridTargets } from "./hybrid-targets.ts";
import { maxDroppedBlocks } from "./placements/dropped-blocks.ts";
import { Placements, type PlacementTime, type RefutedBlocks } from "./placements/placements.ts";
import { largestSharedPrefixes, type SharedPrefix } from "./placements/shared-prefixes.ts";
import { listTarget, type PrefixMatches, resetPrefixMatches } from "./prefix-matches.ts";
import { SlowTiers, slowHolder } from "./slow-tiers.ts";
import { createHolderDepths, type HolderDepths, HolderMatcher } from "./table/holder-matcher.ts";
import { HolderTable } from "./table/holder-table.ts";
import { type FactKind, factKinds, resumePoint, type Tier, tier } from "./tiers.ts";

/** The bounds of an index. They reserve address space; memory is allocated as needed. */
export interface PrefixIndexOptions {
  /** Targets are 0 to this, exclusive. Default and maximum: 4,096. */
  readonly maxTargets?: number;
  /** Distinct blocks on GPUs, and the same number again in slower tiers. Default: 67,108,864. */
  readonly maxBlocks?: number;
  /** Distinct sets of two or more targets that hold a block. Default: 262,144. */
  readonly maxSets?: number;
  /** Holes of one target; a target with more is walked block by block. Default: 65,536. */
  readonly maxHoles?: number;
  /** Placed blocks of one target. Default: 65,536. */
  readonly maxPlacedBlocksPerTarget?: number;
  /** Placed blocks of all targets. Default: 16,777,216. */
  readonly maxPlacedBlocks?: number;
  /** Segments between the points where placed chains diverge. Default: 1,048,576. */
  readonly maxPlacedSegments?: number;
  /** Blocks dropped by targets that are remembered against earlier placements, a power of two. Default: 262,144. */
  readonly maxDroppedBlocks?: number;
}

/** A block by its index in `words`, and its depth in its chain, 0 for a first block. */
interface OrphaningBlock {
  readonly index: number;
  readonly depth: number;
}

/** Larger expectations are clipped: reserved memory is written to even if few blocks come. */
const maxExpectedBlocks = 16_777_216;

/** @throws RangeError if such an index is impossible */
export function createPrefixIndex(options: PrefixIndexOptions = {}): PrefixIndex {
  return new PrefixIndex(completeOptions(options));
}

/**
 * What targets hold of every chain, and how this is known: facts, which engines announced, by tier; and placements,
 * which routers predict. Chains are chain hashes of two words each, low word first; a hash identifies its whole prefix.
 * Synchronous and without a clock: times are the caller's monotonic milliseconds.
 */
export class PrefixIndex {
  readonly placements: Placements;
  /** The high word of the block that `findByLow` found. */
  foundHigh = 0;
  readonly #gpu: HolderTable;
  readonly #slow: SlowTiers;
  readonly #hybrids: HybridTargets;
  readonly #matcher: HolderMatcher;
  readonly #gpuDepths: HolderDepths;
  #onPlaced: PrefixIndex["place"] | undefined;

  constructor(options: Required<PrefixIndexOptions>) {
    const { maxTargets, maxBlocks, maxSets, maxHoles } = options;
    this.#gpu = new HolderTable({ maxHolders: maxTargets, maxBlocks, maxSets, maxHoles });
    this.#slow = new SlowTiers(this.#gpu, { maxTargets, maxBlocks, maxSets });
    this.#hybrids = new HybridTargets({ maxTargets, maxBlocks, maxSets });
    this.#matcher = new HolderMatcher(this.#gpu);
    this.#gpuDepths = createHolderDepths(maxTargets);
    this.placements = new Placements({
      maxTargets,
      maxBlocksPerTarget: options.maxPlacedBlocksPerTarget,
      maxBlocks: options.maxPlacedBlocks,
      maxSegments: options.maxPlacedSegments,
      maxDroppedBlocks: options.maxDroppedBlocks,
    });
  }

  /**
   * Records that a target holds the blocks `from` to `to` (exclusive) of `words` in a tier, or that they are its resume
   * points. On the GPU the target must also hold the parent of the first block, or the caller reports it missing with
   * `removeOrphan`.
   *
   * @returns how many it did not hold before in that tier
   */
  storeFacts(target: number, kind: FactKind, words: Uint32Array, from: number, to: number): number {
    if (kind === tier.gpu) return this.#gpu.store(target, words, from, to);
    if (kind === resumePoint) return this.#hybrids.store(target, words, from, to);
    return this.#slow.store(target, kind, words, from, to);
  }

  /**
   * Records that a target dropped blocks from a tier, or that they are no resume points any more. If it still holds
   * children of one in that tier, `removeOrphan` must follow.
   *
   * @returns how many of them it held
   */
  removeFacts(target: number, kind: FactKind, words: Uint32Array, from: number, to: number): number {
    if (kind === tier.gpu) {
      this.placements.dropped(target, words, from, to);
      return this.#gpu.remove(target, words, from, to);
    }
    if (kind === resumePoint) return this.#hybrids.remove(target, words, from, to);
    return this.#slow.remove(target, kind, words, from, to);
  }

  /**
   * Records that a target lacks a block although it holds children of it in that tier. That says nothing of placements:
   * the engine may hold it and have told so before anyone read its feed. What it dropped, `removeFacts` says.
   *
   * @returns whether it was held
   */
  removeOrphan(target: number, inTier: Tier, words: Uint32Array, block: OrphaningBlock): boolean {
    if (inTier === tier.gpu) return this.#gpu.removeOrphaning(target, words, block);
    return this.removeFacts(target, inTier, words, block.index, block.index + 1) > 0;
  }

  /** Records that a target no longer holds children of a block that `removeOrphan` named. Only saves memory. */
  forgetOrphan(target: number, words: Uint32Array, index: number): void {
    this.#gpu.forgetHole(target, words, index);
  }

  /** Voids all facts of a target in one step, as at the start of a new epoch of its engine. */
  clearFacts(target: number): void {
    this.#gpu.clear(target);
    this.#slow.clear(target);
    this.#hybrids.clear(target);
  }

  /** Voids all facts and placements of a target. */
  forgetTarget(target: number): void {
    this.clearFacts(target);
    this.placements.clear(target);
  }

  /** Sets the listener for every chain that is placed or confirmed. The words are valid only until it returns. */
  setPlacedListener(listener: PrefixIndex["place"]): void {
    this.#onPlaced = listener;
  }

  /** @see Placements.place */
  place(target: number, words: Uint32Array, blockCount: number, time: PlacementTime): void {
    this.placements.place(target, words, blockCount, time);
    this.#onPlaced?.(target, words, blockCount, time);
  }

  /** @see Placements.confirm */
  confirm(target: number, words: Uint32Array, blockCount: number, time: PlacementTime): void {
    this.placements.confirm(target, words, blockCount, time);
    this.#onPlaced?.(target, words, blockCount, time);
  }

  /** @see Placements.refute */
  refute(target: number, words: Uint32Array, blocks: RefutedBlocks): number {
    return this.placements.refute(target, words, blocks);
  }

  /**
   * Finds what every target holds of a chain: exactly what a walk block by block would find. What a target with a hybrid
   * model holds beyond its last resume point does not count.
   *
   * @throws RangeError if `words` is shorter than `blockCount` says
   */
  match(words: Uint32Array, blockCount: number, nowMs: number, out: PrefixMatches): void {
    resetPrefixMatches(out);
    const depths = this.#gpuDepths;
    this.#matcher.match(words, blockCount, depths);
    for (let index = 0; index < depths.count; index++) {
      const target = depths.holders[index]!;
      listTarget(out, target);
      out.gpuBlocks[target] = depths.depths[index]!;
      out.factBlocks[target] = depths.depths[index]!;
    }
    this.#slow.match(words, blockCount, out);
    for (let index = 0; index < out.count; index++) {
      const target = out.targets[index]!;
      out.heldBlocks[target] = out.factBlocks[target]!;
    }
    this.placements.match(words, blockCount, nowMs, out, this.#hybrids.flags);
    this.#hybrids.limit(words, out);
  }

  /** Blocks that a target has announced in a tier, or its resume points. */
  factBlockCount(target: number, kind: FactKind): number {
    return this.#tableOf(kind).blockCount(holderOf(target, kind));
  }

  /** Whether a target's model is a hybrid one, which continues only after resume points. */
  isHybrid(target: number): boolean {
    return this.#hybrids.has(target);
  }

  /** Facts of all targets, counted once per block, target and kind. */
  get factCount(): number {
    return this.#gpu.pairs + this.#slow.table.pairs + this.#hybrids.table.pairs;
  }

  /** Facts and placed blocks refused at a bound since the index was created. */
  get refusedCount(): number {
    return this.#gpu.refused + this.#slow.table.refused + this.#hybrids.table.refused + this.placements.refusedBlocks;
  }

  /** Memory of facts and placements, including idle parts. */
  get byteLength(): number {
    return this.#gpu.byteLength + this.#slow.table.byteLength + this.#hybrids.byteLength + this.placements.byteLength;
  }

  /**
   * Digests the facts of a target into two words. They are equal in indexes with the same facts, whatever the order of
   * changes.
   */
  digest(target: number): Uint32Array {
    const sums = new Uint32Array(2);
    for (const kind of factKinds) this.#tableOf(kind).addDigest(holderOf(target, kind), sums, kind);
    return sums;
  }

  /**
   * Looks for blocks of a target in a tier, or for its resume points, by the low word of their hashes.
   *
   * @returns 0 for none, 1 for one (its high word is in `foundHigh`), 2 for several
   */
  findByLow(target: number, kind: FactKind, low: number): 0 | 1 | 2 {
    const table = this.#tableOf(kind);
    const found = table.findByLow(holderOf(target, kind), low);
    if (found === 1) this.foundHigh = table.foundHigh;
    return found;
  }

  /**
   * Reads the facts of all targets, or of some, for `importChunk` of another index, in one pass. Blocks that several
   * targets hold come once, with the list of targets. The index may change meanwhile: facts that hold throughout come
   * exactly once, and a cleared target yields nothing more. A chunk takes a millisecond or two, and may be empty.
   *
   * @param targets all that hold anything if undefined
   * @throws RangeError if the limits are too small for a group
   */
  exportAll(
    targets?: readonly number[],
    limits?: Partial<ExportLimits>,
  ): Generator<readonly FactsGroup[], void, undefined> {
    return exportTargets({ gpu: this.#gpu, slow: this.#slow.table, resume: this.#hybrids.table }, targets, limits);
  }

  /** Adds a part of what `exportAll` read to a target. Call for all parts, in their order. */
  importFacts(target: number, chunk: FactsChunk): void {
    if (chunk.kind === "walked") this.#gpu.walk(target);
    else if (chunk.kind === "blocks") this.storeFacts(target, chunk.tier, chunk.words, 0, chunk.words.length / 2);
    else {
      for (let index = 0; index < chunk.depths.length; index++) {
        this.#gpu.removeOrphaning(target, chunk.words, { index, depth: chunk.depths[index]! });
      }
    }
  }

  /** Distinct blocks on GPUs of all targets. */
  get distinctGpuBlocks(): number {
    return this.#gpu.slots.count;
  }

  /**
   * Announces that about this many distinct blocks will be on GPUs soon, so that a small index need not grow in many
   * steps, or shrink in between. Call with 0 once they are there, or will not come.
   */
  expectFacts(blocks: number): void {
    this.#gpu.slots.expect(Math.min(blocks, maxExpectedBlocks));
  }

  /** Adds what `exportAll` read. Call for all chunks, in their order. */
  importChunk(groups: readonly FactsGroup[]): void {
    for (const { targets, part } of groups) {
      for (const target of targets) this.importFacts(target, part);
    }
  }

  /**
   * Reclaims memory of voided facts and expired placements. Changes no answer.
   *
   * @param budget slots and segments to visit
   * @returns whether more is left to do
   */
  maintain(nowMs: number, budget: number): boolean {
    const hasFacts = this.#gpu.sweep(budget);
    const hasSlowFacts = this.#slow.table.sweep(budget);
    const hasPoints = this.#hybrids.table.sweep(budget);
    const hasPlacements = this.placements.expire(nowMs, budget);
    return hasFacts || hasSlowFacts || hasPoints || hasPlacements;
  }

  /** The prefixes that most chains and targets share, by placements; see `largestSharedPrefixes`. */
  largestSharedPrefixes(limit: number, nowMs: number, below?: Uint32Array): SharedPrefix[] {
    return largestSharedPrefixes(this.placements, limit, nowMs, below);
  }

  #tableOf(kind: FactKind): HolderTable {
    if (kind === tier.gpu) return this.#gpu;
    return kind === resumePoint ? this.#hybrids.table : this.#slow.table;
  }
}

/** A target as a holder in the table of a kind of facts. */
const holderOf = (target: number, kind: FactKind): number =>
  kind === tier.gpu || kind === resumePoint ? target : slowHolder(target, kind);

/** Bound of targets of one index. */
export const maxPrefixTargets = 4_096;

/** @throws RangeError if such an index is impossible */
function completeOptions(options: PrefixIndexOptions): Required<PrefixIndexOptions> {
  const maxTargets = options.maxTargets ?? maxPrefixTargets;
  if (!Number.isInteger(maxTargets) || maxTargets < 1 || maxTargets > maxPrefixTargets) {
    throw new RangeError(`maxTargets must be a whole number from 1 to ${maxPrefixTargets}`);
  }
  return {
    maxTargets,
    maxBlocks: options.maxBlocks ?? 67_108_864,
    maxSets: options.maxSets ?? 262_144,
    maxHoles: options.maxHoles ?? 65_536,
    maxPlacedBlocksPerTarget: options.maxPlacedBlocksPerTarget ?? 65_536,
    maxPlacedBlocks: options.maxPlacedBlocks ?? 16_777_216,
    maxPlacedSegments: options.maxPlacedSegments ?? 1_048_576,
    maxDroppedBlocks: options.maxDroppedBlocks ?? maxDroppedBlocks,
  };
}
