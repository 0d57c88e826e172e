import { createSeededRandom, type Random } from "@espalier/core";
import { createPrefixIndex, createPrefixMatches, FeedLedger, type PrefixIndex, tier } from "@espalier/prefix-index";
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { maxPartialGroups } from "../../src/ledger/cache-groups.ts";
import { batchOf, chainOf, type TestEvent, testDigests, wordsOf } from "./helpers.ts";

type Attention = NonNullable<TestEvent["attention"]>;

/** A cache group; `blocks` of a window or a chunk, `step` blocks of full attention in one of the group's. */
interface Group {
  readonly attention: Attention;
  readonly blocks: number;
  readonly step: number;
}

const full: Group = { attention: "full", blocks: 0, step: 1 };
const windowOf = (blocks: number, step = 1): Group => ({ attention: "window", blocks, step });
const state = (step = 1): Group => ({ attention: "state", blocks: 1, step });
const chunkOf = (blocks: number): Group => ({ attention: "chunk", blocks, step: 1 });

const models: readonly (readonly [string, number, readonly Group[], number])[] = [
  ["a window", 4, [windowOf(3), full], 40],
  ["a window of one block", 4, [full, windowOf(1)], 20],
  ["three groups of one window", 4, [windowOf(2), windowOf(2), windowOf(2), full], 20],
  ["two windows", 4, [windowOf(1), full, windowOf(4)], 20],
  ["states", 4, [full, state(), state()], 20],
  ["states of larger blocks", 4, [full, state(3)], 20],
  ["a window of larger blocks", 4, [windowOf(2, 2), full], 20],
  ["a window and a state", 4, [state(2), windowOf(2), full], 20],
  ["chunks", 4, [full, chunkOf(4)], 20],
];

test.each(models)("%s: the ledger and the index agree with the engine's own rule", (_name, blockSize, groups, runs) => {
  for (const seed of fixedSeeds(runs, 1)) {
    for (const parts of [1, 2]) {
      try {
        compare(new RandomEngine(createSeededRandom(seed), groups, blockSize), blockSize / parts);
      } catch (error) {
        throw new Error(`seed ${seed}, ${parts} router blocks in one of the engine`, { cause: error });
      }
    }
  }
});

test("groups beyond the bound are left out", () => {
  const index = createPrefixIndex({ maxTargets: 1 });
  const ledger = ledgerOver(index, 1);
  const stored = { kind: "stored" as const, hashes: [1n], tokens: [97], blockSize: 1 };
  const states = Array.from({ length: maxPartialGroups + 1 }, (_, group) => ({
    ...stored,
    group,
    attention: "state" as const,
  }));
  ledger.apply(batchOf(...states, { ...stored, group: maxPartialGroups + 1 }));
  const usable = (): number => {
    const matches = createPrefixMatches(1);
    index.match(wordsOf(chainOf([97], 1)), 1, 0, matches);
    return matches.factBlocks[0]!;
  };
  expect(usable()).toBe(1);
  expect(ledger.apply(batchOf({ kind: "removed", hashes: [1n], group: maxPartialGroups }))).toMatchObject({
    skippedEvents: 1,
  });
  expect(usable()).toBe(1);
  ledger.apply(batchOf({ kind: "removed", hashes: [1n], group: maxPartialGroups - 1 }));
  expect(usable()).toBe(0);
});

function compare(engine: RandomEngine, routerBlock: number): void {
  const index = createPrefixIndex({ maxTargets: 1 });
  const ledger = ledgerOver(index, routerBlock);
  const matches = createPrefixMatches(1);
  const other = createPrefixIndex({ maxTargets: 1 });
  for (let message = 0; message < 120; message++) {
    ledger.apply(batchOf(...engine.message()));
    const chain = engine.prompt();
    const words = wordsOf(chainOf(engine.tokensOf(chain), routerBlock));
    index.match(words, words.length / 2, 0, matches);
    const parts = engine.blockSize / routerBlock;
    const found = { message, usable: matches.factBlocks[0]! / parts, held: matches.heldBlocks[0]! / parts };
    expect(found).toEqual({ message, usable: engine.usable(chain), held: engine.held(chain) });
  }
  ledger.tellAll(sinkOf(other));
  expect(other.digest(0)).toEqual(index.digest(0));
  const copied = createPrefixIndex({ maxTargets: 1 });
  for (const groups of index.exportAll()) copied.importChunk(groups);
  expect(copied.digest(0)).toEqual(index.digest(0));
}

const sinkOf = (index: PrefixIndex) => ({
  stored: index.storeFacts.bind(index, 0),
  removed: index.removeFacts.bind(index, 0),
  orphaned: (inTier: 0 | 1 | 2 | 3, words: Uint32Array, at: number, depth: number) =>
    index.removeOrphan(0, inTier, words, { index: at, depth }),
  holeGone: (inTier: number, words: Uint32Array, at: number) => {
    if (inTier === tier.gpu) index.forgetOrphan(0, words, at);
  },
  cleared: () => index.clearFacts(0),
});

