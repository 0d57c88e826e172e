import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createPrefixIndex, maxPrefixTargets } from "../../src/prefix-index.ts";
import { createPrefixMatches } from "../../src/prefix-matches.ts";
import { HolderTable } from "../../src/table/holder-table.ts";
import { slotWords } from "../../src/table/slot-table.ts";
import { externalChunks, resumePoint, tier } from "../../src/tiers.ts";
import { randomHashes } from "../random-chains.ts";

const maxTargets = 16;
const chain = (blocks: number, seed = 1): Uint32Array => randomHashes(blocks, createSeededRandom(seed));

function createIndex() {
  const index = createPrefixIndex({ maxTargets });
  const matches = createPrefixMatches(maxTargets);
  const match = (words: Uint32Array, nowMs = 0): number[] => {
    index.match(words, words.length / 2, nowMs, matches);
    return [...matches.targets.subarray(0, matches.count)].sort((one, other) => one - other);
  };
  return { index, matches, match };
}

test("facts and placements of a chain are told side by side", () => {
  const { index, matches, match } = createIndex();
  const words = chain(100);
  index.storeFacts(1, tier.gpu, words, 0, 60);
  index.place(1, words, 80, { nowMs: 5, ttlMs: 100 });
  index.place(2, words, 70, { nowMs: 6, ttlMs: 100 });
  index.confirm(2, words, 20, { nowMs: 8, ttlMs: 100 });
  expect(match(words, 10)).toEqual([1, 2]);
  expect([matches.gpuBlocks[1], matches.factBlocks[1], matches.placedBlocks[1]]).toEqual([60, 60, 80]);
  expect([matches.gpuBlocks[2], matches.factBlocks[2], matches.placedBlocks[2]]).toEqual([0, 0, 70]);
  expect([matches.placementAgeMs[1], matches.placementAgeMs[2]]).toEqual([5, 4]);
  expect([matches.confirmedBlocks[1], matches.confirmedBlocks[2]]).toEqual([0, 20]);
  expect(index.refute(2, words, { from: 10, blockCount: 100, nowMs: 11 })).toBe(60);
  match(words, 11);
  expect([matches.placedBlocks[2], matches.confirmedBlocks[2]]).toEqual([10, 10]);
});

test("external memory counts from the beginning of a chain, and in whole chunks", () => {
  const { index, matches, match } = createIndex();
  const words = chain(12);
  const found = () => {
    match(words);
    return [matches.factBlocks[1], matches.tierBlocks[tier.gpu]![1], matches.tierBlocks[tier.external]![1]];
  };
  index.storeFacts(1, tier.gpu, words, 0, 3);
  index.storeFacts(1, tier.external, words, 0, 10);
  expect(found()).toEqual([10, 0, 7]);
  index.storeFacts(1, tier.external, externalChunks(4, false), 0, 1);
  expect(found()).toEqual([8, 0, 5]);
  index.storeFacts(1, tier.gpu, words, 3, 5);
  expect(found()).toEqual([8, 0, 3]);
  // Not the rest of a chunk.
  index.storeFacts(1, tier.external, externalChunks(4, true), 0, 1);
  expect(found()).toEqual([5, 0, 0]);
  index.removeFacts(1, tier.external, words, 0, 1);
  index.storeFacts(1, tier.external, words, 10, 12);
  expect(found()).toEqual([5, 0, 0]);
  index.storeFacts(1, tier.external, words, 0, 1);
  expect(found()).toEqual([12, 0, 7]);
  index.clearFacts(1);
  index.storeFacts(1, tier.external, words, 0, 10);
  expect(found()).toEqual([10, 0, 10]);
});

