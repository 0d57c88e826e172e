import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { Placements, type PlacementsOptions } from "../../src/placements/placements.ts";
import { maxSegmentBlocks } from "../../src/placements/segments.ts";
import { createPrefixMatches, resetPrefixMatches } from "../../src/prefix-matches.ts";
import { randomHashes } from "../random-chains.ts";

const usual = {
  ...{ maxTargets: 8, maxBlocksPerTarget: 10_000, maxBlocks: 100_000, maxSegments: 10_000 },
  maxDroppedBlocks: 1_024,
};

function createPlacements(options: Partial<PlacementsOptions> = {}) {
  const placements = new Placements({ ...usual, ...options });
  const found = createPrefixMatches(options.maxTargets ?? usual.maxTargets);
  /** Depths by target. */
  const match = (words: Uint32Array, nowMs: number): Record<number, number | undefined> => {
    resetPrefixMatches(found);
    placements.match(words, words.length / 2, nowMs, found);
    return Object.fromEntries(
      [...found.targets.subarray(0, found.count)].map((target) => [target, found.placedBlocks[target]]),
    );
  };
  return { placements, found, match };
}

const chain = (blocks: number, seed = 1): Uint32Array => randomHashes(blocks, createSeededRandom(seed));

/** The first blocks of one chain, and another chain behind them. */
function branch(words: Uint32Array, blocks: number, own: Uint32Array): Uint32Array {
  const joined = new Uint32Array(blocks * 2 + own.length);
  joined.set(words.subarray(0, blocks * 2));
  joined.set(own, blocks * 2);
  return joined;
}

test("what was placed is found with its age until it expires", () => {
  const { placements, found, match } = createPlacements();
  const words = chain(1_000);
  placements.place(3, words, 1_000, { nowMs: 100, ttlMs: 50 });
  placements.place(5, words, 400, { nowMs: 120, ttlMs: 100 });
  expect(match(words, 130)).toEqual({ 3: 1_000, 5: 400 });
  const ages = Object.fromEntries(
    [...found.targets.subarray(0, 2)].map((target) => [target, found.placementAgeMs[target]]),
  );
  expect(ages).toEqual({ 3: 30, 5: 10 });
  expect(match(words, 149.9)).toEqual({ 3: 1_000, 5: 400 });
  expect(match(words, 150)).toEqual({ 5: 400 });
  expect(match(words, 220)).toEqual({});
  expect(match(chain(5, 2), 130)).toEqual({});
  expect(match(words.subarray(0, 0), 130)).toEqual({});
});

test("who used the deepest of it last is told, by the number that was given", () => {
  const { placements, found } = createPlacements();
  const words = chain(600);
  const userOf = (blocks: number): number | undefined => {
    resetPrefixMatches(found);
    placements.match(words, blocks, 10, found);
    return found.count === 0 ? undefined : found.placedBy[3];
  };
  placements.place(3, words, 600, { nowMs: 0, ttlMs: 100, by: 7 });
  expect(userOf(600)).toBe(7);
  placements.place(3, words, 100, { nowMs: 1, ttlMs: 100 });
  expect([userOf(100), userOf(600)]).toEqual([0, 7]);
  placements.confirm(3, words, 300, { nowMs: 2, ttlMs: 100, by: 2 });
  expect([userOf(50), userOf(300), userOf(301)]).toEqual([2, 2, 7]);
  placements.place(3, words, 600, { nowMs: 3, ttlMs: 100, by: 9 });
  expect([userOf(1), userOf(600)]).toEqual([9, 9]);
});

test("a query that leaves a run in its middle finds as much as it shares", () => {
  const { placements, match } = createPlacements();
  const words = chain(900);
  placements.place(1, words, 900, { nowMs: 0, ttlMs: 100 });
  for (const shared of [1, 2, 127, 255, 256, 257, 511, 600, 899]) {
    expect(match(branch(words, shared, chain(40, 2)), 1)).toEqual({ 1: shared });
  }
});

test("runs of all lengths around a whole segment are placed and found", () => {
  const { placements, match } = createPlacements();
  for (const blocks of [1, maxSegmentBlocks - 1, maxSegmentBlocks, maxSegmentBlocks + 1, maxSegmentBlocks * 3 + 1]) {
    const words = chain(blocks, blocks);
    placements.place(1, words, blocks, { nowMs: 0, ttlMs: 100 });
    expect(match(words, 1)).toEqual({ 1: blocks });
  }
});

