import { listTarget, type PrefixMatches } from "./prefix-matches.ts";
import { HolderTable, type HolderTableOptions } from "./table/holder-table.ts";
import { TargetsByBlock } from "./targets-by-block.ts";
import { maxChunkBlocks, type Tier, tier, tierNames, wholeChunks } from "./tiers.ts";

/** Number of tiers other than the GPU. */
export const slowTiers = tierNames.length - 1;

/** The holder in the table of slow tiers for a target and one of these tiers. */
export const slowHolder = (target: number, slowTier: number): number => target * slowTiers + slowTier - 1;

const none = -1;

interface SlowTiersOptions extends Pick<HolderTableOptions, "maxBlocks" | "maxSets"> {
  readonly maxTargets: number;
}

/**
 * What targets hold in slower tiers. A lookup continues what they hold on their GPUs with it. Slower tiers drop blocks in
 * any order, so the chain is walked block by block, for all targets together; consecutive blocks with the same holders
 * cost nothing. Engines look a prompt up in external memory from its beginning, wherever their own blocks end: there a
 * block counts only if all before it are there.
 */
export class SlowTiers {
  readonly table: HolderTable;
  readonly #gpu: HolderTable;
  readonly #sets: SetReader;
  /** Targets that hold anything in a slow tier. */
  readonly #holders = new Set<number>();
  /** Targets by the block after those on their GPUs, where their walk starts. */
  readonly #starts: TargetsByBlock;
  readonly #targets: Int32Array;
  /** The tier of the present block at the walked target, and the block since which it applies. */
  readonly #tierNow: Int8Array;
  readonly #since: Int32Array;
  /** Leading blocks of the chain in external memory, by pending target: whole chunks. */
  readonly #externalBlocks: Int32Array;
  /** Blocks of a chunk there, by target. */
  readonly #chunkBlocks: Uint16Array;
  /** Least blocks that an engine fetches from there. */
  readonly #minFetch: Uint16Array;
  /** Blocks of the chain before which chunks end that the chain parts from inside. */
  readonly #chunkEnds = new Set<number>();
  /** Whether a pending target may hold blocks on its GPU after one that it lacks there. */
  #isAnyOnGpu = false;

  constructor(gpu: HolderTable, { maxTargets, maxBlocks, maxSets }: SlowTiersOptions) {
    this.#gpu = gpu;
    // Blocks come and go in any order, so holes mean nothing here.
    this.table = new HolderTable({ maxHolders: maxTargets * slowTiers, maxBlocks, maxSets, maxHoles: 0 });
    this.#sets = new SetReader(this.table);
    this.#starts = new TargetsByBlock(maxTargets);
    this.#targets = new Int32Array(maxTargets);
    this.#tierNow = new Int8Array(maxTargets);
    this.#since = new Int32Array(maxTargets);
    this.#externalBlocks = new Int32Array(maxTargets);
    this.#chunkBlocks = new Uint16Array(maxTargets).fill(1);
    this.#minFetch = new Uint16Array(maxTargets).fill(1);
  }

  /** @see PrefixIndex.storeFacts */
  store(target: number, slowTier: Tier, words: Uint32Array, from: number, to: number): number {
    const stored = this.table.store(slowHolder(target, slowTier), words, from, to);
    if (slowTier === tier.external) this.#noteChunks(target, words, from, to);
    if (stored > 0) this.#holders.add(target);
    return stored;
  }

