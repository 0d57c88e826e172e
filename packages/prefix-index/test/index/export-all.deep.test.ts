import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import type { ExportLimits, FactsGroup } from "../../src/export-targets.ts";
import { createPrefixIndex, type PrefixIndex } from "../../src/prefix-index.ts";
import { createPrefixMatches } from "../../src/prefix-matches.ts";
import { type Tier, tier } from "../../src/tiers.ts";
import { type ChainForest, createChainForest, randomHashes } from "../random-chains.ts";

const maxTargets = 40;
const allTargets = Array.from({ length: maxTargets }, (_, target) => target);

const createIndex = (options = {}): PrefixIndex => createPrefixIndex({ maxTargets, ...options });

function copyOf(chunks: Iterable<readonly FactsGroup[]>): PrefixIndex {
  const copy = createIndex();
  for (const chunk of chunks) copy.importChunk(chunk);
  return copy;
}

function expectSame(copy: PrefixIndex, index: PrefixIndex, targets = allTargets): void {
  for (const target of targets) expect(copy.digest(target), `target ${target}`).toEqual(index.digest(target));
}

const bytesOf = (groups: readonly FactsGroup[]): number =>
  groups.reduce((sum, { targets, part }) => {
    const body =
      part.kind === "walked" ? 0 : part.words.length * 4 + (part.kind === "holes" ? part.depths.length * 4 : 0);
    return sum + 16 + targets.length * 4 + body;
  }, 0);

const pairsOf = (groups: readonly FactsGroup[]): number =>
  groups.reduce(
    (sum, { targets, part }) => sum + (part.kind === "walked" ? 0 : (part.words.length / 2) * targets.length),
    0,
  );

/** Stores, orphans and removes at random; what is stored below nothing leaves a hole. */
function churn(index: PrefixIndex, forest: ChainForest, random: Random, operations: number): void {
  for (let operation = 0; operation < operations; operation++) {
    const target = random.integer(maxTargets);
    const path = forest.pathTo(random.integer(forest.blockCount));
    const words = forest.wordsOf(path);
    const inTier = (random.integer(3) > 0 ? tier.gpu : 1 + random.integer(3)) as Tier;
    const from = random.integer(path.length);
    const dice = random.integer(10);
    if (dice < 6) {
      if (from > 0) index.removeOrphan(target, inTier, words, { index: from - 1, depth: from - 1 });
      index.storeFacts(target, inTier, words, from, path.length);
    } else if (dice < 9) index.removeFacts(target, inTier, words, from, path.length);
    else if (random.integer(200) === 0) index.clearFacts(target);
  }
}

describe("the export of all targets", () => {
  test("makes an equal index, holes and slow tiers included", () => {
    const forest = createChainForest(5, 4_000);
    const index = createIndex();
    churn(index, forest, createSeededRandom(6), 20_000);
    const copy = copyOf(index.exportAll());
    expectSame(copy, index);
    expect(copy.factCount).toBe(index.factCount);
    const [one, other] = [createPrefixMatches(maxTargets), createPrefixMatches(maxTargets)];
    for (let block = 0; block < forest.blockCount; block += 7) {
      const path = forest.pathTo(block);
      index.match(forest.wordsOf(path), path.length, 0, one);
      copy.match(forest.wordsOf(path), path.length, 0, other);
      expect([...other.factBlocks]).toEqual([...one.factBlocks]);
      expect([...other.gpuBlocks]).toEqual([...one.gpuBlocks]);
    }
  });

  test("tells what several targets hold once", () => {
    const index = createIndex();
    const words = randomHashes(3_000, createSeededRandom(7));
    for (const target of [3, 5, 9, 11, 30]) index.storeFacts(target, tier.gpu, words, 0, 3_000);
    index.storeFacts(3, tier.cpu, words, 0, 100);
    index.storeFacts(5, tier.disk, words, 0, 100);
    const groups = [...index.exportAll()].flat();
    const reported = groups.map(({ targets, part }) =>
      [targets.join(), part.kind === "blocks" ? part.tier : -1].join("/"),
    );
    expect([...new Set(reported)].sort()).toEqual(["3,5,9,11,30/0", "3/1", "5/2"]);
    expect(groups.reduce((sum, { part }) => sum + (part.kind === "blocks" ? part.words.length / 2 : 0), 0)).toBe(3_200);
  });

  test("of some targets tells of no others", () => {
    const forest = createChainForest(8, 1_000);
    const index = createIndex();
    churn(index, forest, createSeededRandom(9), 8_000);
    const some = [2, 7, 21];
    const chunks = [...index.exportAll(some)];
    expect(new Set(chunks.flat().flatMap(({ targets }) => targets))).toEqual(new Set(some));
    const copy = copyOf(chunks);
    expectSame(copy, index, some);
    expect(copy.factCount).toBe(
      some.reduce(
        (sum, target) => sum + [0, 1, 2, 3].reduce((of, at) => of + index.factBlockCount(target, at as Tier), 0),
        0,
      ),
    );
    expect([...index.exportAll([])].flat()).toEqual([]);
  });

  test("of one target among many sets comes in few groups", () => {
    const index = createIndex();
    const words = randomHashes(2_000, createSeededRandom(10));
    for (let target = 0; target < 20; target++) {
      for (let block = target; block < 2_000; block += 1 + (target % 5))
        index.storeFacts(target, tier.gpu, words, block, block + 1);
    }
    expect([...index.exportAll([0])].flat().length).toBeLessThan(4);
    expectSame(copyOf(index.exportAll([0])), index, [0]);
  });

  test("says of a walked target that it is walked", () => {
    const index = createIndex({ maxHoles: 0 });
    const words = randomHashes(10, createSeededRandom(11));
    index.storeFacts(4, tier.gpu, words, 0, 10);
    index.removeOrphan(4, tier.gpu, words, { index: 5, depth: 5 });
    const chunks = [...index.exportAll()];
    expect(chunks.flat().map(({ part }) => part.kind)).toContain("walked");
    const matches = createPrefixMatches(maxTargets);
    copyOf(chunks).match(words, 10, 0, matches);
    expect(matches.gpuBlocks[4]).toBe(5);
  });
});