test("the engine's own word is told apart, for as long as it counts", () => {
  const { placements, found, match } = createPlacements();
  const words = chain(30);
  placements.place(1, words, 30, { nowMs: 0, ttlMs: 1_000 });
  placements.confirm(1, words, 12, { nowMs: 1, ttlMs: 100 });
  expect(match(words, 50)).toEqual({ 1: 30 });
  expect(found.confirmedBlocks[1]).toBe(12);
  match(words, 101);
  expect(found.confirmedBlocks[1]).toBe(0);
  placements.confirm(2, words, 5, { nowMs: 0, ttlMs: 100 });
  expect(match(words, 50)).toEqual({ 1: 30, 2: 5 });
});

test("what is refuted goes, with all that continues it, and its siblings stay", () => {
  const { placements, match } = createPlacements();
  const words = chain(50);
  const sibling = branch(words, 20, chain(10, 2));
  const nephew = branch(words, 40, chain(10, 3));
  for (const one of [words, sibling, nephew]) placements.place(1, one, one.length / 2, { nowMs: 0, ttlMs: 100 });
  expect(placements.blockCount(1)).toBe(70);
  expect(placements.refute(1, words, { from: 30, blockCount: 50, nowMs: 1 })).toBe(30);
  expect(match(words, 1)).toEqual({ 1: 30 });
  expect(match(nephew, 1)).toEqual({ 1: 30 });
  expect(match(sibling, 1)).toEqual({ 1: 30 });
  expect(placements.refute(1, words, { from: 30, blockCount: 50, nowMs: 1 })).toBe(0);
  expect(placements.refute(1, words, { from: 50, blockCount: 50, nowMs: 1 })).toBe(0);
  expect(placements.refute(2, words, { from: 0, blockCount: 50, nowMs: 1 })).toBe(0);
  expect(placements.refute(1, words, { from: 0, blockCount: 50, nowMs: 1 })).toBe(40);
  expect(match(words, 1)).toEqual({});
});

test("one block beyond a target's capacity takes the place of the deepest of the run used longest ago", () => {
  const { placements, match } = createPlacements({ maxBlocksPerTarget: 100 });
  const [first, second, third] = [chain(60, 1), chain(40, 2), chain(1, 3)];
  placements.place(1, first, 60, { nowMs: 0, ttlMs: 1_000 });
  placements.place(1, second, 40, { nowMs: 1, ttlMs: 1_000 });
  expect([match(first, 2), match(second, 2)]).toEqual([{ 1: 60 }, { 1: 40 }]);
  placements.place(1, third, 1, { nowMs: 2, ttlMs: 1_000 });
  expect([match(first, 2), match(second, 2), match(third, 2)]).toEqual([{ 1: 59 }, { 1: 40 }, { 1: 1 }]);
  placements.place(1, first, 10, { nowMs: 3, ttlMs: 1_000 });
  placements.place(1, chain(60, 4), 60, { nowMs: 4, ttlMs: 1_000 });
  expect([match(first, 5), match(second, 5)]).toEqual([{ 1: 10 }, { 1: 29 }]);
  placements.place(1, chain(300, 5), 300, { nowMs: 5, ttlMs: 1_000 });
  expect(match(chain(300, 5), 6)).toEqual({ 1: 100 });
  expect(placements.blockCount(1)).toBe(100);
});

test("a target's own capacity counts from the next use on, and never goes beyond that of all", () => {
  const { placements, match } = createPlacements({ maxBlocksPerTarget: 100 });
  const words = chain(150);
  placements.place(1, words, 80, { nowMs: 0, ttlMs: 100 });
  placements.setCapacity(1, 30);
  expect(match(words, 1)).toEqual({ 1: 80 });
  placements.place(1, words, 10, { nowMs: 1, ttlMs: 100 });
  expect(match(words, 2)).toEqual({ 1: 30 });
  placements.setCapacity(1, 1_000);
  placements.place(1, words, 150, { nowMs: 2, ttlMs: 100 });
  expect(match(words, 3)).toEqual({ 1: 100 });
});

