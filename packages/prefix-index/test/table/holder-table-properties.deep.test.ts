import { createSeededRandom, type Random } from "@espalier/core";
import { expect, test } from "vitest";
import { createHolderDepths, HolderMatcher } from "../../src/table/holder-matcher.ts";
import { HolderTable } from "../../src/table/holder-table.ts";
import { type ChainForest, createChainForest } from "../random-chains.ts";

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
class TableRun {
  readonly table: HolderTable;
  readonly #seed: number;
  readonly #shape: Shape;
  readonly #random: Random;
  readonly #forest: ChainForest;
  readonly #matcher: HolderMatcher;
  readonly #found = createHolderDepths(maxHolders);
  readonly #held: readonly Uint8Array[];
  readonly #counts: Int32Array;
  readonly #depths: Int32Array;
  /** The chain that the present operation is about, as blocks and as hashes. */
  readonly #path = new Int32Array(128);
  readonly #words = new Uint32Array(256);

  constructor(seed: number, shape: Shape) {
    const { blocks, holders, maxHoles } = shape;
    this.#seed = seed;
    this.#shape = shape;
    this.#random = createSeededRandom(seed + 1_000);
    this.#forest = createChainForest(seed, blocks);
    this.table = new HolderTable({ maxHolders, maxBlocks: 1 << 20, maxSets: 1 << 16, maxHoles });
    this.#matcher = new HolderMatcher(this.table);
    this.#held = Array.from({ length: holders }, () => new Uint8Array(blocks));
    this.#counts = new Int32Array(holders);
    this.#depths = new Int32Array(holders);
  }

  step(): void {
    const random = this.#random;
    const { blocks, holders, clearEvery } = this.#shape;
    const holder = random.integer(holders);
    const held = this.#held[holder]!;
    if (random.integer(clearEvery) === 0) {
      this.table.clear(holder);
      held.fill(0);
      this.#counts[holder] = 0;
    } else if (random.integer(50) === 0) {
      const block = random.integer(blocks);
      if (!held[block] && !this.#holdsChild(held, block)) this.table.forgetHole(holder, this.#forest.hashes, block);
    } else if (random.integer(100) < 55) this.#store(holder);
    else this.#remove(holder);
  }

  /** Compares one query with a walk. */
  check(): void {
    const random = this.#random;
    const known = this.#choosePath();
    const length = known + random.integer(3);
    for (let word = known * 2; word < length * 2; word++) this.#words[word] = random.integer(0x1_0000_0000);
    const found = this.#found;
    this.#matcher.match(this.#words, length, found);
    const depths = this.#depths.fill(0);
    for (let index = 0; index < found.count; index++) {
      if (depths[found.holders[index]!] !== 0) this.#fail("a holder found twice");
      depths[found.holders[index]!] = found.depths[index]!;
    }
    for (const [holder, held] of this.#held.entries()) {
      let depth = 0;
      while (depth < known && held[this.#path[depth]!]) depth++;
      if (depths[holder] !== depth) this.#fail(`depth of holder ${holder} is ${depth}, found ${depths[holder]}`);
    }
  }

  checkCounts(): void {
    for (const [holder, count] of this.#counts.entries()) expect(this.table.blockCount(holder)).toBe(count);
    expect(this.table.pairs).toBe(this.#counts.reduce((sum, count) => sum + count, 0));
    expect(this.table.refused).toBe(0);
  }

  #store(holder: number): void {
    const random = this.#random;
    const held = this.#held[holder]!;
    const length = this.#choosePath();
    let from = random.integer(length);
    if (random.integer(3) > 0) for (from = 0; from < length - 1 && held[this.#path[from]!]; ) from++;
    if (from > 0 && !held[this.#path[from - 1]!]) {
      this.table.removeOrphaning(holder, this.#words, { index: from - 1, depth: from - 1 });
    }
    const fresh = this.#write(holder, from, length, 1);
    if (this.table.store(holder, this.#words, from, length) !== fresh) this.#fail("stored");
  }

  #remove(holder: number): void {
    const random = this.#random;
    const held = this.#held[holder]!;
    const path = this.#path;
    const length = this.#choosePath();
    const last = path[length - 1]!;
    let from = length - 1;
    if (this.#holdsChild(held, last)) {
      if (!held[last] || random.integer(4) > 0) return;
      this.#write(holder, from, length, 0);
      if (!this.table.removeOrphaning(holder, this.#words, { index: from, depth: from })) this.#fail("orphaning");
      return;
    }
    // The end of a path, as far as nothing else that is held continues it.
    const wanted = random.integer(20);
    for (; from > 0 && length - from < wanted; from--) {
      const next = path[from]!;
      if (this.#forest.children[path[from - 1]!]!.some((child) => child !== next && held[child])) break;
    }
    const gone = this.#write(holder, from, length, 0);
    if (this.table.remove(holder, this.#words, from, length) !== gone) this.#fail("removed");
  }

  /** Chooses a block, writes its chain, and returns how long that is. */
  #choosePath(): number {
    const { depth, parent, hashes } = this.#forest;
    const block = this.#random.integer(this.#shape.blocks);
    const length = depth[block]! + 1;
    for (let at = block, index = length - 1; index >= 0; at = parent[at]!, index--) {
      this.#path[index] = at;
      this.#words[index * 2] = hashes[at * 2]!;
      this.#words[index * 2 + 1] = hashes[at * 2 + 1]!;
    }
    return length;
  }

  #write(holder: number, from: number, to: number, value: number): number {
    const held = this.#held[holder]!;
    let changed = 0;
    for (let index = from; index < to; index++) {
      if (held[this.#path[index]!] !== value) changed++;
      held[this.#path[index]!] = value;
    }
    this.#counts[holder]! += value === 1 ? changed : -changed;
    return changed;
  }

  #holdsChild(held: Uint8Array, block: number): boolean {
    return this.#forest.children[block]!.some((child) => held[child]);
  }

  #fail(what: string): never {
    throw new Error(`${what}: run again with seed ${this.#seed} and ${JSON.stringify(this.#shape)}`);
  }
}

test.each<Shape>([
  { blocks: 400, holders: 3, operations: 600_000, maxHoles: 65_536, clearEvery: 2_000 },
  { blocks: 3_000, holders: 40, operations: 200_000, maxHoles: 65_536, clearEvery: 400 },
  { blocks: 3_000, holders: maxHolders, operations: 100_000, maxHoles: 2, clearEvery: 300 },
  { blocks: 30_000, holders: 8, operations: 100_000, maxHoles: 65_536, clearEvery: 5_000 },
])(
  "$operations operations on $blocks blocks and $holders holders, $maxHoles holes each, answer as a walk does",
  (shape) => {
    const run = new TableRun(shape.blocks, shape);
    for (let operation = 1; operation <= shape.operations; operation++) {
      run.step();
      if (operation % 10 === 0) run.check();
      if (operation % 20_000 === 0) run.checkCounts();
    }
    while (run.table.sweep(10_000));
    run.checkCounts();
  },
);
