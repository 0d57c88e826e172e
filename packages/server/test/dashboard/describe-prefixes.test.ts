import { asTargetIndex } from "@espalier/core";
import { createPrefixIndex, tier } from "@espalier/prefix-index";
import { maxKnownTargets } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  createPrefixReporter,
  maxListedHolders,
  maxListedPrefixes,
  prefixReportAgeMs,
} from "../../src/admin/prefix-report.ts";
import { chainOf } from "../mesh/mesh-rig.ts";

function start() {
  const { clock, scheduler: _, advance } = createVirtualTime();
  const index = createPrefixIndex({ maxTargets: maxKnownTargets, maxBlocks: 100_000, maxSets: 1_000 });
  const report = createPrefixReporter({
    ...{ index, blockSize: 16, clock },
    keyOf: (target) => (target < 200 ? `engine-${target}` : undefined),
  });
  const place = (target: number, words: Uint32Array): void => {
    index.placements.setCapacity(asTargetIndex(target), 10_000);
    index.place(target, words, words.length / 2, { nowMs: clock.nowMs(), ttlMs: 600_000 });
  };
  const hold = (target: number, words: Uint32Array): void => {
    index.storeFacts(target, tier.gpu, words, 0, words.length / 2);
  };
  return { report, place, hold, advance };
}

const hashOf = (words: Uint32Array): string =>
  [...words.slice(-2)].map((word) => word.toString(16).padStart(8, "0")).join("");
const join = (...parts: readonly Uint32Array[]): Uint32Array => Uint32Array.from(parts.flatMap((part) => [...part]));

test("who holds a prefix, and how that is known", () => {
  const { report, place, hold } = start();
  const words = chainOf(1, 20);
  place(1, words);
  place(2, words);
  hold(2, words);
  hold(3, words);
  hold(4, words.slice(0, 30));
  expect(report()).toEqual({
    blockSize: 16,
    prefixes: [
      {
        ...{ hash: hashOf(words), blocks: 20, parent: null, continuations: 0, holderCount: 3 },
        holders: [
          { target: "engine-1", isFact: false, isPlaced: true },
          { target: "engine-2", isFact: true, isPlaced: true },
          { target: "engine-3", isFact: true, isPlaced: false },
        ],
      },
    ],
  });
});

test("a prefix stands below the one that it continues", () => {
  const { report, place } = start();
  const [system, tools] = [chainOf(1, 10), chainOf(2, 30)];
  for (const target of [1, 2]) place(target, join(system, tools, chainOf(10 + target, 2)));
  for (const target of [1, 2, 3]) place(target, join(system, chainOf(20 + target, 2)));
  const { prefixes } = report();
  expect(prefixes.map(({ blocks, parent }) => [blocks, parent])).toEqual([
    [40, 1],
    [10, null],
  ]);
});

test("below a prefix only what continues it is told, that prefix first, also what is too small for the whole list", () => {
  const { report, place } = start();
  const [system, tools] = [chainOf(1, 10), chainOf(2, 30)];
  for (const target of [1, 2]) place(target, join(system, tools, chainOf(10 + target, 2)));
  for (const target of [3, 4]) place(target, join(system, chainOf(5, 1), chainOf(20 + target, 2)));
  for (const target of [1, 2]) for (let at = 0; at < maxListedPrefixes; at++) place(target, chainOf(100 + at, 60));
  expect(report().prefixes.every(({ blocks }) => blocks === 60)).toBe(true);
  expect(
    report(hashOf(system)).prefixes.map(({ blocks, parent, holderCount }) => [blocks, parent, holderCount]),
  ).toEqual([
    [10, null, 4],
    [40, 0, 2],
    [11, 0, 2],
  ]);
  expect(report(hashOf(join(system, tools))).prefixes.map(({ blocks }) => blocks)).toEqual([40]);
  expect(report(hashOf(chainOf(9, 9))).prefixes).toEqual([]);
  for (const strange of ["", "xyz", `${hashOf(system)}0`]) expect(() => report(strange)).toThrow("range");
});

test("it is looked for again once it is old enough", () => {
  const { report, place, advance } = start();
  expect(report().prefixes).toEqual([]);
  for (const target of [1, 2]) place(target, chainOf(1, 5));
  expect(report().prefixes).toEqual([]);
  advance(prefixReportAgeMs);
  expect(report().prefixes).toHaveLength(1);
});

test("so many prefixes and holders are listed, and not one more", () => {
  const { report, place, hold } = start();
  const shared = chainOf(1, 200);
  for (const target of [1, 2]) place(target, shared);
  for (let target = 1; target <= maxListedHolders + 1; target++) hold(target, shared);
  for (let seed = 0; seed < maxListedPrefixes; seed++)
    for (const target of [1, 2]) place(target, chainOf(100 + seed, 5));
  const { prefixes } = report();
  expect(prefixes).toHaveLength(maxListedPrefixes);
  expect([prefixes[0]?.holders.length, prefixes[0]?.holderCount]).toEqual([maxListedHolders, maxListedHolders + 1]);
});

test("targets that have no name any more are left out", () => {
  const { report, place } = start();
  const words = chainOf(1, 5);
  place(1, words);
  place(300, words);
  expect(report().prefixes[0]?.holders.map(({ target }) => target)).toEqual(["engine-1"]);
});
