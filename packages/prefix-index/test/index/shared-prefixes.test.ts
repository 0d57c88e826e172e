import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { maxVisitedBlocks } from "../../src/placements/shared-prefixes.ts";
import { createPrefixIndex } from "../../src/prefix-index.ts";
import { randomHashes } from "../random-chains.ts";

const chain = (blocks: number, seed: number): Uint32Array => randomHashes(blocks, createSeededRandom(seed));

function join(...parts: readonly Uint32Array[]): Uint32Array {
  return Uint32Array.from(parts.flatMap((part) => [...part]));
}

const time = { nowMs: 0, ttlMs: 1_000 };
const hashAt = (words: Uint32Array, block: number) => words.slice(block * 2, block * 2 + 2);

test("prefixes that chains or targets share are told, by blocks times targets", () => {
  const index = createPrefixIndex({ maxTargets: 16 });
  const system = chain(100, 1);
  const tools = chain(300, 2);
  const withTools = join(system, tools);
  for (let target = 0; target < 7; target++) {
    const words = join(system, chain(20, 100 + target));
    index.place(target, words, 120, time);
  }
  for (const [target, seed] of [
    [7, 200],
    [8, 201],
    [8, 202],
  ] as const) {
    index.place(target, join(withTools, chain(5, seed)), 405, time);
  }
  index.place(9, chain(5_000, 3), 5_000, time);
  expect(index.largestSharedPrefixes(10, 1)).toEqual([
    { hash: hashAt(system, 99), blocks: 100, targets: [0, 1, 2, 3, 4, 5, 6, 7, 8], continuations: 8, parent: -1 },
    { hash: hashAt(withTools, 399), blocks: 400, targets: [7, 8], continuations: 3, parent: 0 },
  ]);
  expect(index.largestSharedPrefixes(1, 1)).toHaveLength(1);
  expect(index.largestSharedPrefixes(10, 1_000)).toEqual([]);
});

test("a chain that several targets have to different depths is told at each depth where some end", () => {
  const index = createPrefixIndex({ maxTargets: 4 });
  const words = chain(90, 1);
  for (const [target, blocks] of [
    [0, 30],
    [1, 60],
    [2, 90],
  ] as const)
    index.place(target, words, blocks, time);
  expect(index.largestSharedPrefixes(10, 1)).toEqual([
    { hash: hashAt(words, 59), blocks: 60, targets: [1, 2], continuations: 1, parent: 1 },
    { hash: hashAt(words, 29), blocks: 30, targets: [0, 1, 2], continuations: 1, parent: -1 },
  ]);
});

test("the longest listed one that a prefix continues is its parent, whatever lies between", () => {
  const index = createPrefixIndex({ maxTargets: 4 });
  const [system, tools, shop] = [chain(10, 1), chain(30, 2), chain(50, 3)];
  const place = (...parts: readonly Uint32Array[]): void => {
    const words = join(...parts);
    for (const target of [0, 1]) index.place(target, words, words.length / 2, time);
  };
  place(system, tools, shop, chain(1, 10));
  place(system, tools, shop, chain(1, 11));
  place(system, tools, chain(1, 12));
  place(system, chain(1, 13));
  place(chain(200, 20));
  const found = index.largestSharedPrefixes(20, 1);
  const placeOf = (blocks: number): number => found.findIndex((prefix) => prefix.blocks === blocks);
  const parentOf = (blocks: number): number | undefined => found[placeOf(blocks)]?.parent;
  expect([parentOf(90), parentOf(40), parentOf(10)]).toEqual([placeOf(40), placeOf(10), -1]);
  expect(found.filter(({ blocks }) => blocks === 91).map(({ parent }) => parent)).toEqual([placeOf(90), placeOf(90)]);
  expect(parentOf(200)).toBe(-1);
  const [longest] = index.largestSharedPrefixes(1, 1);
  expect(longest).toMatchObject({ blocks: 200, parent: -1 });
});

test("with more blocks than one call looks at, what was used last counts", () => {
  const index = createPrefixIndex({ maxTargets: 2, maxPlacedBlocksPerTarget: maxVisitedBlocks * 4 });
  const old = chain(1_000, 1);
  const recent = chain(2_000, 2);
  for (const target of [0, 1]) {
    for (let seed = 0; seed < 2; seed++) index.place(target, join(old, chain(3, 10 + seed)), 1_003, time);
    index.place(target, chain(maxVisitedBlocks, 20 + target), maxVisitedBlocks, time);
    for (let seed = 0; seed < 2; seed++) index.place(target, join(recent, chain(3, 30 + seed)), 2_003, time);
  }
  const found = index.largestSharedPrefixes(10, 1).map(({ blocks }) => blocks);
  expect(found[0]).toBeGreaterThanOrEqual(2_000);
  expect(found).not.toContain(1_000);
});
