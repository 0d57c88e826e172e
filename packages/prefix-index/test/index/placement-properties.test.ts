import { createSeededRandom } from "@espalier/common";
import { expect, test } from "vitest";
import { createPlacementDepths, Placements } from "../../src/placements/placements.ts";
import { createChainForest } from "../random-chains.ts";

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
}

/** Placements beside one map of blocks per target, which is what they stand for. */
function createRun(seed: number, shape: Shape) {
  const { blocks, targets, maxBlocksPerTarget } = shape;
  const random = createSeededRandom(seed + 1_000);
  const forest = createChainForest(seed, blocks, 700);
  const placements = new Placements({
    maxTargets: targets,
    maxBlocksPerTarget,
    maxBlocks: 1 << 20,
    maxSegments: 1 << 16,
  });
  const found = createPlacementDepths(targets);
  const model = Array.from({ length: targets }, () => new Map<number, PlacedBlock>());
  let nowMs = 0;
  let uses = 0;

  const fail = (what: string): never => {
    throw new Error(`${what}: run again with seed ${seed} and ${JSON.stringify(shape)}`);
  };
  const expire = (target: number) => {
    for (const [block, { expiryMs }] of model[target]!) if (expiryMs <= nowMs) model[target]!.delete(block);
  };
  const use = (target: number, path: readonly number[], expiryMs: number, confirmedUntilMs: number) => {
    const placed = model[target]!;
    expire(target);
    uses++;
    for (const block of path.slice(0, maxBlocksPerTarget)) {
      const before = placed.get(block);
      placed.set(block, {
        use: uses,
        lastUseMs: nowMs,
        expiryMs: Math.max(before?.expiryMs ?? 0, expiryMs),
        confirmedUntilMs: Math.max(before?.confirmedUntilMs ?? 0, confirmedUntilMs),
      });
    }
    const excess = placed.size - maxBlocksPerTarget;
    if (excess <= 0) return;
    const oldest = [...placed].sort(
      ([one, { use: first }], [other, { use: second }]) => first - second || forest.depth[other]! - forest.depth[one]!,
    );
    for (const [block] of oldest.slice(0, excess)) placed.delete(block);
  };
  const refute = (target: number, path: readonly number[], from: number): number => {
    expire(target);
    const cut = path[from]!;
    if (!model[target]!.has(cut)) return 0;
    let gone = 0;
    for (const block of [...model[target]!.keys()]) {
      let at = block;
      while (at >= 0 && at !== cut) at = forest.parent[at]!;
      if (at === cut && model[target]!.delete(block)) gone++;
    }
    return gone;
  };

  const step = () => {
    const target = random.integer(targets);
    const path = forest.pathTo(random.integer(blocks));
    const words = forest.wordsOf(path);
    const kind = random.integer(100);
    nowMs += random.float() * 10;
    if (random.integer(shape.clearEvery) === 0) {
      placements.clear(target);
      model[target]!.clear();
    } else if (kind < 70) {
      const ttlMs = random.float() * shape.ttlMs;
      placements.place(target, words, path.length, { nowMs, ttlMs });
      use(target, path, nowMs + ttlMs, 0);
    } else if (kind < 85) {
      const ttlMs = random.float() * shape.ttlMs * 3;
      const confirmed = 1 + random.integer(path.length);
      placements.confirm(target, words, confirmed, { nowMs, ttlMs });
      use(target, path.slice(0, confirmed), nowMs + ttlMs, nowMs + ttlMs);
    } else if (kind < 95) {
      const from = random.integer(path.length);
      const gone = placements.refute(target, words, { from, blockCount: path.length, nowMs });
      const expected = refute(target, path, from);
      if (gone !== expected) fail(`refuted ${gone} instead of ${expected}`);
    } else placements.expire(nowMs, 1 + random.integer(50));
  };
  const check = () => {
    const path = forest.pathTo(random.integer(blocks));
    const atMs = nowMs + (random.integer(4) === 0 ? random.float() * shape.ttlMs : 0);
    placements.match(forest.wordsOf(path), path.length, atMs, found);
    const listed = new Map([...found.targets.subarray(0, found.count)].map((target, index) => [target, index]));
    if (listed.size !== found.count) fail("a target found twice");
    for (let target = 0; target < targets; target++) {
      let depth = 0;
      let confirmed = 0;
      let ageMs = 0;
      for (const block of path) {
        const placed = model[target]!.get(block);
        if (!placed || placed.expiryMs <= atMs) break;
        depth++;
        ageMs = atMs - placed.lastUseMs;
        if (placed.confirmedUntilMs > atMs) confirmed = depth;
      }
      const index = listed.get(target);
      const got =
        index === undefined ? [0, 0, 0] : [found.depths[index], found.confirmedDepths[index], found.agesMs[index]];
      if (got[0] !== depth || got[1] !== confirmed || got[2] !== ageMs) {
        fail(`target ${target}: found ${got}, not ${[depth, confirmed, ageMs]}`);
      }
    }
  };
  const finish = () => {
    for (let target = 0; target < targets; target++) {
      expire(target);
      while (placements.expire(nowMs, 1_000));
      expect(placements.blockCount(target)).toBe(model[target]!.size);
    }
    expect(placements.refusedBlocks).toBe(0);
    nowMs += shape.ttlMs * 4;
    while (placements.expire(nowMs, 1_000));
    expect(placements.storage.segments.count).toBe(0);
    expect(placements.storage.segments.pool.usedWords).toBe(0);
    expect(placements.storage.roots.pairs).toBe(0);
  };
  return { step, check, finish };
}

test.each<Shape>([
  { blocks: 60, targets: 2, operations: 40_000, maxBlocksPerTarget: 25, ttlMs: 500, clearEvery: 500 },
  { blocks: 300, targets: 4, operations: 30_000, maxBlocksPerTarget: 120, ttlMs: 2_000, clearEvery: 300 },
  { blocks: 1_500, targets: 12, operations: 5_000, maxBlocksPerTarget: 100_000, ttlMs: 20_000, clearEvery: 200 },
])("$operations random uses of $blocks blocks on $targets targets leave what a list would", (shape) => {
  const { step, check, finish } = createRun(shape.blocks, shape);
  for (let operation = 1; operation <= shape.operations; operation++) {
    step();
    if (operation % 4 === 0) check();
  }
  finish();
});
