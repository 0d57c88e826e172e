import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { type ChainRun, maxRunBlocks } from "../../src/placements/placement-item.ts";
import { maxPlacementJournals } from "../../src/placements/placement-reader.ts";
import { ReadRuns } from "../../src/placements/read-runs.ts";
import {
  blockStride,
  maxRunLinks,
  maxWrittenRuns,
  referenceWindowMs,
  WrittenRuns,
} from "../../src/placements/written-runs.ts";
import { blocksOf, chainOf, createLogRouter } from "./placement-rig.ts";

const into = new Uint32Array(maxRunBlocks * 2);

const runOf = (number: number, words: Uint32Array, parent?: number, shared = 0): ChainRun => ({
  ...{ number, parent, shared, words: words.subarray(shared * 2) },
});

test("a run is resolved through every run that it refers to", () => {
  const random = createSeededRandom(1);
  const runs = new ReadRuns();
  let words = chainOf(random, 5);
  expect(runs.resolve(runOf(1, words), into, 0)).toBe(5);
  for (let number = 2; number <= maxRunLinks; number++) {
    const shared = blocksOf(words) - random.integer(3);
    words = chainOf(random, 1 + random.integer(4), words.subarray(0, shared * 2));
    expect(runs.resolve(runOf(number, words, number - 1, shared), into, 0)).toBe(blocksOf(words));
    expect(into.subarray(0, words.length)).toEqual(words);
  }
  const tooLong = chainOf(random, 1, words);
  expect(runs.resolve(runOf(maxRunLinks + 1, tooLong, maxRunLinks, blocksOf(words)), into, 0)).toBe(0);
  const repeat = { ...runOf(0, words, maxRunLinks, blocksOf(words)), number: undefined };
  expect(runs.resolve(repeat, into, 0)).toBe(blocksOf(words));
});

test("runs that refer to what is unknown or shorter are not resolved", () => {
  const words = chainOf(createSeededRandom(2), 8);
  const runs = new ReadRuns();
  expect(runs.resolve(runOf(2, words, 1, 4), into, 0)).toBe(0);
  expect(runs.resolve(runOf(1, words.subarray(0, 8)), into, 0)).toBe(4);
  expect(runs.resolve(runOf(2, words, 1, 5), into, 0)).toBe(0);
  expect(runs.resolve(runOf(2, words, 1, 4), into, 0)).toBe(8);
  // A writer that gives a number twice must not make another chain of the runs that refer to it.
  expect(runs.resolve(runOf(1, words.subarray(2, 4)), into, 0)).toBe(1);
  expect(runs.resolve({ number: undefined, parent: 2, shared: 8, words: new Uint32Array(0) }, into, 0)).toBe(8);
  expect(into.subarray(0, 16)).toEqual(words);
});

test("the oldest runs go when a journal has more bytes than are kept, or when nobody refers to them any more", () => {
  const random = createSeededRandom(3);
  const maxBytes = 100_000;
  const runs = new ReadRuns(maxBytes);
  const isKnown = (number: number): boolean =>
    runs.resolve({ number: undefined, parent: number, shared: 1, words: new Uint32Array(0) }, into, 0) > 0;
  let last = 0;
  const add = (nowMs: number): void => {
    last += 1;
    runs.resolve(runOf(last, chainOf(random, 100)), into, nowMs);
  };
  while (last === 0 || isKnown(1)) {
    add(0);
    expect(runs.byteLength).toBeLessThanOrEqual(maxBytes);
  }
  // All but an eighth or two of what there is room for is used when the first run goes.
  expect(last * 800).toBeGreaterThan(maxBytes / 2);
  expect(isKnown(last)).toBe(true);
  const before = last;
  expect(isKnown(before - 20)).toBe(true);
  while (last < before + 40) add(2 * referenceWindowMs + 1);
  expect(isKnown(before - 20)).toBe(false);
  expect(isKnown(last)).toBe(true);
  while (runs.forgetOldest()) expect(runs.byteLength).toBeGreaterThanOrEqual(0);
  expect(runs.byteLength).toBe(0);
  expect(isKnown(last)).toBe(false);
});

