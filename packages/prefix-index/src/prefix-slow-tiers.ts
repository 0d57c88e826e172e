import { listTarget, type PrefixMatches } from "./prefix-matches.ts";
import type { HolderTable } from "./table/holder-table.ts";
import { maxChunkBlocks, tier, tierNames, wholeChunks } from "./tiers.ts";

/** Number of tiers other than the GPU. */
export const slowTiers = tierNames.length - 1;

/** The holder in the table of slow tiers for a target and one of these tiers. */
export const slowHolder = (target: number, slowTier: number): number => target * slowTiers + slowTier - 1;

const none = -1;

/**
 * Continues what targets hold on their GPUs with what they hold in slower tiers. Slower tiers drop blocks in any order,
 * so the chain is walked block by block, for all targets together; consecutive blocks with the same holders cost
 * nothing. Engines look a prompt up in external memory from its beginning, wherever their own blocks end: there a block
 * counts only if all before it are there.
 */
export class SlowTierWalk {
  readonly #gpu: HolderTable;
  readonly #slow: HolderTable;
  /** Start of the walk and target in one number, so that sorting orders by start. */
  readonly #pending: Float64Array;
  readonly #targets: Int32Array;
  /** The tier of the present block at the walked target, and the block since which it applies. */
  readonly #tierNow: Int8Array;
  readonly #since: Int32Array;
  /** Leading blocks of the chain in external memory, by candidate: whole chunks. */
  readonly #externalBlocks: Int32Array;
  /** Blocks of a chunk there, by target. */
  readonly #chunkBlocks: Uint16Array;
  /** Least blocks that an engine fetches from there. */
  readonly #minFetch: Uint16Array;
  /** Blocks of the chain before which chunks end that the chain parts from inside. */
  readonly #chunkEnds = new Set<number>();
  readonly #maxTargets: number;
  /** Whether a walked target holds any blocks on its GPU; a pool that many engines fetch from does not. */
  #isAnyOnGpu = false;

  constructor(gpu: HolderTable, slow: HolderTable, maxTargets: number) {
    this.#gpu = gpu;
    this.#slow = slow;
    this.#maxTargets = maxTargets;
    this.#pending = new Float64Array(maxTargets);
    this.#targets = new Int32Array(maxTargets);
    this.#tierNow = new Int8Array(maxTargets);
    this.#since = new Int32Array(maxTargets);
    this.#externalBlocks = new Int32Array(maxTargets);
    this.#chunkBlocks = new Uint16Array(maxTargets).fill(1);
    this.#minFetch = new Uint16Array(maxTargets).fill(1);
  }

  /** Looks for the size of a target's chunks among what it holds in external memory; see `externalChunks`. */
  noteChunks(target: number, words: Uint32Array, from: number, to: number): void {
    for (let at = from; at < to; at++) {
      if (words[2 * at + 1] !== 0) continue;
      const low = words[2 * at]!;
      const blocks = low & ~wholeChunks;
      if (blocks === 0 || blocks > maxChunkBlocks) continue;
      this.#chunkBlocks[target] = blocks;
      this.#minFetch[target] = low === blocks ? 1 : blocks;
    }
  }

  forgetChunks(target: number): void {
    this.#chunkBlocks[target] = 1;
    this.#minFetch[target] = 1;
  }

