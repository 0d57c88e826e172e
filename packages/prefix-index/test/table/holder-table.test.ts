import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createHolderDepths, HolderMatcher } from "../../src/table/holder-matcher.ts";
import { HolderTable, type HolderTableOptions } from "../../src/table/holder-table.ts";
import { randomHashes } from "../random-chains.ts";

const usual = { maxHolders: 16, maxBlocks: 100_000, maxSets: 1_000, maxHoles: 100 };

function createTable(options: Partial<HolderTableOptions> = {}) {
  const table = new HolderTable({ ...usual, ...options });
  const matcher = new HolderMatcher(table);
  const found = createHolderDepths(options.maxHolders ?? usual.maxHolders);
  const match = (words: Uint32Array): Record<number, number | undefined> => {
    matcher.match(words, words.length / 2, found);
    return Object.fromEntries(
      [...found.holders.subarray(0, found.count)].map((holder, at) => [holder, found.depths[at]]),
    );
  };
  return { table, matcher, found, match };
}

const chain = (blocks: number, seed = 1): Uint32Array => randomHashes(blocks, createSeededRandom(seed));

test("holders of the first blocks of a chain are found with their depths, and others are not", () => {
  const { table, match } = createTable();
  const words = chain(1_000);
  table.store(3, words, 0, 1_000);
  table.store(5, words, 0, 1);
  table.store(7, words, 0, 640);
  table.store(9, words, 10, 20);
  expect(match(words)).toEqual({ 3: 1_000, 5: 1, 7: 640 });
  expect(match(words.subarray(0, 2))).toEqual({ 3: 1, 5: 1, 7: 1 });
  expect(match(words.subarray(0, 0))).toEqual({});
  expect(match(chain(10, 2))).toEqual({});
});

test("a chain shorter than it is said to be is refused", () => {
  const { matcher, found } = createTable();
  expect(() => matcher.match(chain(3), 4, found)).toThrow(RangeError);
});

test("a hash whose words are zero is a hash like others", () => {
  const { table, match } = createTable();
  const words = new Uint32Array([0, 0, 0, 1, 1, 0]);
  table.store(1, words, 0, 2);
  expect(match(words)).toEqual({ 1: 2 });
});

test("an unknown holder is refused, and one past the last too", () => {
  const { table } = createTable();
  expect(() => table.store(16, chain(1), 0, 1)).toThrow(RangeError);
  expect(() => table.blockCount(-1)).toThrow(RangeError);
});

test("a hole cuts its holder and nobody else, until it is stored again or its holder cleared", () => {
  const { table, match } = createTable();
  const words = chain(100);
  for (const holder of [1, 2]) table.store(holder, words, 0, 100);
  table.removeOrphaning(1, words, { index: 40, depth: 40 });
  table.removeOrphaning(1, words, { index: 60, depth: 60 });
  expect(match(words)).toEqual({ 1: 40, 2: 100 });
  table.store(1, words, 40, 41);
  expect(match(words)).toEqual({ 1: 60, 2: 100 });
  table.store(1, words, 60, 61);
  expect(match(words)).toEqual({ 1: 100, 2: 100 });
  table.removeOrphaning(1, words, { index: 0, depth: 0 });
  expect(match(words)).toEqual({ 2: 100 });
  table.clear(1);
  table.store(1, words, 0, 50);
  expect(match(words)).toEqual({ 1: 50, 2: 100 });
});

test("with one hole too many a holder is walked, and answers stay exact", () => {
  const { table, match } = createTable({ maxHoles: 2 });
  const words = chain(100);
  for (const holder of [1, 2]) table.store(holder, words, 0, 100);
  for (const index of [90, 80]) table.removeOrphaning(1, words, { index, depth: index });
  expect(table.isWalked(1)).toBe(false);
  table.removeOrphaning(1, words, { index: 70, depth: 70 });
  expect(table.isWalked(1)).toBe(true);
  expect(match(words)).toEqual({ 1: 70, 2: 100 });
  table.store(1, words, 70, 71);
  expect(match(words)).toEqual({ 1: 80, 2: 100 });
});