const ledgerOver = (index: PrefixIndex, blockSize: number) =>
  new FeedLedger({ blockSize, digests: testDigests, sink: sinkOf(index), chunkTokens: 16 });

const maxDepth = 12;

/** Stores and removes blocks of its groups by chance, and says what of a prompt it could use, as vLLM decides it. */
class RandomEngine {
  readonly blockSize: number;
  readonly #random: Random;
  readonly #groups: readonly Group[];
  /** By group: copies of each block. */
  readonly #copies: Map<string, number>[];
  readonly #prompts: string[] = [];

  constructor(random: Random, groups: readonly Group[], blockSize: number) {
    this.#random = random;
    this.#groups = groups;
    this.blockSize = blockSize;
    this.#copies = groups.map(() => new Map());
  }

  tokensOf(chain: string): number[] {
    return [...chain].flatMap((letter) => new Array<number>(this.blockSize).fill(letter.charCodeAt(0)));
  }

  /** A chain of blocks, one letter each: often one that begins like an earlier one. */
  prompt(): string {
    const random = this.#random;
    const earlier = this.#prompts[random.integer(this.#prompts.length + 1)] ?? "";
    let chain = earlier.slice(0, random.integer(earlier.length + 1));
    const length = 1 + random.integer(maxDepth);
    while (chain.length < length) chain += "ab"[random.integer(2)];
    return chain;
  }

  message(): TestEvent[] {
    const random = this.#random;
    if (random.integer(60) === 0) {
      for (const copies of this.#copies) copies.clear();
      return [{ kind: "cleared" }];
    }
    const removals = Array.from({ length: random.integer(4) }, () => this.#removal()).filter((event) => event !== null);
    return random.integer(3) === 0 ? removals : [...removals, ...this.#stores(this.prompt())];
  }

  #stores(chain: string): TestEvent[] {
    this.#prompts.push(chain);
    const start = this.usable(chain);
    return this.#groups.flatMap((group, number) => {
      const kept: string[] = [];
      for (let end = start + 1; end <= chain.length; end++) {
        if (end % group.step === 0 && (group === full || this.#random.integer(3) > 0)) kept.push(chain.slice(0, end));
      }
      for (const name of kept) this.#copies[number]!.set(name, (this.#copies[number]!.get(name) ?? 0) + 1);
      if (group === full && kept.length === 0) return [];
      const window = group.attention === "window" ? { window: group.blocks * group.step * this.blockSize } : {};
      const place = { group: number, attention: group.attention, blockSize: group.step * this.blockSize };
      const parent = start === 0 ? undefined : hashOf(chain.slice(0, start));
      const tokens = this.tokensOf(chain.slice(start));
      return [{ kind: "stored" as const, hashes: kept.map(hashOf), parent, tokens, ...place, ...window }];
    });
  }

  #removal(): TestEvent | null {
    const number = this.#random.integer(this.#groups.length);
    const copies = this.#copies[number]!;
    const name = [...copies.keys()][this.#random.integer(copies.size + 1)];
    if (name === undefined) return null;
    const left = copies.get(name)! - 1;
    if (left === 0) copies.delete(name);
    else copies.set(name, left);
    return { kind: "removed", hashes: [hashOf(name)], group: number };
  }

  held(chain: string): number {
    const has = this.#copies[this.#groups.indexOf(full)]!;
    let blocks = 0;
    while (blocks < chain.length && has.has(chain.slice(0, blocks + 1))) blocks++;
    return blocks;
  }

  /** The longest prefix after which every group has what it needs. */
  usable(chain: string): number {
    for (let blocks = this.held(chain); blocks > 0; blocks--) {
      if (this.#groups.every((group, number) => this.#canResume(group, number, chain, blocks))) return blocks;
    }
    return 0;
  }

  #canResume({ attention, blocks: span, step }: Group, number: number, chain: string, blocks: number): boolean {
    if (attention === "full") return true;
    if (blocks % step !== 0) return false;
    const first = attention === "chunk" ? blocks - (blocks % span) : Math.max(0, blocks - span * step);
    for (let end = first + step; end <= blocks; end += step) {
      if (!this.#copies[number]!.has(chain.slice(0, end))) return false;
    }
    return true;
  }
}

/** A hash of 64 bits that no two short names share. */
function hashOf(name: string): bigint {
  let hash = 14_695_981_039_346_656_037n;
  for (const letter of name) hash = BigInt.asUintN(64, (hash ^ BigInt(letter.charCodeAt(0))) * 1_099_511_628_211n);
  return hash;
}