test("a run that is longer than a chunk has one to itself", () => {
  const random = createSeededRandom(9);
  const runs = new ReadRuns();
  const long = chainOf(random, maxRunBlocks);
  expect(runs.resolve(runOf(1, long), into, 0)).toBe(maxRunBlocks);
  expect(runs.resolve(runOf(2, chainOf(random, 3)), into, 0)).toBe(3);
  const again = { number: undefined, parent: 1, shared: maxRunBlocks, words: new Uint32Array(0) };
  expect(runs.resolve(again, into, 0)).toBe(maxRunBlocks);
  expect(into).toEqual(long);
});

test("a reader has every chain that a writer has written, however it was shared", () => {
  const random = createSeededRandom(8);
  const writer = new WrittenRuns({ keepPlacements: () => {}, holdsPlacements: (item) => item > held });
  const reader = new ReadRuns();
  const known: Uint32Array[] = [];
  let held = 0;
  let sharedBlocks = 0;
  let number = 1;
  for (let step = 0; step < 20_000; step++) {
    const base = known[random.integer(known.length + 1)] ?? new Uint32Array(0);
    const cut = random.integer(4) === 0 ? random.integer(blocksOf(base) + 1) : blocksOf(base);
    const words = chainOf(random, random.integer(9) + (cut === 0 ? 1 : 0), base.subarray(0, cut * 2));
    const blocks = blocksOf(words);
    const nowMs = step * 100;
    const found = writer.find(words, blocks, nowMs);
    const shared = found?.shared ?? 0;
    sharedBlocks += shared;
    const own = blocks > shared ? number : undefined;
    const run = { number: own, parent: found?.run, shared, words: words.subarray(shared * 2) };
    expect(reader.resolve(run, into, nowMs)).toBe(blocks);
    expect(into.subarray(0, words.length)).toEqual(words);
    if (own !== undefined) {
      writer.add(words, blocks, { number, item: { number }, nowMs, parent: found?.run, shared });
      number += 1;
    }
    writer.keep(own ?? found!.run, nowMs + random.integer(300_000) + 1);
    if (random.integer(50) === 0) held = number - random.integer(500);
    known[random.integer(200)] = blocks > 200 ? chainOf(random, 1) : words;
  }
  expect(sharedBlocks).toBeGreaterThan(20_000);
});

test("the runs of all journals together are bounded, and the largest journal pays", () => {
  const random = createSeededRandom(4);
  const b = createLogRouter("b", { maxRunBytes: 1_000_000 });
  const writers = ["large", "small"].map((name) => createLogRouter(name));
  const [large, small] = writers as [ReturnType<typeof createLogRouter>, ReturnType<typeof createLogRouter>];
  const place = (router: typeof large, words: Uint32Array): void => {
    router.log.place("e/0", words, blocksOf(words), { ttlMs: 60_000, isConfirmed: false });
    router.log.flush();
    b.follow(router);
  };
  const kept = chainOf(random, 100);
  place(small, kept);
  const first = chainOf(random, 100);
  place(large, first);
  for (let index = 0; index < 2_000; index++) place(large, chainOf(random, 100));
  expect(b.meter.value("espalier_placements_chain_bytes")).toBeLessThanOrEqual(1_000_000);
  place(small, chainOf(random, 1, kept));
  expect(b.meter.value("espalier_placements_received_total", "unresolved")).toBe(0);
  place(large, chainOf(random, 1, first));
  expect(b.meter.value("espalier_placements_received_total", "unresolved")).toBe(1);
  for (const router of [large, small]) b.log.journalDropped(router.origin);
  expect(b.meter.value("espalier_placements_chain_bytes")).toBe(0);
});