test("what has expired does not take the place of what has not", () => {
  const { placements, match } = createPlacements({ maxBlocksPerTarget: 100 });
  const [old, brief] = [chain(50, 1), chain(50, 2)];
  placements.place(1, old, 50, { nowMs: 0, ttlMs: 1_000 });
  placements.place(1, brief, 50, { nowMs: 1, ttlMs: 10 });
  placements.place(1, chain(40, 3), 40, { nowMs: 20, ttlMs: 1_000 });
  expect(match(old, 21)).toEqual({ 1: 50 });
});

test("one segment beyond the bound is refused and counted", () => {
  const { placements, match } = createPlacements({ maxSegments: 3 });
  for (const seed of [1, 2, 3]) placements.place(1, chain(5, seed), 5, { nowMs: 0, ttlMs: 100 });
  placements.place(1, chain(5, 4), 5, { nowMs: 0, ttlMs: 100 });
  expect(match(chain(5, 4), 1)).toEqual({});
  expect(placements.refusedBlocks).toBe(5);
  // Splitting needs one more, too: then the part that is there stays as it is.
  const fork = branch(chain(5, 1), 3, chain(5, 5));
  placements.place(1, fork, 8, { nowMs: 1, ttlMs: 100 });
  expect(match(fork, 2)).toEqual({ 1: 3 });
  expect(placements.refute(1, chain(5, 1), { from: 3, blockCount: 5, nowMs: 2 })).toBe(5);
  expect(match(chain(5, 1), 2)).toEqual({});
});

test("more blocks than all targets may have are refused and counted", () => {
  const { placements } = createPlacements({ maxBlocks: 1_000, maxBlocksPerTarget: 1e6, maxSegments: 1e6 });
  for (let seed = 1; seed <= 200; seed++) placements.place(seed % 8, chain(500, seed), 500, { nowMs: 0, ttlMs: 100 });
  expect(placements.refusedBlocks).toBeGreaterThan(0);
  expect(placements.placedBlocks + placements.refusedBlocks).toBe(100_000);
  const refused = placements.refusedBlocks;
  while (placements.expire(1_000, 100));
  expect(placements.placedBlocks).toBe(0);
  placements.place(1, chain(1_000, 1), 1_000, { nowMs: 1_000, ttlMs: 100 });
  expect(placements.refusedBlocks).toBe(refused);
});

test("a cleared target begins anew, whatever is still to be dismantled", () => {
  const { placements, match } = createPlacements();
  const words = chain(100);
  for (let epoch = 0; epoch < 50; epoch++) {
    placements.place(1, words, 100, { nowMs: epoch, ttlMs: 1e6 });
    placements.place(1, branch(words, 50, chain(10, epoch + 2)), 60, { nowMs: epoch, ttlMs: 1e6 });
    placements.clear(1);
    expect(match(words, epoch)).toEqual({});
    placements.place(1, words, 30, { nowMs: epoch, ttlMs: 1e6 });
    expect(match(words, epoch)).toEqual({ 1: 30 });
    expect(match(branch(words, 50, chain(10, epoch + 2)), epoch)).toEqual({ 1: 30 });
    if (epoch % 10 === 0) placements.expire(epoch, 3);
  }
  while (placements.expire(50, 10));
  expect(placements.storage.segments.count).toBe(1);
  expect(match(words, 51)).toEqual({ 1: 30 });
});

test("expired placements are collected in slices, target by target", () => {
  const { placements } = createPlacements();
  for (let seed = 0; seed < 800; seed++) placements.place(seed % 8, chain(3, seed), 3, { nowMs: 0, ttlMs: 10 });
  const { segments } = placements.storage;
  expect(segments.count).toBe(800);
  let slices = 0;
  for (let before = segments.count; placements.expire(11, 50); slices++) {
    expect(before - segments.count).toBeLessThanOrEqual(50);
    before = segments.count;
  }
  expect(slices).toBeGreaterThanOrEqual(16);
  expect(segments.count).toBe(0);
});