test("long chains with many resume points end at the last one held, in CPU memory too", () => {
  const { index, matches, match } = createIndex();
  const blocks = 9_000;
  const words = chain(blocks);
  const every = (target: number) => 2 + target;
  for (let target = 0; target < maxTargets; target++) {
    index.storeFacts(target, tier.gpu, words, 0, 100 * (target + 1));
    index.storeFacts(target, tier.cpu, words, 100 * (target + 1), 500 * (target + 1));
    for (let end = every(target); end <= blocks; end += every(target)) {
      index.storeFacts(target, resumePoint, words, end - 1, end);
    }
  }
  for (const length of [blocks, 1_025, 700]) {
    match(words.subarray(0, 2 * length));
    for (let target = 0; target < maxTargets; target++) {
      const held = Math.min(length, 500 * (target + 1));
      expect([target, matches.factBlocks[target]]).toEqual([target, held - (held % every(target))]);
    }
  }
});

test("what the last query wrote is gone from the next", () => {
  const { index, matches, match } = createIndex();
  const words = chain(10);
  index.storeFacts(1, tier.gpu, words, 0, 5);
  index.storeFacts(1, tier.cpu, words, 5, 8);
  index.place(1, words, 10, { nowMs: 0, ttlMs: 100 });
  index.confirm(1, words, 3, { nowMs: 0, ttlMs: 100 });
  expect(match(words, 1)).toEqual([1]);
  expect(match(chain(10, 2), 1)).toEqual([]);
  const { gpuBlocks, factBlocks, placedBlocks, placementAgeMs, confirmedBlocks, tierBlocks, isListed } = matches;
  for (const column of [
    gpuBlocks,
    factBlocks,
    placedBlocks,
    placementAgeMs,
    confirmedBlocks,
    isListed,
    ...tierBlocks,
  ]) {
    expect(column.every((value) => value === 0)).toBe(true);
  }
});

test("slower tiers continue what the GPU has, each block counted in its fastest tier", () => {
  const { index, matches, match } = createIndex();
  const words = chain(60);
  index.storeFacts(1, tier.gpu, words, 0, 10);
  index.storeFacts(1, tier.cpu, words, 5, 20);
  index.storeFacts(1, tier.disk, words, 15, 30);
  index.removeOrphan(1, tier.gpu, words, { index: 29, depth: 29 });
  index.storeFacts(1, tier.gpu, words, 30, 35);
  index.storeFacts(1, tier.external, words, 36, 60);
  index.storeFacts(2, tier.external, words, 0, 3);
  index.storeFacts(3, tier.cpu, words, 1, 60);
  expect(match(words)).toEqual([1, 2]);
  expect([matches.gpuBlocks[1], matches.factBlocks[1]]).toEqual([10, 35]);
  expect(matches.tierBlocks.map((column) => column[1])).toEqual([5, 10, 10, 0]);
  expect([matches.gpuBlocks[2], matches.factBlocks[2]]).toEqual([0, 3]);
  expect(matches.tierBlocks.map((column) => column[2])).toEqual([0, 0, 0, 3]);
});

// A router that joined an engine without replay at times sent the next turn of a chat to another engine. Mechanism: once
// the engine's new blocks were found to follow the chat, the blocks before them, which it had announced to nobody here,
// counted as dropped by it, and its placement ended there.
test("a block that an engine never announced does not end its placement, and one that it drops does", () => {
  const { index, matches, match } = createIndex();
  const words = chain(10);
  index.place(1, words, 10, { nowMs: 0, ttlMs: 1_000 });
  for (let hole = 0; hole < 6; hole++) index.removeOrphan(1, tier.gpu, words, { index: hole, depth: hole });
  index.storeFacts(1, tier.gpu, words, 6, 10);
  expect([match(words), matches.placedBlocks[1]]).toEqual([[1], 10]);
  index.storeFacts(1, tier.gpu, words, 0, 6);
  index.removeFacts(1, tier.gpu, words, 3, 4);
  index.removeOrphan(1, tier.gpu, words, { index: 3, depth: 3 });
  expect([match(words), matches.gpuBlocks[1], matches.placedBlocks[1]]).toEqual([[1], 3, 3]);
});

