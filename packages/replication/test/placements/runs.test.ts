import { createSeededRandom } from "@espalier/common";
import { expect, test } from "vitest";
import { maxPlacementJournals } from "../../src/placements/placement-reader.ts";
import { type ChainRun, maxRunBlocks } from "../../src/placements/placement-record.ts";
import { ReadRuns } from "../../src/placements/read-runs.ts";
import { digestSpanMs, maxDigestSpans, RecordDigest } from "../../src/placements/record-digest.ts";
import { maxRunLinks, maxWrittenRuns, referenceWindowMs, WrittenRuns } from "../../src/placements/written-runs.ts";
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
  expect(runs.resolve(runOf(1, words.subarray(0, 2)), into, 0)).toBe(1);
  expect(runs.resolve({ number: undefined, parent: 2, shared: 8, words: new Uint32Array(0) }, into, 0)).toBe(0);
});

test("the oldest runs go when a journal has more bytes than are kept, or when nobody refers to them any more", () => {
  const random = createSeededRandom(3);
  const runs = new ReadRuns(10 * (800 + 384));
  const chains = Array.from({ length: 11 }, () => chainOf(random, 100));
  for (const [index, words] of chains.entries()) runs.resolve(runOf(index + 1, words), into, 0);
  const isKnown = (number: number): boolean =>
    runs.resolve({ number: undefined, parent: number, shared: 1, words: new Uint32Array(0) }, into, 0) > 0;
  expect([1, 2, 11].map(isKnown)).toEqual([false, true, true]);
  expect(runs.byteLength).toBe(10 * (800 + 384));
  runs.resolve(runOf(12, chainOf(random, 1)), into, 2 * referenceWindowMs + 1);
  expect([2, 11, 12].map(isKnown)).toEqual([false, false, true]);
  expect(runs.forgetOldest()).toBe(true);
  expect(runs.forgetOldest()).toBe(false);
  expect(runs.byteLength).toBe(0);
});

test("the runs of all journals together are bounded, and the largest journal pays", () => {
  const random = createSeededRandom(4);
  const b = createLogRouter("b", { maxRunBytes: 20_000 });
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
  for (let index = 0; index < 40; index++) place(large, chainOf(random, 100));
  expect(b.meter.value("espalier_placements_run_bytes")).toBeLessThanOrEqual(20_000);
  place(small, chainOf(random, 1, kept));
  expect(b.meter.value("espalier_placements_received_total", "unresolved")).toBe(0);
  place(large, chainOf(random, 1, first));
  expect(b.meter.value("espalier_placements_received_total", "unresolved")).toBe(1);
  for (const router of [large, small]) b.log.journalDropped(router.origin);
  expect(b.meter.value("espalier_placements_run_bytes")).toBe(0);
});

test("one journal more than are followed makes the oldest be forgotten", () => {
  const a = createLogRouter("a");
  a.log.place("e/0", Uint32Array.of(1, 2), 1, { ttlMs: 60_000, isConfirmed: false });
  a.log.flush();
  const { bytes } = a.journal.items[0]!;
  const b = createLogRouter("b");
  const originOf = (epoch: number) => ({ ...a.origin, epoch });
  for (let epoch = 1; epoch <= maxPlacementJournals + 1; epoch++) {
    b.log.receive(originOf(epoch), bytes, () => ({ target: "e/0", life: null }));
  }
  expect(b.log.digest(originOf(1), 0)).toEqual([0, 0]);
  expect(b.log.digest(originOf(2), 0)).not.toEqual([0, 0]);
});

test("a writer refers to at most so many runs in a row, and to so many runs", () => {
  const random = createSeededRandom(5);
  const runs = new WrittenRuns({ keepPlacements: () => {}, holdsPlacements: () => true });
  let words = chainOf(random, 2);
  let longest = 0;
  for (let number = 1; number <= 200; number++) {
    const found = runs.find(words, blocksOf(words), 0);
    const run = runs.add(words, blocksOf(words), {
      ...{ number, item: { number: 1 }, nowMs: 0, parent: found?.run, shared: found?.shared ?? 0 },
    });
    runs.keep(run, 1_000);
    longest = Math.max(longest, run.links);
    words = chainOf(random, 1, words);
  }
  expect(longest).toBe(maxRunLinks);
  for (let number = 201; number <= maxWrittenRuns + 2; number++) {
    runs.add(chainOf(random, 1), 1, { number, item: { number: 1 }, nowMs: 0, parent: undefined, shared: 0 });
  }
  expect(runs.size).toBe(maxWrittenRuns);
  runs.clear();
  expect(runs.find(words, blocksOf(words), 0)).toBeUndefined();
});

test("keeping a run keeps all it refers to, once", () => {
  const random = createSeededRandom(6);
  const kept: string[] = [];
  const journal = {
    keepPlacements: (item: number, untilMs: number) => void kept.push(`${item}:${untilMs}`),
    holdsPlacements: () => true,
  };
  const runs = new WrittenRuns(journal);
  const words = chainOf(random, 6);
  const first = runs.add(words, 2, { number: 1, item: { number: 7 }, nowMs: 0, parent: undefined, shared: 0 });
  const second = runs.add(words, 4, { number: 2, item: { number: 8 }, nowMs: 0, parent: first, shared: 2 });
  const pending = runs.add(words, 6, { number: 3, item: { number: undefined }, nowMs: 0, parent: second, shared: 4 });
  runs.keep(pending, 50);
  runs.keep(first, 40);
  runs.keep(second, 60);
  expect(kept).toEqual(["8:50", "7:50", "8:60", "7:60"]);
  expect(runs.find(words, 6, 49)).toEqual({ run: pending, shared: 6 });
  expect(runs.find(words, 6, 50)).toEqual({ run: second, shared: 4 });
  expect(runs.find(words, 6, 60)).toBeUndefined();
});

test("a digest depends on the set of records that are alive, not on their order or on what has expired", () => {
  const random = createSeededRandom(7);
  const records = Array.from({ length: 500 }, () => ({
    low: random.integer(2 ** 32),
    high: random.integer(2 ** 32),
    expiresMs: random.integer(100 * digestSpanMs),
  }));
  const digestOf = (list: typeof records): RecordDigest => {
    const digest = new RecordDigest();
    for (const { low, high, expiresMs } of list) digest.add(low, high, expiresMs);
    return digest;
  };
  const atMs = 50 * digestSpanMs;
  const expected = digestOf(records).after(atMs);
  expect(digestOf([...records].reverse()).after(atMs)).toEqual(expected);
  expect(digestOf(records.filter(({ expiresMs }) => expiresMs > atMs)).after(atMs)).toEqual(expected);
  expect(digestOf(records.slice(1)).after(-1)).not.toEqual(digestOf(records).after(-1));
  expect(digestOf([...records, records[0]!]).after(-1)).not.toEqual(digestOf(records).after(-1));
});

test("spans of a digest are bounded, and the earliest go", () => {
  const digest = new RecordDigest();
  for (let span = 0; span <= maxDigestSpans; span++) digest.add(1, 0, span * digestSpanMs);
  expect(digest.spans).toBeLessThanOrEqual(maxDigestSpans);
  expect(digest.after((maxDigestSpans - 3) * digestSpanMs)).toEqual([3, 0]);
});