test("one block beyond the bound is refused and counted, and other holders of known blocks still fit", () => {
  const { table, match } = createTable({ maxBlocks: 1_000 });
  const words = chain(1_001);
  expect(table.store(1, words, 0, 1_000)).toBe(1_000);
  expect(table.store(1, words, 1_000, 1_001)).toBe(0);
  expect(table.refused).toBe(1);
  expect(table.store(2, words, 0, 1_000)).toBe(1_000);
  expect(match(words)).toEqual({ 1: 1_000, 2: 1_000 });
});

test("one set beyond the bound is refused and counted, and its holder is walked", () => {
  const { table, match } = createTable({ maxSets: 2 });
  const words = chain(4);
  table.store(1, words, 0, 4);
  expect(table.store(2, words, 0, 1)).toBe(1);
  expect(table.store(3, words, 1, 2)).toBe(1);
  expect(table.store(4, words, 2, 3)).toBe(0);
  expect(table.refused).toBe(1);
  expect(table.isWalked(4)).toBe(true);
  expect(match(words)).toEqual({ 1: 4, 2: 1 });
});

test("where a smaller set finds no room the block is given up for all, and nobody is told that it is there", () => {
  const { table, match } = createTable({ maxSets: 1 });
  const words = chain(3);
  for (const holder of [1, 2, 3]) table.store(holder, words, 0, 1);
  for (const holder of [1, 2]) table.store(holder, words, 1, 3);
  expect(table.refused).toBeGreaterThan(0);
  const before = match(words);
  expect(Object.values(before).every((depth) => depth !== undefined && depth <= 3)).toBe(true);
  table.remove(1, words, 0, 1);
  expect(match(words)[1]).toBeUndefined();
});

test("voiding takes no time and no block is found after; what is swept can be used again", () => {
  const { table, match } = createTable();
  const words = chain(20_000);
  for (let epoch = 0; epoch < 40; epoch++) {
    table.store(1, words, 0, 20_000);
    table.store(2, words, 0, 8_000);
    expect(match(words.subarray(0, 200))).toEqual({ 1: 100, 2: 100 });
    table.clear(1);
    expect(table.blockCount(1)).toBe(0);
    expect(match(words.subarray(0, 200))).toEqual({ 2: 100 });
    table.clear(2);
    expect(table.pairs).toBe(0);
  }
  while (table.sweep(1_000));
  expect(table.slots.count).toBe(0);
  expect(table.sets.sharedCount).toBe(0);
  expect(table.byteLength).toBeLessThan(100_000);
});

test("a sweep visits about as many slots as it is told", () => {
  const { table } = createTable();
  const words = chain(50_000);
  table.store(1, words, 0, 50_000);
  table.clear(1);
  let slices = 0;
  for (let left = table.slots.count; table.sweep(500); slices++) {
    expect(left - table.slots.count).toBeLessThan(2_000);
    left = table.slots.count;
  }
  expect(slices).toBeGreaterThan(50);
});

test("memory does not grow with turnover, for single holders and for shared blocks", () => {
  const { table } = createTable({ maxSets: 10_000 });
  const live = 4_000;
  let words = chain(live, 1);
  const fill = (fresh: Uint32Array) => {
    for (let from = 0; from < live; from += 100) {
      for (let holder = 0; holder <= (from / 100) % 4; holder++) table.store(holder, fresh, from, from + 100);
    }
  };
  const empty = (old: Uint32Array) => {
    for (let holder = 0; holder < 4; holder++) table.remove(holder, old, 0, live);
  };
  fill(words);
  const before = table.byteLength;
  for (let turn = 2; turn <= 101; turn++) {
    const fresh = chain(live, turn);
    fill(fresh);
    empty(words);
    words = fresh;
  }
  while (table.sweep(10_000));
  table.store(0, words, 0, live);
  // At its fullest the table had two generations in it.
  expect(table.byteLength).toBeLessThanOrEqual(before * 2.2);
  expect(table.sets.sharedCount).toBeLessThanOrEqual(3);
});

test("4,096 holders of one chain at 16 depths are found in one query", () => {
  const { table, match } = createTable({ maxHolders: 4_096 });
  const words = chain(640);
  for (let holder = 0; holder < 4_096; holder++) table.store(holder, words, 0, ((holder % 16) + 1) * 40);
  const found = match(words);
  for (let holder = 0; holder < 4_096; holder++) expect(found[holder]).toBe(((holder % 16) + 1) * 40);
});
