import { createSeededRandom, type Random } from "@espalier/core";
import { expect, test } from "vitest";
import { createPrefixIndex, type PrefixIndex } from "../../src/prefix-index.ts";
import { createPrefixMatches, type PrefixMatches } from "../../src/prefix-matches.ts";
import { emptyPrefix, externalChunks, resumePoint, type Tier, tier, tierNames } from "../../src/tiers.ts";
import { type ChainForest, createChainForest } from "../random-chains.ts";

const tierCount = tierNames.length;
const ttlMs = 400;

interface Shape {
  readonly blocks: number;
  readonly targets: number;
  readonly operations: number;
  /** Of all stores, the share that goes to slow tiers. */
  readonly slowShare: number;
  /** Targets with hybrid models, from 0. */
  readonly hybrids?: number;
  /** Blocks of a chunk in external memory; odd targets fetch whole ones only. */
  readonly chunkBlocks?: number;
}

/**
 * The index beside, for each target, a mask of tiers per block, its resume points, the time until which a block is placed, the last use that
 * placed it, and the last use before it was dropped.
 */
class IndexRun {
  readonly index: PrefixIndex;
  readonly forest: ChainForest;
  readonly tiersOf: readonly Uint8Array[];
  /** 1 for a resume point. A hybrid target without any holds that of the empty prefix. */
  readonly pointsOf: readonly Uint8Array[];
  readonly #seed: number;
  readonly #shape: Shape;
  readonly #random: Random;
  readonly #matches: PrefixMatches;
  readonly #placedUntil: readonly Float64Array[];
  readonly #lastUse: readonly Float64Array[];
  readonly #droppedAfter: readonly Float64Array[];
  #uses = 0;
  #nowMs = 0;

  constructor(seed: number, shape: Shape) {
    const { blocks, targets } = shape;
    this.#seed = seed;
    this.#shape = shape;
    this.#random = createSeededRandom(seed + 1_000);
    this.forest = createChainForest(seed, blocks);
    this.index = createPrefixIndex({ maxTargets: targets });
    this.#matches = createPrefixMatches(targets);
    this.#matches.countsCpu = seed % 2 === 0;
    this.tiersOf = Array.from({ length: targets }, () => new Uint8Array(blocks));
    this.pointsOf = Array.from({ length: targets }, () => new Uint8Array(blocks));
    for (let target = 0; target < targets; target++) this.#begin(target);
    const column = () => Array.from({ length: targets }, () => new Float64Array(blocks));
    this.#placedUntil = column();
    this.#lastUse = column();
    this.#droppedAfter = column();
  }