  /**
   * Completes `factBlocks` and `tierBlocks`, and lists targets that hold the chain only in slow tiers.
   *
   * @param candidates targets that hold anything in a slow tier
   */
  match(words: Uint32Array, blockCount: number, candidates: Iterable<number>, out: PrefixMatches): void {
    this.#countExternal(words, blockCount, candidates, out);
    const pending = this.#gather(words, blockCount, candidates, out);
    if (pending === 0) return;
    this.#pending.subarray(0, pending).sort();
    let next = 0;
    let active = 0;
    let block = 0;
    let lastGpu = none;
    let lastSlow = none;
    for (; block < blockCount && (active > 0 || next < pending); block++) {
      if (active === 0) block = Math.floor(this.#pending[next]! / this.#maxTargets);
      const gpuSet = this.#isAnyOnGpu ? this.#gpu.setOf(words, block) : 0;
      const slowSet = this.#slow.setOf(words, block);
      if (gpuSet !== lastGpu || slowSet !== lastSlow || this.#chunkEnds.has(block))
        active = this.#advance(active, { block, gpuSet, slowSet }, out);
      lastGpu = gpuSet;
      lastSlow = slowSet;
      for (; next < pending && Math.floor(this.#pending[next]! / this.#maxTargets) === block; next++) {
        const target = this.#pending[next]! % this.#maxTargets;
        this.#targets[active] = target;
        this.#since[active] = block;
        this.#tierNow[active++] = this.#fastest(target, block, gpuSet, slowSet);
        listTarget(out, target);
      }
    }
    for (let index = 0; index < active; index++) this.#leave(index, block, out);
  }

  /**
   * Writes `cpuBlocks`, and lists these targets.
   *
   * @param candidates targets that hold anything in a slow tier
   */
  countCpu(words: Uint32Array, blockCount: number, candidates: Iterable<number>, out: PrefixMatches): void {
    this.#countLeading(tier.cpu, words, blockCount, candidates, out.cpuBlocks);
    for (const target of candidates) if (out.cpuBlocks[target]! > 0) listTarget(out, target);
  }

  /** Counts whole chunks, and nothing where that is less than engines fetch. */
  #countExternal(words: Uint32Array, blockCount: number, candidates: Iterable<number>, out: PrefixMatches): void {
    const blocks = this.#externalBlocks;
    this.#countLeading(tier.external, words, blockCount, candidates, blocks);
    this.#chunkEnds.clear();
    for (const target of candidates) {
      const chunk = this.#chunkBlocks[target]!;
      const beyond = blocks[target]! % chunk;
      if (beyond > 0) this.#chunkEnds.add(blocks[target]! - beyond);
      blocks[target]! -= beyond;
      if (blocks[target]! - out.gpuBlocks[target]! < this.#minFetch[target]!) blocks[target] = 0;
    }
  }

  /** Writes how many leading blocks of the chain candidates hold in one slow tier. */
  #countLeading(
    slowTier: number,
    words: Uint32Array,
    blockCount: number,
    candidates: Iterable<number>,
    counts: Int32Array,
  ): void {
    let lastSet = blockCount === 0 ? 0 : this.#slow.setOf(words, 0);
    let active = 0;
    for (const target of candidates) {
      counts[target] = 0;
      if (lastSet !== 0 && this.#slow.holds(lastSet, slowHolder(target, slowTier))) this.#targets[active++] = target;
    }
    for (let block = 1; active > 0; block++) {
      const set = block < blockCount ? this.#slow.setOf(words, block) : 0;
      if (set === lastSet) continue;
      lastSet = set;
      for (let index = 0; index < active; ) {
        const target = this.#targets[index]!;
        if (set !== 0 && this.#slow.holds(set, slowHolder(target, slowTier))) {
          index++;
          continue;
        }
        counts[target] = block;
        this.#targets[index] = this.#targets[--active]!;
      }
    }
  }

  /** Collects the targets that hold the block after their GPU blocks in a slow tier. */
  #gather(words: Uint32Array, blockCount: number, candidates: Iterable<number>, out: PrefixMatches): number {
    let pending = 0;
    this.#isAnyOnGpu = false;
    let lastStart = none;
    let set = 0;
    for (const target of candidates) {
      const start = out.gpuBlocks[target]!;
      if (start >= blockCount) continue;
      if (start !== lastStart) set = this.#slow.setOf(words, start);
      lastStart = start;
      if (this.#fastest(target, start, 0, set) === none) continue;
      this.#pending[pending++] = start * this.#maxTargets + target;
      this.#isAnyOnGpu ||= this.#gpu.blockCount(target) > 0;
    }
    return pending;
  }

  /** Moves the walked targets on to a block with other holders. Returns how many are still walked. */
  #advance(
    active: number,
    { block, gpuSet, slowSet }: { block: number; gpuSet: number; slowSet: number },
    out: PrefixMatches,
  ): number {
    let left = active;
    for (let index = 0; index < left; ) {
      const now = this.#fastest(this.#targets[index]!, block, gpuSet, slowSet);
      if (now === this.#tierNow[index]) {
        index++;
        continue;
      }
      this.#leave(index, block, out);
      if (now !== none) {
        this.#since[index] = block;
        this.#tierNow[index++] = now;
        continue;
      }
      left--;
      this.#targets[index] = this.#targets[left]!;
      this.#since[index] = this.#since[left]!;
      this.#tierNow[index] = this.#tierNow[left]!;
    }
    return left;
  }

  /** Counts the blocks before `block` that a walked target held in one tier. */
  #leave(index: number, block: number, out: PrefixMatches): void {
    const target = this.#targets[index]!;
    out.tierBlocks[this.#tierNow[index]!]![target]! += block - this.#since[index]!;
    out.factBlocks[target] = block;
  }

  #fastest(target: number, block: number, gpuSet: number, slowSet: number): number {
    if (gpuSet !== 0 && this.#gpu.holds(gpuSet, target)) return tier.gpu;
    if (slowSet === 0) return none;
    for (let slowTier = 1; slowTier < tier.external; slowTier++) {
      if (this.#slow.holds(slowSet, slowHolder(target, slowTier))) return slowTier;
    }
    return block < this.#externalBlocks[target]! ? tier.external : none;
  }
}