test("chats whose turns are placed one after the other take at most 40 bytes per block, before and after turnover", () => {
  const { placements } = createPlacements({ maxBlocks: 1 << 20, maxSegments: 1 << 17 });
  const system = chain(8, 1);
  let bytes = 0;
  for (let generation = 0; generation < 12; generation++) {
    for (let chat = 0; chat < 400; chat++) {
      const words = branch(system, 8, chain(192, generation * 1_000 + chat + 2));
      for (let turn = 1; turn <= 8; turn++) {
        placements.place(chat % 8, words, 8 + turn * 24, { nowMs: generation * 100 + turn, ttlMs: 90 });
      }
    }
    expect(placements.placedBlocks).toBe(400 * 192 + 8 * 8);
    expect(placements.byteLength / placements.placedBlocks).toBeLessThan(40);
    if (generation === 0) bytes = placements.byteLength;
    while (placements.expire(generation * 100 + 99, 1_000));
  }
  expect(placements.byteLength).toBeLessThanOrEqual(bytes * 1.05);
});

test("targets that do not exist and chains that are too short are refused", () => {
  const { placements, found } = createPlacements();
  expect(() => placements.place(8, chain(1), 1, { nowMs: 0, ttlMs: 1 })).toThrow(RangeError);
  expect(() => placements.clear(-1)).toThrow(RangeError);
  expect(() => placements.place(1, chain(1), 2, { nowMs: 0, ttlMs: 1 })).toThrow(RangeError);
  expect(() => placements.refute(1, chain(1), { from: 0, blockCount: 2, nowMs: 0 })).toThrow(RangeError);
  expect(() => placements.match(chain(1), 2, 0, found)).toThrow(RangeError);
});

// A prompt that an engine had evicted was believed there for as long as its placement lived. Mechanism: what is believed
// was the longer of facts and placements, whatever facts had said of the placed blocks since.
describe("a block that an engine dropped", () => {
  const place = { nowMs: 0, ttlMs: 100 };
  const depthAt = (placements: Placements, words: Uint32Array, announced: number): number | undefined => {
    const found = createPrefixMatches(usual.maxTargets);
    found.gpuBlocks[3] = announced;
    placements.match(words, words.length / 2, 1, found);
    return found.isListed[3] === 1 ? found.placedBlocks[3] : undefined;
  };

  test("ends what was placed before, from there on, at that target alone", () => {
    const { placements, match } = createPlacements();
    const words = chain(6);
    placements.place(3, words, 6, place);
    placements.place(4, words, 6, place);
    placements.dropped(3, words, 5, 6);
    expect([depthAt(placements, words, 5), match(words, 1)[4]]).toEqual([5, 6]);
    placements.dropped(3, words, 0, 5);
    expect([depthAt(placements, words, 0), match(words, 1)]).toEqual([undefined, { 4: 6 }]);
  });

  test("counts again once it is placed again, for as much as that placed", () => {
    const { placements } = createPlacements();
    const words = chain(600);
    placements.place(3, words, 600, place);
    placements.dropped(3, words, 50, 600);
    placements.place(3, words, 60, place);
    expect([depthAt(placements, words, 50), depthAt(placements, words, 60)]).toEqual([60, 60]);
    placements.place(3, words, 600, place);
    expect(depthAt(placements, words, 50)).toBe(600);
  });

  test("says nothing of a prompt that is still computed, of which the engine holds a part", () => {
    const { placements } = createPlacements();
    placements.dropped(3, chain(600), 0, 600);
    placements.place(3, chain(600), 600, place);
    placements.dropped(3, chain(9, 2), 0, 9);
    expect(depthAt(placements, chain(600), 128)).toBe(600);
  });

  test("is forgotten beyond the bound, and the newest one is not", () => {
    const { placements } = createPlacements({ maxDroppedBlocks: 16 });
    const chains = Array.from({ length: 40 }, (_, seed) => chain(1, seed + 10));
    for (const words of chains) placements.place(3, words, 1, place);
    for (const words of chains) placements.dropped(3, words, 0, 1);
    const believed = chains.filter((words) => depthAt(placements, words, 0) === 1);
    expect(believed.length).toBeGreaterThanOrEqual(24);
    expect(believed).not.toContain(chains[39]);
    placements.place(3, chains[0]!, 1, place);
    expect(depthAt(placements, chains[0]!, 0)).toBe(1);
    placements.dropped(3, chains[0]!, 0, 1);
    expect(depthAt(placements, chains[0]!, 0)).toBeUndefined();
  });
});