test("one journal more than are followed makes the oldest be forgotten", () => {
  const a = createLogRouter("a");
  const chain = chainOf(createSeededRandom(5), 5);
  for (const words of [chain.subarray(0, 8), chain]) {
    a.log.place("e/0", words, blocksOf(words), { ttlMs: 60_000, isConfirmed: false });
    a.log.flush();
  }
  const [first, next] = a.journal.items;
  const b = createLogRouter("b");
  const receive = (epoch: number, { bytes }: { readonly bytes: Uint8Array }): void =>
    b.log.receive({ ...a.origin, epoch }, bytes, () => ({ target: "e/0", epoch: null }));
  for (let epoch = 1; epoch <= maxPlacementJournals + 1; epoch++) receive(epoch, first!);
  receive(2, next!);
  expect(b.meter.value("espalier_placements_received_total", "unresolved")).toBe(0);
  receive(1, next!);
  expect(b.meter.value("espalier_placements_received_total", "unresolved")).toBe(1);
});

const alwaysHeld = { keepPlacements: () => {}, holdsPlacements: () => true };

test("a writer refers to at most so many runs in a row", () => {
  const random = createSeededRandom(5);
  const runs = new WrittenRuns(alwaysHeld);
  let words = chainOf(random, blockStride);
  let longest = 0;
  for (let number = 1; number <= 200; number++) {
    const found = runs.find(words, blocksOf(words), 0);
    const shared = found?.shared ?? 0;
    runs.add(words, blocksOf(words), { number, item: { number: 1 }, nowMs: 0, parent: found?.run, shared });
    runs.keep(number, 1_000);
    longest = Math.max(longest, runs.linksOf(number));
    words = chainOf(random, blockStride, words);
  }
  expect(longest).toBe(maxRunLinks);
});

test("a writer refers to so many runs, and not to one more", () => {
  const runs = new WrittenRuns(alwaysHeld);
  const add = (number: number, low: number): void => {
    runs.add(Uint32Array.of(low, 7), 1, { number, item: { number: 1 }, nowMs: 0, parent: undefined, shared: 0 });
    runs.keep(number, 1_000);
  };
  add(1, 0xffff);
  const isFound = (): boolean => runs.find(Uint32Array.of(0xffff, 7), 1, 0) !== undefined;
  // The one that is written next takes the place of the oldest.
  for (let number = 2; number < maxWrittenRuns; number++) add(number, number & 0x7fff);
  expect(isFound()).toBe(true);
  add(maxWrittenRuns, 1);
  expect(isFound()).toBe(false);
});

test("a block is found at every fourth place, and where its run ends", () => {
  const random = createSeededRandom(10);
  const runs = new WrittenRuns(alwaysHeld);
  const words = chainOf(random, 11);
  runs.add(words, 11, { number: 1, item: { number: 1 }, nowMs: 0, parent: undefined, shared: 0 });
  runs.keep(1, 1_000);
  const sharedOf = (blocks: number, more: number): number | undefined => {
    const chain = chainOf(random, more, words.subarray(0, blocks * 2));
    return runs.find(chain, blocksOf(chain), 0)?.shared;
  };
  expect([3, 4, 7, 8, 10, 11].map((blocks) => sharedOf(blocks, 5))).toEqual([undefined, 4, 4, 8, 8, 8]);
  expect(sharedOf(11, 0)).toBe(11);
  expect(sharedOf(10, 0)).toBe(8);
});

test("keeping a run keeps all it refers to, once", () => {
  const random = createSeededRandom(6);
  const kept: string[] = [];
  const journal = {
    keepPlacements: (item: number, untilMs: number) => void kept.push(`${item}:${untilMs}`),
    holdsPlacements: () => true,
  };
  const runs = new WrittenRuns(journal);
  const words = chainOf(random, 12);
  runs.add(words, 4, { number: 1, item: { number: 7 }, nowMs: 0, parent: undefined, shared: 0 });
  runs.add(words, 8, { number: 2, item: { number: 8 }, nowMs: 0, parent: 1, shared: 4 });
  runs.add(words, 12, { number: 3, item: { number: undefined }, nowMs: 0, parent: 2, shared: 8 });
  runs.keep(3, 50);
  runs.keep(1, 40);
  runs.keep(2, 60);
  expect(kept).toEqual(["8:50", "7:50", "8:60", "7:60"]);
  expect(runs.find(words, 12, 49)).toEqual({ run: 3, shared: 12 });
  expect(runs.find(words, 12, 50)).toEqual({ run: 2, shared: 8 });
  expect(runs.find(words, 12, 60)).toBeUndefined();
});