  step(): void {
    const { index, forest } = this;
    const random = this.#random;
    const target = random.integer(this.#shape.targets);
    this.#nowMs += random.float();
    const nowMs = this.#nowMs;
    const kind = random.float();
    if (random.integer(600) === 0) {
      if (random.integer(2) === 0) index.clearFacts(target);
      else {
        index.forgetTarget(target);
        this.#placedUntil[target]!.fill(0);
      }
      this.tiersOf[target]!.fill(0);
      this.pointsOf[target]!.fill(0);
      this.#begin(target);
    } else if (kind < 0.1) {
      const path = forest.pathTo(random.integer(forest.blockCount));
      index.place(target, forest.wordsOf(path), path.length, { nowMs, ttlMs });
      this.#uses++;
      for (const block of path) {
        this.#placedUntil[target]![block] = nowMs + ttlMs;
        this.#lastUse[target]![block] = this.#uses;
      }
    } else if (kind < 0.12) index.maintain(nowMs, random.integer(100));
    else if (this.#isHybrid(target) && random.integer(3) === 0) this.#changePoints(target);
    else if (random.float() < this.#shape.slowShare) this.#changeSlow(target);
    else if (random.integer(3) === 0) this.#storeOnGpu(target);
    else this.#removeFromGpu(target);
  }

  /** Compares one query with a walk. */
  check(): void {
    const { forest } = this;
    const path = forest.pathTo(this.#random.integer(forest.blockCount));
    const matches = this.#matches;
    this.index.match(forest.wordsOf(path), path.length, this.#nowMs, matches);
    const listed = new Set(matches.targets.subarray(0, matches.count));
    if (listed.size !== matches.count) this.#fail("a target listed twice");
    for (let target = 0; target < this.#shape.targets; target++) {
      const { gpuBlocks, factBlocks, heldBlocks, cpuBlocks, placedBlocks, tierBlocks } = matches;
      const columns = [gpuBlocks, factBlocks, heldBlocks, cpuBlocks, ...tierBlocks];
      const got = columns.map((column) => column[target]!);
      const { facts: want, placed, isListed } = this.#walk(target, path);
      if (got.join() !== want.join()) this.#fail(`target ${target}: found ${got}, not ${want}`);
      // Of a hybrid target only whole prompts count, which the tests of placements cover.
      if (this.#isHybrid(target)) continue;
      if (placedBlocks[target] !== placed)
        this.#fail(`target ${target}: ${placedBlocks[target]} placed, not ${placed}`);
      if (listed.has(target) !== isListed) this.#fail(`target ${target} listed`);
    }
  }

  #walk(target: number, path: readonly number[]) {
    const counts = new Array<number>(tierCount).fill(0);
    const leading = (inTier: Tier): number => {
      const end = path.findIndex((block) => ((this.tiersOf[target]![block]! >> inTier) & 1) === 0);
      return end < 0 ? path.length : end;
    };
    const onGpu = leading(tier.gpu);
    const { chunkBlocks = 1 } = this.#shape;
    let inExternal = leading(tier.external);
    inExternal -= inExternal % chunkBlocks;
    if (target % 2 === 1 && inExternal - onGpu < chunkBlocks) inExternal = 0;
    const external = 1 << tier.external;
    let held = onGpu;
    for (; held < path.length; held++) {
      const mask = this.tiersOf[target]![path[held]!]! & (held < inExternal ? -1 : ~external);
      if (mask === 0) break;
      counts[31 - Math.clz32(mask & -mask)]!++;
    }
    let usable = held;
    if (this.#isHybrid(target)) while (usable > 0 && this.pointsOf[target]![path[usable - 1]!] === 0) usable--;
    let left = Math.max(0, usable - onGpu);
    for (let inTier = 0; inTier < tierCount; inTier++) {
      counts[inTier] = Math.min(counts[inTier]!, left);
      left -= counts[inTier]!;
    }
    const inCpu = this.#matches.countsCpu ? leading(tier.cpu) : 0;
    let placed = 0;
    let upheld = 0;
    for (; placed < path.length && this.#placedUntil[target]![path[placed]!]! > this.#nowMs; placed++) {
      const use = this.#lastUse[target]![path[placed]!]!;
      if (placed < onGpu || use === upheld) continue;
      if (this.#droppedAfter[target]![path[placed]!]! >= use) break;
      upheld = use;
    }
    const facts = [Math.min(onGpu, usable), usable, held, Math.min(inCpu, held > 0 ? usable : inCpu), ...counts];
    return { facts, placed, isListed: held > 0 || placed > 0 || inCpu > 0 };
  }

  #isHybrid(target: number): boolean {
    return target < (this.#shape.hybrids ?? 0);
  }

  /** A target has nothing yet. */
  #begin(target: number): void {
    const { chunkBlocks } = this.#shape;
    if (this.#isHybrid(target)) this.index.storeFacts(target, resumePoint, emptyPrefix, 0, 1);
    if (chunkBlocks) this.index.storeFacts(target, tier.external, externalChunks(chunkBlocks, target % 2 === 1), 0, 1);
  }

  /** Forgets what stands for the size of chunks, which is no block. */
  forgetChunks(): void {
    const { chunkBlocks, targets } = this.#shape;
    for (let target = 0; target < targets && chunkBlocks; target++) {
      this.index.removeFacts(target, tier.external, externalChunks(chunkBlocks, target % 2 === 1), 0, 1);
    }
  }

  #changePoints(target: number): void {
    const { index, forest } = this;
    const random = this.#random;
    const block = random.integer(forest.blockCount);
    const isStore = random.integer(4) > 0;
    if (isStore) index.storeFacts(target, resumePoint, forest.hashes, block, block + 1);
    else index.removeFacts(target, resumePoint, forest.hashes, block, block + 1);
    this.pointsOf[target]![block] = isStore ? 1 : 0;
  }

  #storeOnGpu(target: number): void {
    const { index, forest } = this;
    const path = forest.pathTo(this.#random.integer(forest.blockCount));
    const from = this.#random.integer(path.length);
    const words = forest.wordsOf(path);
    if (from > 0 && !this.#onGpu(target, path[from - 1]!)) {
      index.removeOrphan(target, tier.gpu, words, { index: from - 1, depth: from - 1 });
    }
    index.storeFacts(target, tier.gpu, words, from, path.length);
    for (const block of path.slice(from)) this.tiersOf[target]![block]! |= 1;
  }

  #removeFromGpu(target: number): void {
    const { index, forest } = this;
    const block = this.#random.integer(forest.blockCount);
    if (!this.#onGpu(target, block)) return;
    this.tiersOf[target]![block]! &= ~1;
    this.#droppedAfter[target]![block] = this.#uses;
    const holdsChild = forest.children[block]!.some((child) => this.#onGpu(target, child));
    const at = { index: block, depth: forest.depth[block]! };
    index.removeFacts(target, tier.gpu, forest.hashes, block, block + 1);
    if (holdsChild) index.removeOrphan(target, tier.gpu, forest.hashes, at);
  }

  #changeSlow(target: number): void {
    const { index, forest } = this;
    const random = this.#random;
    const slowTier = (1 + random.integer(tierCount - 1)) as Tier;
    const path = forest.pathTo(random.integer(forest.blockCount));
    const from = random.integer(path.length);
    const to = Math.min(path.length, from + 1 + random.integer(30));
    const isStore = random.integer(5) > 0;
    const words = forest.wordsOf(path);
    if (isStore) index.storeFacts(target, slowTier, words, from, to);
    else index.removeFacts(target, slowTier, words, from, to);
    for (const block of path.slice(from, to)) {
      if (isStore) this.tiersOf[target]![block]! |= 1 << slowTier;
      else this.tiersOf[target]![block]! &= ~(1 << slowTier);
    }
  }

  #onGpu(target: number, block: number): boolean {
    return (this.tiersOf[target]![block]! & 1) === 1;
  }

  #fail(what: string): never {
    throw new Error(`${what}: run again with seed ${this.#seed} and ${JSON.stringify(this.#shape)}`);
  }
}

/** Facts of a target in another index, put in the other way round. */
function copyByHand(tiers: Uint8Array, hashes: Uint32Array): PrefixIndex {
  const copy = createPrefixIndex({ maxTargets: 8 });
  for (let block = tiers.length - 1; block >= 0; block--) {
    for (let inTier = 0; inTier < tierCount; inTier++) {
      if (((tiers[block]! >> inTier) & 1) === 1) copy.storeFacts(5, inTier as Tier, hashes, block, block + 1);
    }
  }
  return copy;
}

test.each<Shape>([
  { blocks: 300, targets: 4, operations: 60_000, slowShare: 0.4 },
  { blocks: 2_000, targets: 30, operations: 25_000, slowShare: 0.2 },
  { blocks: 300, targets: 3, operations: 30_000, slowShare: 0 },
  { blocks: 300, targets: 5, operations: 30_000, slowShare: 0, hybrids: 4 },
  { blocks: 400, targets: 6, operations: 40_000, slowShare: 0.5, hybrids: 3, chunkBlocks: 3 },
])("answers as a walk does: %o", (shape) => {
  const run = new IndexRun(shape.blocks + shape.targets, shape);
  const { index, forest, tiersOf } = run;
  for (let operation = 1; operation <= shape.operations; operation++) {
    run.step();
    if (operation % 5 === 0) run.check();
  }
  run.forgetChunks();
  let facts = 0;
  for (let target = 0; target < shape.targets; target++) {
    for (let inTier = 0; inTier < tierCount; inTier++) {
      const count = tiersOf[target]!.reduce((sum, mask) => sum + ((mask >> inTier) & 1), 0);
      expect(index.factBlockCount(target, inTier as Tier)).toBe(count);
      facts += count;
    }
    const points = run.pointsOf[target]!;
    const copy = copyByHand(tiersOf[target]!, forest.hashes);
    if (index.isHybrid(target)) copy.storeFacts(5, resumePoint, emptyPrefix, 0, 1);
    points.forEach((isPoint, block) => {
      if (isPoint === 1) copy.storeFacts(5, resumePoint, forest.hashes, block, block + 1);
    });
    facts += index.factBlockCount(target, resumePoint);
    expect(copy.digest(5)).toEqual(index.digest(target));
    copy.storeFacts(5, 1, Uint32Array.of(1, 2), 0, 1);
    expect(copy.digest(5)).not.toEqual(index.digest(target));
  }
  expect(index.factCount).toBe(facts);
});

test("what is exported and imported answers like the original, holes included", () => {
  const shape = { blocks: 1_000, targets: 6, operations: 20_000, slowShare: 0.3 };
  const run = new IndexRun(77, shape);
  const { index, forest } = run;
  for (let operation = 0; operation < shape.operations; operation++) run.step();
  const copy = createPrefixIndex({ maxTargets: 6 });
  for (let target = 0; target < 6; target++) {
    for (const groups of index.exportAll([target])) copy.importChunk(groups);
    expect(copy.digest(target)).toEqual(index.digest(target));
    index.placements.clear(target);
  }
  const [one, other] = [createPrefixMatches(6), createPrefixMatches(6)];
  for (let block = 0; block < shape.blocks; block++) {
    const path = forest.pathTo(block);
    index.match(forest.wordsOf(path), path.length, 0, one);
    copy.match(forest.wordsOf(path), path.length, 0, other);
    expect([other.gpuBlocks, other.factBlocks, ...other.tierBlocks]).toEqual([
      one.gpuBlocks,
      one.factBlocks,
      ...one.tierBlocks,
    ]);
  }
});
