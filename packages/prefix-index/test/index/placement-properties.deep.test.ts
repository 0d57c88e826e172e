import { createSeededRandom, type Random } from "@espalier/core";
import { expect, test } from "vitest";
import { Placements } from "../../src/placements/placements.ts";
import { createPrefixMatches, type PrefixMatches, resetPrefixMatches } from "../../src/prefix-matches.ts";
import { type ChainForest, createChainForest, type ForestShape } from "../random-chains.ts";

interface PlacedBlock {
  readonly use: number;
  readonly lastUseMs: number;
  readonly expiryMs: number;
  readonly confirmedUntilMs: number;
}

interface Shape {
  readonly blocks: number;
  readonly targets: number;
  readonly operations: number;
  readonly maxBlocksPerTarget: number;
  readonly ttlMs: number;
  /** One in this many operations clears a target. */
  readonly clearEvery: number;
  readonly forest: ForestShape;
}

/** What placements of one target stand for: a map of blocks. */
class PlacementModel {
  readonly blocks = new Map<number, PlacedBlock>();
  readonly #forest: ChainForest;
  readonly #maxBlocks: number;
  #uses = 0;

  constructor(forest: ChainForest, maxBlocks: number) {
    this.#forest = forest;
    this.#maxBlocks = maxBlocks;
  }

  expire(nowMs: number): void {
    for (const [block, { expiryMs }] of this.blocks) if (expiryMs <= nowMs) this.blocks.delete(block);
  }

  use(path: readonly number[], times: { nowMs: number; expiryMs: number; confirmedUntilMs: number }): void {
    this.expire(times.nowMs);
    this.#uses++;
    for (const block of path.slice(0, this.#maxBlocks)) {
      const before = this.blocks.get(block);
      this.blocks.set(block, {
        use: this.#uses,
        lastUseMs: times.nowMs,
        expiryMs: Math.max(before?.expiryMs ?? 0, times.expiryMs),
        confirmedUntilMs: Math.max(before?.confirmedUntilMs ?? 0, times.confirmedUntilMs),
      });
    }
    const excess = this.blocks.size - this.#maxBlocks;
    if (excess <= 0) return;
    const { depth } = this.#forest;
    const oldest = [...this.blocks].sort(
      ([one, { use: first }], [other, { use: second }]) => first - second || depth[other]! - depth[one]!,
    );
    for (const [block] of oldest.slice(0, excess)) this.blocks.delete(block);
  }

  refute(cut: number, nowMs: number): number {
    this.expire(nowMs);
    if (!this.blocks.has(cut)) return 0;
    let gone = 0;
    for (const block of [...this.blocks.keys()]) {
      let at = block;
      while (at >= 0 && at !== cut) at = this.#forest.parent[at]!;
      if (at === cut && this.blocks.delete(block)) gone++;
    }
    return gone;
  }

  /** Depth, confirmed depth and age of the deepest block. */
  match(path: readonly number[], atMs: number): [number, number, number] {
    let depth = 0;
    let confirmed = 0;
    let ageMs = 0;
    for (const block of path) {
      const placed = this.blocks.get(block);
      if (!placed || placed.expiryMs <= atMs) break;
      depth++;
      ageMs = atMs - placed.lastUseMs;
      if (placed.confirmedUntilMs > atMs) confirmed = depth;
    }
    return [depth, confirmed, ageMs];
  }
}

/** Placements beside their models. */
class PlacementRun {
  readonly #seed: number;
  readonly #shape: Shape;
  readonly #random: Random;
  readonly #forest: ChainForest;
  readonly #placements: Placements;
  readonly #models: readonly PlacementModel[];
  readonly #found: PrefixMatches;
  #nowMs = 0;

  constructor(seed: number, shape: Shape) {
    const { blocks, targets, maxBlocksPerTarget } = shape;
    this.#seed = seed;
    this.#shape = shape;
    this.#random = createSeededRandom(seed + 1_000);
    this.#forest = createChainForest(seed, blocks, shape.forest);
    const bounds = { maxBlocks: 1 << 20, maxSegments: 1 << 16, maxDroppedBlocks: 1_024 };
    this.#placements = new Placements({ maxTargets: targets, maxBlocksPerTarget, ...bounds });
    this.#models = Array.from({ length: targets }, () => new PlacementModel(this.#forest, maxBlocksPerTarget));
    this.#found = createPrefixMatches(targets);
  }