  /** @see PrefixIndex.removeFacts */
  remove(target: number, slowTier: Tier, words: Uint32Array, from: number, to: number): number {
    const removed = this.table.remove(slowHolder(target, slowTier), words, from, to);
    if (removed > 0 && !this.#holdsAny(target)) this.#holders.delete(target);
    return removed;
  }

  /** Voids everything that a target holds. */
  clear(target: number): void {
    for (let slowTier = 1; slowTier <= slowTiers; slowTier++) this.table.clear(slowHolder(target, slowTier));
    this.#holders.delete(target);
    this.#chunkBlocks[target] = 1;
    this.#minFetch[target] = 1;
  }

  /**
   * Completes `factBlocks` and `tierBlocks`, and lists targets that hold the chain only in slow tiers. Writes `cpuBlocks`
   * where a query wants them.
   */
  match(words: Uint32Array, blockCount: number, out: PrefixMatches): void {
    if (this.#holders.size === 0) return;
    this.#sets.begin(words, blockCount);
    this.#walk(words, blockCount, out);
    if (out.countsCpu) this.#countCpu(out);
  }

  #walk(words: Uint32Array, blockCount: number, out: PrefixMatches): void {
    let next = this.#gather(words, blockCount, out);
    let active = 0;
    let block = 0;
    let lastGpu = none;
    let lastSlow = none;
    for (; block < blockCount && (active > 0 || next >= 0); block++) {
      if (active === 0) block = next;
      const gpuSet = this.#isAnyOnGpu ? this.#gpu.setOf(words, block) : 0;
      const slowSet = this.#sets.at(block);
      if (gpuSet !== lastGpu || slowSet !== lastSlow || this.#chunkEnds.has(block))
        active = this.#advance(active, { block, gpuSet, slowSet }, out);
      lastGpu = gpuSet;
      lastSlow = slowSet;
      if (block !== next) continue;
      const waiting = this.#starts.take(block, this.#targets, active);
      for (let index = active; index < waiting; index++) {
        const target = this.#targets[index]!;
        const now = this.#fastest(target, block, gpuSet, slowSet);
        if (now === none) continue;
        this.#targets[active] = target;
        this.#since[active] = block;
        this.#tierNow[active++] = now;
        listTarget(out, target);
      }
      next = this.#starts.firstFrom(block);
    }
    for (let index = 0; index < active; index++) this.#leave(index, block, out);
  }

  #countCpu(out: PrefixMatches): void {
    let targets = 0;
    for (const target of this.#holders) this.#targets[targets++] = target;
    this.#countLeading(tier.cpu, targets, out.cpuBlocks);
    for (const target of this.#holders) if (out.cpuBlocks[target]! > 0) listTarget(out, target);
  }

  /** Collects the targets that hold the block after their GPU blocks in a slow tier. @returns the first start, or -1 */
  #gather(words: Uint32Array, blockCount: number, out: PrefixMatches): number {
    let first = blockCount;
    let external = 0;
    this.#isAnyOnGpu = false;
    let lastStart = none;
    let set = 0;
    for (const target of this.#holders) {
      const start = out.gpuBlocks[target]!;
      if (start >= blockCount) continue;
      if (start !== lastStart) set = this.table.setOf(words, start);
      lastStart = start;
      if (set === 0) continue;
      this.#externalBlocks[target] = 0;
      if (this.table.holds(set, slowHolder(target, tier.external))) this.#targets[external++] = target;
      else if (this.#fastest(target, start, 0, set) === none) continue;
      this.#starts.add(target, start);
      first = Math.min(first, start);
      this.#isAnyOnGpu ||= this.#gpu.hasHoles(target);
    }
    this.#countExternal(external, out);
    return first < blockCount ? first : none;
  }

  /** Counts whole chunks, and nothing where that is less than engines fetch. */
  #countExternal(targets: number, out: PrefixMatches): void {
    this.#chunkEnds.clear();
    const blocks = this.#externalBlocks;
    this.#countLeading(tier.external, targets, blocks);
    for (let index = 0; index < targets; index++) {
      const target = this.#targets[index]!;
      const chunk = this.#chunkBlocks[target]!;
      const beyond = blocks[target]! % chunk;
      if (beyond > 0) this.#chunkEnds.add(blocks[target]! - beyond);
      blocks[target]! -= beyond;
      if (blocks[target]! - out.gpuBlocks[target]! < this.#minFetch[target]!) blocks[target] = 0;
    }
  }

  /** Writes how many leading blocks of the chain the first of `#targets` hold in one slow tier. */
  #countLeading(slowTier: number, targets: number, counts: Int32Array): void {
    let left = targets;
    let lastSet = none;
    for (let block = 0; left > 0; block++) {
      const set = this.#sets.at(block);
      if (set === lastSet) continue;
      lastSet = set;
      for (let index = 0; index < left; ) {
        const target = this.#targets[index]!;
        if (set !== 0 && this.table.holds(set, slowHolder(target, slowTier))) {
          index++;
          continue;
        }
        counts[target] = block;
        this.#targets[index] = this.#targets[--left]!;
        this.#targets[left] = target;
      }
    }
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
      if (this.table.holds(slowSet, slowHolder(target, slowTier))) return slowTier;
    }
    return block < this.#externalBlocks[target]! ? tier.external : none;
  }

  #holdsAny(target: number): boolean {
    for (let slowTier = 1; slowTier <= slowTiers; slowTier++) {
      if (this.table.blockCount(slowHolder(target, slowTier)) > 0) return true;
    }
    return false;
  }

  /** Looks for the size of a target's chunks among what it holds in external memory; see `externalChunks`. */
  #noteChunks(target: number, words: Uint32Array, from: number, to: number): void {
    for (let at = from; at < to; at++) {
      if (words[2 * at + 1] !== 0) continue;
      const low = words[2 * at]!;
      const blocks = low & ~wholeChunks;
      if (blocks === 0 || blocks > maxChunkBlocks) continue;
      this.#chunkBlocks[target] = blocks;
      this.#minFetch[target] = low === blocks ? 1 : blocks;
    }
  }
}

/** Blocks whose holders are looked up together. */
const readAhead = 32;

/** The sets of holders along a chain. Consecutive ones are looked up together, so that their cache misses overlap. */
class SetReader {
  readonly #table: HolderTable;
  #words: Uint32Array = new Uint32Array(0);
  #blockCount = 0;
  /** The sets of the blocks `from` to `to` (exclusive). */
  #sets = new Uint32Array(1_024);
  #from = 0;
  #to = 0;

  constructor(table: HolderTable) {
    this.#table = table;
  }

  begin(words: Uint32Array, blockCount: number): void {
    this.#words = words;
    this.#blockCount = blockCount;
    this.#from = 0;
    this.#to = 0;
  }

  /** The set of a block, 0 after the end of the chain. */
  at(block: number): number {
    if (block >= this.#blockCount) return 0;
    if (block < this.#from || block >= this.#to) this.#read(block);
    return this.#sets[block - this.#from]!;
  }

  #read(block: number): void {
    if (block !== this.#to) this.#from = block;
    this.#to = Math.min(this.#blockCount, block + readAhead);
    const length = this.#to - this.#from;
    if (length > this.#sets.length) {
      const longer = new Uint32Array(2 * length);
      longer.set(this.#sets);
      this.#sets = longer;
    }
    this.#table.slots.touch(this.#words, block, this.#to);
    for (let next = block; next < this.#to; next++)
      this.#sets[next - this.#from] = this.#table.setOf(this.#words, next);
  }
}