describe("while the index changes", () => {
  test("what is held all the while comes exactly once, whatever grows, shrinks and comes and goes", () => {
    const random = createSeededRandom(12);
    const words = randomHashes(400_000, random);
    const index = createIndex();
    const kept = 30_000;
    index.storeFacts(1, tier.gpu, words, 0, kept);
    index.storeFacts(2, tier.gpu, words, 0, 90_000);
    const seen = new Set<string>();
    let chunks = 0;
    let at = 90_000;
    for (const chunk of index.exportAll()) {
      chunks++;
      for (const { targets, part } of chunk) {
        if (part.kind !== "blocks" || !targets.includes(1)) continue;
        for (let word = 0; word < part.words.length; word += 2) {
          const name = `${part.words[word]}.${part.words[word + 1]}`;
          expect(seen.has(name)).toBe(false);
          seen.add(name);
        }
      }
      // First it grows, so that both layouts are met, and then most of it goes.
      const next = chunks < 5 ? at + 40_000 : Math.max(90_000, at - 20_000);
      if (next > at) index.storeFacts(3, tier.gpu, words, at, next);
      else index.removeFacts(3, tier.gpu, words, next, at);
      at = next;
      index.removeFacts(2, tier.gpu, words, kept + chunks * 1_000, kept + (chunks + 1) * 1_000);
      index.maintain(0, 5_000);
    }
    expect(chunks).toBeGreaterThan(8);
    for (let block = 0; block < kept; block++) {
      if (!seen.has(`${words[block * 2]}.${words[block * 2 + 1]}`)) throw new Error(`block ${block} was left out`);
    }
    expect(seen.size).toBe(kept);
  });

  test("together with what has changed since the beginning it gives the state", () => {
    for (let seed = 20; seed < 24; seed++) {
      const random = createSeededRandom(seed);
      const words = randomHashes(60_000, random);
      const index = createIndex();
      for (let target = 0; target < 6; target++)
        index.storeFacts(target, tier.gpu, words, target * 5_000, target * 5_000 + 30_000);
      const later: { target: number; from: number; isStored: boolean }[] = [];
      const copy = createIndex();
      for (const chunk of index.exportAll(undefined, { maxChunkBytes: 32_768, maxChunkPairs: 4_096 })) {
        copy.importChunk(chunk);
        for (let change = 0; change < 3; change++) {
          const target = random.integer(6);
          const from = random.integer(59_000);
          const isStored = random.integer(2) === 0;
          later.push({ target, from, isStored });
          if (isStored) index.storeFacts(target, tier.gpu, words, from, from + 500);
          else index.removeFacts(target, tier.gpu, words, from, from + 500);
        }
      }
      for (const { target, from, isStored } of later) {
        if (isStored) copy.storeFacts(target, tier.gpu, words, from, from + 500);
        else copy.removeFacts(target, tier.gpu, words, from, from + 500);
      }
      expect(later.length).toBeGreaterThan(60);
      expectSame(copy, index, [0, 1, 2, 3, 4, 5]);
    }
  });

  test("a target that is cleared does not come any more, although it is told anew", () => {
    const index = createIndex();
    const words = randomHashes(200_000, createSeededRandom(13));
    index.storeFacts(1, tier.gpu, words, 0, 100_000);
    index.storeFacts(2, tier.gpu, words, 100_000, 200_000);
    const chunks = index.exportAll();
    chunks.next();
    index.clearFacts(1);
    // The sweep gives its number inside of the table back, to whoever comes next.
    while (index.maintain(0, 100_000));
    index.storeFacts(1, tier.gpu, words, 0, 50_000);
    index.storeFacts(7, tier.gpu, words, 0, 50_000);
    const rest = [...chunks].flat();
    expect(new Set(rest.flatMap(({ targets }) => targets))).toEqual(new Set([2]));
  });
});