  step(): void {
    const random = this.#random;
    const { targets, blocks, ttlMs: longestMs, clearEvery } = this.#shape;
    const target = random.integer(targets);
    const model = this.#models[target]!;
    const path = this.#forest.pathTo(random.integer(blocks));
    const words = this.#forest.wordsOf(path);
    const kind = random.integer(100);
    this.#nowMs += random.float() * 10;
    const nowMs = this.#nowMs;
    if (random.integer(clearEvery) === 0) {
      this.#placements.clear(target);
      model.blocks.clear();
    } else if (kind < 70) {
      const ttlMs = random.float() * longestMs;
      this.#placements.place(target, words, path.length, { nowMs, ttlMs });
      model.use(path, { nowMs, expiryMs: nowMs + ttlMs, confirmedUntilMs: 0 });
    } else if (kind < 85) {
      const ttlMs = random.float() * longestMs * 3;
      const confirmed = 1 + random.integer(path.length);
      this.#placements.confirm(target, words, confirmed, { nowMs, ttlMs });
      model.use(path.slice(0, confirmed), { nowMs, expiryMs: nowMs + ttlMs, confirmedUntilMs: nowMs + ttlMs });
    } else if (kind < 95) {
      const from = random.integer(path.length);
      const gone = this.#placements.refute(target, words, { from, blockCount: path.length, nowMs });
      if (gone !== model.refute(path[from]!, nowMs)) this.#fail("refuted");
    } else this.#placements.expire(nowMs, 1 + random.integer(50));
  }

  check(): void {
    const random = this.#random;
    const found = this.#found;
    const path = this.#forest.pathTo(random.integer(this.#shape.blocks));
    const atMs = this.#nowMs + (random.integer(4) === 0 ? random.float() * this.#shape.ttlMs : 0);
    resetPrefixMatches(found);
    this.#placements.match(this.#forest.wordsOf(path), path.length, atMs, found);
    const listed = new Set(found.targets.subarray(0, found.count));
    if (listed.size !== found.count) this.#fail("a target found twice");
    for (const [target, model] of this.#models.entries()) {
      const want = model.match(path, atMs);
      const { placedBlocks, confirmedBlocks, placementAgeMs } = found;
      const got = [placedBlocks, confirmedBlocks, placementAgeMs].map((column) => column[target]!);
      if (listed.has(target) !== want[0]! > 0) this.#fail(`target ${target} listed`);
      if (got.join() !== want.join()) this.#fail(`target ${target}: found ${got}, not ${want}`);
    }
  }

  /** Compares sizes, lets everything expire, and sees that nothing is left. */
  finish(): void {
    const placements = this.#placements;
    while (placements.expire(this.#nowMs, 1_000));
    for (const [target, model] of this.#models.entries()) {
      model.expire(this.#nowMs);
      expect(placements.blockCount(target)).toBe(model.blocks.size);
    }
    expect(placements.refusedBlocks).toBe(0);
    while (placements.expire(this.#nowMs + this.#shape.ttlMs * 4, 1_000));
    expect(placements.storage.segments.count).toBe(0);
    expect(placements.storage.segments.pool.usedWords).toBe(0);
    expect(placements.storage.roots.pairs).toBe(0);
  }

  #fail(what: string): never {
    throw new Error(`${what}: run again with seed ${this.#seed} and ${JSON.stringify(this.#shape)}`);
  }
}

const branchy = { maxDepth: 80, rootEvery: 40, branchEvery: 6 };
const long = { maxDepth: 700, rootEvery: 800, branchEvery: 60 };

test.each<Shape>([
  { blocks: 60, targets: 2, operations: 60_000, maxBlocksPerTarget: 25, ttlMs: 500, clearEvery: 500, forest: branchy },
  {
    blocks: 300,
    targets: 4,
    operations: 40_000,
    maxBlocksPerTarget: 120,
    ttlMs: 2e3,
    clearEvery: 300,
    forest: branchy,
  },
  { blocks: 1_500, targets: 5, operations: 4_000, maxBlocksPerTarget: 2e3, ttlMs: 2e4, clearEvery: 200, forest: long },
  { blocks: 1_500, targets: 3, operations: 4_000, maxBlocksPerTarget: 600, ttlMs: 4e3, clearEvery: 900, forest: long },
])("$operations random uses of $blocks blocks on $targets targets leave what a list would", (shape) => {
  const run = new PlacementRun(shape.blocks + shape.targets, shape);
  for (let operation = 1; operation <= shape.operations; operation++) {
    run.step();
    if (operation % 4 === 0) run.check();
  }
  run.finish();
});