test("targets join and leave a walk through slow tiers at different blocks", () => {
  const { index, matches, match } = createIndex();
  const words = chain(200);
  for (let target = 0; target < maxTargets; target++) {
    index.storeFacts(target, tier.gpu, words, 0, target * 7);
    index.storeFacts(target, tier.cpu, words, target * 7, target * 7 + target * 5);
    index.storeFacts(target, tier.disk, words, target * 12, target * 12 + 1);
  }
  match(words);
  for (let target = 1; target < maxTargets; target++) {
    expect(matches.gpuBlocks[target]).toBe(target * 7);
    expect(matches.factBlocks[target]).toBe(target * 12 + 1);
    expect(matches.tierBlocks.map((column) => column[target])).toEqual([0, target * 5, 1, 0]);
  }
  expect(matches.factBlocks[0]).toBe(1);
});

test("facts are counted by target and tier, and go with the target", () => {
  const { index, match } = createIndex();
  const words = chain(100);
  expect(index.storeFacts(1, tier.gpu, words, 0, 50)).toBe(50);
  expect(index.storeFacts(1, tier.gpu, words, 40, 60)).toBe(10);
  expect(index.storeFacts(1, tier.disk, words, 0, 30)).toBe(30);
  expect(index.storeFacts(2, tier.gpu, words, 0, 5)).toBe(5);
  expect([index.factBlockCount(1, tier.gpu), index.factBlockCount(1, tier.disk)]).toEqual([60, 30]);
  expect(index.factBlockCount(1, tier.cpu)).toBe(0);
  expect(index.factCount).toBe(95);
  expect(index.removeFacts(1, tier.disk, words, 10, 40)).toBe(20);
  expect(index.factCount).toBe(75);
  index.place(1, words, 100, { nowMs: 0, ttlMs: 10 });
  index.clearFacts(1);
  expect(index.factCount).toBe(5);
  expect(match(words)).toEqual([1, 2]);
  index.forgetTarget(1);
  expect(match(words)).toEqual([2]);
  expect(index.refusedCount).toBe(0);
});

test("equal facts have equal digests, in whatever order; a block, a tier or a count makes a difference", () => {
  const digestOf = (change: (index: ReturnType<typeof createPrefixIndex>) => void): string => {
    const index = createPrefixIndex({ maxTargets });
    index.storeFacts(1, tier.gpu, chain(500), 0, 400);
    change(index);
    return index.digest(1).join();
  };
  const words = chain(500);
  const plain = digestOf(() => {});
  expect(digestOf((index) => index.storeFacts(2, tier.gpu, words, 0, 500))).toBe(plain);
  expect(
    digestOf((index) => {
      index.clearFacts(1);
      for (let block = 399; block >= 0; block--) index.storeFacts(1, tier.gpu, words, block, block + 1);
    }),
  ).toBe(plain);
  expect(
    digestOf((index) => {
      index.storeFacts(1, tier.gpu, words, 380, 500);
      index.removeFacts(1, tier.gpu, words, 400, 500);
    }),
  ).toBe(plain);
  const changed = [
    digestOf((index) => index.storeFacts(1, tier.gpu, words, 400, 401)),
    digestOf((index) => index.storeFacts(1, tier.cpu, words, 0, 400)),
    digestOf((index) => index.storeFacts(1, tier.disk, words, 0, 400)),
    digestOf((index) => index.removeFacts(1, tier.gpu, words, 399, 400)),
    digestOf((index) => index.clearFacts(1)),
  ];
  expect(new Set([plain, ...changed]).size).toBe(6);
  expect(changed.at(-1)).toBe("0,0");
});

test("an export comes in chunks of at most 256 KiB, even while the index changes", () => {
  const { index } = createIndex();
  const words = chain(120_000);
  for (const target of [1, 2]) index.storeFacts(target, tier.gpu, words, 0, 100_000);
  const copy = createPrefixIndex({ maxTargets });
  let chunks = 0;
  let grown = 100_000;
  for (const groups of index.exportAll([1])) {
    chunks++;
    let bytes = 0;
    for (const { part } of groups) {
      if (part.kind !== "blocks") throw new Error(`${part.kind} in an index without holes`);
      bytes += part.words.byteLength;
    }
    expect(bytes).toBeLessThanOrEqual(256 * 1_024);
    copy.importChunk(groups);
    index.storeFacts(2, tier.gpu, words, grown, Math.min(120_000, grown + 4_000));
    grown = Math.min(120_000, grown + 4_000);
  }
  // Some for the stretches that are searched, and four for what is found.
  expect(chunks).toBeGreaterThan(6);
  expect(copy.factBlockCount(1, tier.gpu)).toBe(100_000);
  expect(copy.digest(1)).toEqual(index.digest(1));
});

