import { createSeededRandom } from "@espalier/common";
import { expect, test } from "vitest";
import { createHolderDepths } from "../../src/table/holder-depths.ts";
import { HolderMatcher } from "../../src/table/holder-matcher.ts";
import { HolderTable } from "../../src/table/holder-table.ts";
import { createChainForest } from "../random-chains.ts";

const maxHolders = 70;

interface Shape {
  readonly blocks: number;
  readonly holders: number;
  readonly operations: number;
  readonly maxHoles: number;
  /** One in this many operations voids a holder. */
  readonly clearEvery: number;
}

/** The table beside what it stands for: for each holder, whether it holds each block. Random operations go to both. */
function createRun(seed: number, { blocks, holders, maxHoles, clearEvery }: Shape) {
  const random = createSeededRandom(seed + 1_000);
  const forest = createChainForest(seed, blocks);
  const table = new HolderTable({ maxHolders, maxBlocks: 1 << 20, maxSets: 1 << 16, maxHoles });
  const matcher = new HolderMatcher(table);
  const found = createHolderDepths(maxHolders);
  const held = Array.from({ length: holders }, () => new Uint8Array(blocks));
  const counts = new Int32Array(holders);
  const path = new Int32Array(128);
  const words = new Uint32Array(256);
  const depths = new Int32Array(holders);
  const holdsChild = (holder: number, block: number) => forest.children[block]!.some((child) => held[holder]![child]);

  const fail = (what: string): never => {
    throw new Error(
      `${what}: run again with seed ${seed} and ${JSON.stringify({ blocks, holders, maxHoles, clearEvery })}`,
    );
  };
  const writePath = (block: number): number => {
    const length = forest.depth[block]! + 1;
    for (let at = block, index = length - 1; index >= 0; at = forest.parent[at]!, index--) {
      path[index] = at;
      words[index * 2] = forest.hashes[at * 2]!;
      words[index * 2 + 1] = forest.hashes[at * 2 + 1]!;
    }
    return length;
  };
  const write = (holder: number, from: number, to: number, value: number): number => {
    let changed = 0;
    for (let index = from; index < to; index++) {
      if (held[holder]![path[index]!] !== value) changed++;
      held[holder]![path[index]!] = value;
    }
    counts[holder]! += value === 1 ? changed : -changed;
    return changed;
  };
  const store = (holder: number) => {
    const length = writePath(random.integer(blocks));
    let from = random.integer(length);
    if (random.integer(3) > 0) for (from = 0; from < length - 1 && held[holder]![path[from]!]; ) from++;
    const isOrphan = from > 0 && !held[holder]![path[from - 1]!];
    if (isOrphan) table.removeOrphaning(holder, words, { index: from - 1, depth: from - 1 });
    const fresh = write(holder, from, length, 1);
    if (table.store(holder, words, from, length) !== fresh) fail("stored");
  };
  const remove = (holder: number) => {
    const length = writePath(random.integer(blocks));
    const last = path[length - 1]!;
    let from = length - 1;
    if (holdsChild(holder, last)) {
      if (!held[holder]![last] || random.integer(4) > 0) return;
      write(holder, from, length, 0);
      if (!table.removeOrphaning(holder, words, { index: from, depth: from })) fail("removed with children");
      return;
    }
    // The end of a path, as far as nothing else that is held continues it.
    const wanted = random.integer(20);
    for (; from > 0 && length - from < wanted; from--) {
      const continued = path[from - 1]!;
      if (forest.children[continued]!.some((child) => child !== path[from] && held[holder]![child])) break;
    }
    const gone = write(holder, from, length, 0);
    if (table.remove(holder, words, from, length) !== gone) fail("removed");
  };
  const step = () => {
    const holder = random.integer(holders);
    if (random.integer(clearEvery) === 0) {
      table.clear(holder);
      held[holder]!.fill(0);
      counts[holder] = 0;
    } else if (random.integer(50) === 0) {
      const block = random.integer(blocks);
      if (!held[holder]![block] && !holdsChild(holder, block)) table.forgetHole(holder, forest.hashes, block);
    } else if (random.integer(100) < 55) store(holder);
    else remove(holder);
  };
  const check = () => {
    const known = writePath(random.integer(blocks));
    const length = known + random.integer(3);
    for (let word = known * 2; word < length * 2; word++) words[word] = random.integer(0x1_0000_0000);
    matcher.match(words, length, found);
    depths.fill(0);
    for (let index = 0; index < found.count; index++) {
      if (depths[found.holders[index]!] !== 0) fail("a holder found twice");
      depths[found.holders[index]!] = found.depths[index]!;
    }
    for (let holder = 0; holder < holders; holder++) {
      let depth = 0;
      while (depth < known && held[holder]![path[depth]!]) depth++;
      if (depths[holder] !== depth) fail(`depth of holder ${holder} is ${depth}, found ${depths[holder]}`);
    }
  };
  const checkCounts = () => {
    for (let holder = 0; holder < holders; holder++) expect(table.blockCount(holder)).toBe(counts[holder]);
    expect(table.pairs).toBe(counts.reduce((sum, count) => sum + count, 0));
    expect(table.refused).toBe(0);
  };
  return { table, step, check, checkCounts };
}

test.each<Shape>([
  { blocks: 400, holders: 3, operations: 600_000, maxHoles: 65_536, clearEvery: 2_000 },
  { blocks: 3_000, holders: 40, operations: 200_000, maxHoles: 65_536, clearEvery: 400 },
  { blocks: 3_000, holders: maxHolders, operations: 100_000, maxHoles: 2, clearEvery: 300 },
  { blocks: 30_000, holders: 8, operations: 100_000, maxHoles: 65_536, clearEvery: 5_000 },
])(
  "$operations operations on $blocks blocks and $holders holders, $maxHoles holes each, answer as a walk does",
  (shape) => {
    const { table, step, check, checkCounts } = createRun(shape.blocks, shape);
    for (let operation = 1; operation <= shape.operations; operation++) {
      step();
      if (operation % 10 === 0) check();
      if (operation % 20_000 === 0) checkCounts();
    }
    while (table.sweep(10_000));
    checkCounts();
  },
);