describe("chunks", () => {
  test.each<ExportLimits>([
    { maxChunkBytes: 32_768, maxChunkPairs: 1_000_000 },
    { maxChunkBytes: 1_000_000, maxChunkPairs: 4_096 },
  ])("have at most $maxChunkBytes bytes and $maxChunkPairs pairs", (limits) => {
    const index = createIndex();
    const words = randomHashes(40_000, createSeededRandom(14));
    for (const target of allTargets) index.storeFacts(target, tier.gpu, words, 0, target < 4 ? 40_000 : 2_000);
    for (let hole = 0; hole < 12_000; hole++) index.removeOrphan(1, tier.gpu, words, { index: hole * 2, depth: hole });
    const chunks = [...index.exportAll(undefined, limits)];
    for (const chunk of chunks) {
      expect(bytesOf(chunk)).toBeLessThanOrEqual(limits.maxChunkBytes);
      expect(pairsOf(chunk)).toBeLessThanOrEqual(limits.maxChunkPairs);
    }
    const fullest = Math.max(
      ...chunks.map((chunk) => Math.max(bytesOf(chunk) / limits.maxChunkBytes, pairsOf(chunk) / limits.maxChunkPairs)),
    );
    expect(fullest).toBeGreaterThan(0.9);
    expectSame(copyOf(chunks), index);
  });

  test("of the most targets that there are still fit", () => {
    const index = createPrefixIndex();
    const words = randomHashes(3, createSeededRandom(15));
    for (let target = 0; target < 4_096; target++) index.storeFacts(target, tier.gpu, words, 0, 3);
    const chunks = [...index.exportAll(undefined, { maxChunkBytes: 32_768, maxChunkPairs: 4_096 })];
    expect(chunks.filter((chunk) => chunk.length > 0).length).toBe(3);
    const copy = createPrefixIndex();
    for (const chunk of chunks) copy.importChunk(chunk);
    expect(copy.factCount).toBe(3 * 4_096);
  });

  test.each([{ maxChunkBytes: 32_767 }, { maxChunkPairs: 4_095 }, { maxChunkBytes: Number.NaN }])(
    "with limits of %o are refused at once",
    (limits) => {
      expect(() => createIndex().exportAll(undefined, limits)).toThrow(RangeError);
    },
  );

  test("search a bounded part of an index with nothing to tell", () => {
    const index = createIndex();
    const words = randomHashes(300_000, createSeededRandom(16));
    index.storeFacts(1, tier.gpu, words, 0, 300_000);
    const chunks = [...index.exportAll([2])];
    expect(chunks.length).toBeGreaterThan(10);
    expect(chunks.flat()).toEqual([]);
  });
});

test("an index that was told how much comes is not made over and over, and gives the room back", () => {
  const index = createIndex();
  const words = randomHashes(200_000, createSeededRandom(17));
  index.storeFacts(1, tier.gpu, words, 0, 200_000);
  const copy = createIndex();
  copy.expectFacts(200_000);
  const before = copy.byteLength;
  for (const chunk of index.exportAll()) {
    copy.importChunk(chunk);
    copy.maintain(0, 1_000);
  }
  expect(copy.byteLength).toBe(before);
  expectSame(copy, index, [1]);
  copy.clearFacts(1);
  while (copy.maintain(0, 100_000));
  expect(copy.byteLength).toBe(before);
  copy.expectFacts(0);
  while (copy.maintain(0, 100_000));
  expect(copy.byteLength).toBeLessThan(before / 10);
});

test("no more than 16,777,216 blocks are expected", () => {
  const [one, other] = [createIndex(), createIndex()];
  one.expectFacts(16_777_216);
  other.expectFacts(16_777_217);
  expect(other.byteLength).toBe(one.byteLength);
});