test("an index that fills up from an export spreads its hashes", () => {
  // Blocks in the order of their slots would all go to one end of a table that has just begun to grow.
  const { index } = createIndex();
  index.storeFacts(1, tier.gpu, chain(60_000), 0, 60_000);
  const copy = new HolderTable({ maxHolders: 1, maxBlocks: 100_000, maxSets: 1, maxHoles: 0 });
  let farthest = 0;
  for (const { part } of [...index.exportAll([1])].flat()) {
    if (part.kind !== "blocks") continue;
    for (let from = 0; from < part.words.length / 2; from += 1_000) {
      copy.store(0, part.words, from, Math.min(part.words.length / 2, from + 1_000));
      const { words } = copy.slots;
      for (let at = 0; at < words.length; at += slotWords) {
        if (words[at + 2] !== 0) farthest = Math.max(farthest, at - copy.slots.homeOf(words[at]!));
      }
    }
  }
  expect(copy.blockCount(0)).toBe(60_000);
  expect(farthest / slotWords).toBeLessThan(1_000);
});

test("an export ends when its target begins a new epoch, and one of a walked target says so", () => {
  const { index } = createIndex();
  index.storeFacts(1, tier.gpu, chain(100_000), 0, 100_000);
  const chunks = index.exportAll([1]);
  chunks.next();
  index.clearFacts(1);
  expect([...chunks].flat()).toEqual([]);
  const small = createPrefixIndex({ maxTargets, maxHoles: 0 });
  small.storeFacts(1, tier.gpu, chain(10), 0, 10);
  small.removeOrphan(1, tier.gpu, chain(10), { index: 5, depth: 5 });
  const copy = createPrefixIndex({ maxTargets });
  const kinds = [...small.exportAll([1])].flatMap((groups) => {
    copy.importChunk(groups);
    return groups.map(({ part }) => part.kind);
  });
  expect(kinds).toContain("walked");
  const matches = createPrefixMatches(maxTargets);
  copy.match(chain(10), 10, 0, matches);
  expect(matches.gpuBlocks[1]).toBe(5);
});

test("voided facts and expired placements are reclaimed in slices", () => {
  const { index } = createIndex();
  const words = chain(50_000);
  index.storeFacts(1, tier.gpu, words, 0, 50_000);
  index.storeFacts(1, tier.cpu, words, 0, 50_000);
  for (let seed = 0; seed < 500; seed++) index.place(2, chain(40, seed + 2), 40, { nowMs: 0, ttlMs: 10 });
  const full = index.byteLength;
  index.forgetTarget(1);
  let slices = 0;
  while (index.maintain(20, 500)) slices++;
  expect(slices).toBeGreaterThan(100);
  expect(index.byteLength).toBeLessThan(full / 3);
});

test.each([0, -1, 1.5, maxPrefixTargets + 1])("an index for %d targets is refused", (count) => {
  expect(() => createPrefixIndex({ maxTargets: count })).toThrow(RangeError);
});

test("the most targets that there may be are told apart", () => {
  const index = createPrefixIndex();
  const matches = createPrefixMatches(maxPrefixTargets);
  const words = chain(4);
  for (const inTier of [tier.gpu, tier.external]) {
    index.storeFacts(maxPrefixTargets - 1, inTier, words, 0, 2);
    expect(() => index.storeFacts(maxPrefixTargets, inTier, words, 0, 2)).toThrow(RangeError);
  }
  index.match(words, 4, 0, matches);
  expect([...matches.targets.subarray(0, matches.count)]).toEqual([maxPrefixTargets - 1]);
});
