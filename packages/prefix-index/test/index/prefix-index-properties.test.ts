import { createSeededRandom } from "@espalier/common";
import { expect, test } from "vitest";
import { createPrefixIndex, type PrefixIndex } from "../../src/prefix-index.ts";
import { createPrefixMatches } from "../../src/prefix-matches.ts";
import { type Tier, tierNames } from "../../src/tiers.ts";
import { createChainForest } from "../random-chains.ts";

const tierCount = tierNames.length;
const ttlMs = 400;

interface Shape {
  readonly blocks: number;
  readonly targets: number;
  readonly operations: number;
  /** Of all stores, the share that goes to slow tiers. */
  readonly slowShare: number;
}

/** The index beside, for each target, a mask of tiers per block and a map of placements. */
function createRun(seed: number, shape: Shape) {
  const { blocks, targets } = shape;
  const random = createSeededRandom(seed + 1_000);
  const forest = createChainForest(seed, blocks);
  const index = createPrefixIndex({ maxTargets: targets });
  const matches = createPrefixMatches(targets);
  const tiersOf = Array.from({ length: targets }, () => new Uint8Array(blocks));
  const placedUntil = Array.from({ length: targets }, () => new Float64Array(blocks));
  let nowMs = 0;

  const fail = (what: string): never => {
    throw new Error(`${what}: run again with seed ${seed} and ${JSON.stringify(shape)}`);
  };
  const onGpu = (target: number, block: number) => (tiersOf[target]![block]! & 1) === 1;
  const holdsChild = (target: number, block: number) => forest.children[block]!.some((child) => onGpu(target, child));

  const storeOnGpu = (target: number) => {
    const path = forest.pathTo(random.integer(blocks));
    const from = random.integer(path.length);
    const words = forest.wordsOf(path);
    if (from > 0 && !onGpu(target, path[from - 1]!)) {
      index.removeOrphan(target, 0, words, { index: from - 1, depth: from - 1 });
    }
    index.storeFacts(target, 0, words, from, path.length);
    for (const block of path.slice(from)) tiersOf[target]![block]! |= 1;
  };
  const removeFromGpu = (target: number) => {
    const block = random.integer(blocks);
    if (!onGpu(target, block)) return;
    tiersOf[target]![block]! &= ~1;
    const at = { index: block, depth: forest.depth[block]! };
    if (holdsChild(target, block)) index.removeOrphan(target, 0, forest.hashes, at);
    else index.removeFacts(target, 0, forest.hashes, block, block + 1);
  };
  const changeSlow = (target: number) => {
    const slowTier = (1 + random.integer(tierCount - 1)) as Tier;
    const path = forest.pathTo(random.integer(blocks));
    const from = random.integer(path.length);
    const to = Math.min(path.length, from + 1 + random.integer(30));
    const isStore = random.integer(5) > 0;
    const words = forest.wordsOf(path);
    if (isStore) index.storeFacts(target, slowTier, words, from, to);
    else index.removeFacts(target, slowTier, words, from, to);
    for (const block of path.slice(from, to)) {
      if (isStore) tiersOf[target]![block]! |= 1 << slowTier;
      else tiersOf[target]![block]! &= ~(1 << slowTier);
    }
  };
  const step = () => {
    const target = random.integer(targets);
    nowMs += random.float();
    const kind = random.float();
    if (random.integer(600) === 0) {
      if (random.integer(2) === 0) index.clearFacts(target);
      else {
        index.forgetTarget(target);
        placedUntil[target]!.fill(0);
      }
      tiersOf[target]!.fill(0);
    } else if (kind < 0.1) {
      const path = forest.pathTo(random.integer(blocks));
      index.place(target, forest.wordsOf(path), path.length, { nowMs, ttlMs });
      for (const block of path) placedUntil[target]![block] = nowMs + ttlMs;
    } else if (kind < 0.12) index.maintain(nowMs, random.integer(100));
    else if (random.float() < shape.slowShare) changeSlow(target);
    else if (random.integer(3) === 0) storeOnGpu(target);
    else removeFromGpu(target);
  };
  const expected = (target: number, path: readonly number[]): number[] => {
    const counts = new Array<number>(tierCount).fill(0);
    let gpu = 0;
    while (gpu < path.length && onGpu(target, path[gpu]!)) gpu++;
    let facts = gpu;
    for (; facts < path.length && tiersOf[target]![path[facts]!] !== 0; facts++) {
      const mask = tiersOf[target]![path[facts]!]!;
      counts[31 - Math.clz32(mask & -mask)]!++;
    }
    let placed = 0;
    while (placed < path.length && placedUntil[target]![path[placed]!]! > nowMs) placed++;
    return [gpu, facts, placed, ...counts];
  };
  const check = () => {
    const path = forest.pathTo(random.integer(blocks));
    index.match(forest.wordsOf(path), path.length, nowMs, matches);
    const listed = new Set(matches.targets.subarray(0, matches.count));
    if (listed.size !== matches.count) fail("a target listed twice");
    for (let target = 0; target < targets; target++) {
      const { gpuBlocks, factBlocks, placedBlocks, tierBlocks } = matches;
      const got = [gpuBlocks, factBlocks, placedBlocks, ...tierBlocks].map((column) => column[target]!);
      const want = expected(target, path);
      if (got.join() !== want.join()) fail(`target ${target}: found ${got}, not ${want}`);
      if (listed.has(target) !== want.slice(0, 3).some((depth) => depth > 0)) fail(`target ${target} on the list`);
    }
  };
  return { index, forest, tiersOf, step, check };
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
])("$operations random changes of $targets targets, $slowShare in slow tiers, answer as a walk does", (shape) => {
  const { index, forest, tiersOf, step, check } = createRun(shape.blocks + shape.targets, shape);
  for (let operation = 1; operation <= shape.operations; operation++) {
    step();
    if (operation % 5 === 0) check();
  }
  let facts = 0;
  for (let target = 0; target < shape.targets; target++) {
    for (let inTier = 0; inTier < tierCount; inTier++) {
      const count = tiersOf[target]!.reduce((sum, mask) => sum + ((mask >> inTier) & 1), 0);
      expect(index.factBlockCount(target, inTier as Tier)).toBe(count);
      facts += count;
    }
    const copy = copyByHand(tiersOf[target]!, forest.hashes);
    expect(copy.digest(5)).toEqual(index.digest(target));
    copy.storeFacts(5, 1, Uint32Array.of(1, 2), 0, 1);
    expect(copy.digest(5)).not.toEqual(index.digest(target));
  }
  expect(index.factCount).toBe(facts);
});

test("what is exported and imported answers like the original, holes included", () => {
  const shape = { blocks: 1_000, targets: 6, operations: 20_000, slowShare: 0.3 };
  const { index, forest, step } = createRun(77, shape);
  for (let operation = 0; operation < shape.operations; operation++) step();
  const copy = createPrefixIndex({ maxTargets: 6 });
  for (let target = 0; target < 6; target++) {
    for (const chunk of index.exportFacts(target)) copy.importFacts(target, chunk);
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
