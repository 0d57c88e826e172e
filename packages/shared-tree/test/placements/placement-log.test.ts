import { createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { EngineEpoch } from "../../src/facts/engine-epoch.ts";
import { maxRunBlocks } from "../../src/placements/placement-item.ts";
import { flushPlacementBytes } from "../../src/placements/placement-log.ts";
import { blocksOf, chainOf, createLogRouter, FakeJournal, type LogRouter } from "./placement-rig.ts";

const use = { ttlMs: 60_000, isConfirmed: false };
const nowWallMs = 1_700_000_000_000;

function pair(): { time: ReturnType<typeof createVirtualTime>; a: LogRouter; b: LogRouter } {
  const time = createVirtualTime(nowWallMs);
  return { time, a: createLogRouter("a", { time }), b: createLogRouter("b", { time }) };
}

function place(router: LogRouter, target: string, words: Uint32Array, ttlMs = use.ttlMs): number {
  router.log.place(target, words, blocksOf(words), { ...use, ttlMs });
  router.log.flush();
  return router.journal.items.at(-1)?.bytes.length ?? 0;
}

const outcomes = (router: LogRouter, outcome: string): number =>
  router.meter.value("espalier_placements_received_total", outcome);

test("a placement counts here at once, and elsewhere once it was flushed and carried over", () => {
  const { a, b } = pair();
  const words = chainOf(createSeededRandom(1), 20);
  a.log.place("e/0", words, 20, use);
  expect(a.depth("e/0", words).placed).toBe(20);
  expect(a.touches).toBe(1);
  b.follow(a);
  expect(b.depth("e/0", words).placed).toBe(0);
  a.log.flush();
  b.follow(a);
  expect(b.depth("e/0", words)).toEqual({ placed: 20, confirmed: 0 });
  expect(outcomes(b, "applied")).toBe(1);
  a.log.flush();
  expect(a.journal.items).toHaveLength(1);
});

test("what is confirmed and refuted here is so elsewhere", () => {
  const { a, b } = pair();
  const words = chainOf(createSeededRandom(2), 20);
  a.log.place("e/0", words, 12, { ttlMs: 60_000, isConfirmed: true });
  a.log.place("e/0", words, 20, use);
  a.log.flush();
  b.follow(a);
  expect(b.depth("e/0", words)).toEqual(a.depth("e/0", words));
  expect(b.depth("e/0", words).placed).toBe(20);
  b.log.refute("e/0", words, { from: 5, blockCount: 20 });
  b.log.flush();
  a.follow(b);
  expect(a.depth("e/0", words).placed).toBe(5);
  expect(b.depth("e/0", words).placed).toBe(5);
});

test("what continues a chain in the journal is written as the new part only, a repeat as a few bytes", () => {
  const { a, b } = pair();
  const random = createSeededRandom(3);
  const first = chainOf(random, 1_000);
  const second = chainOf(random, 10, first);
  expect(place(a, "e/0", first)).toBeGreaterThan(8_000);
  expect(place(a, "e/1", second)).toBeLessThan(10 * 8 + 32);
  expect(place(a, "e/0", second)).toBeLessThan(32);
  const half = first.subarray(0, 1_000);
  expect(place(a, "e/2", half)).toBeLessThan(32);
  b.follow(a);
  expect(b.depth("e/0", second).placed).toBe(1_010);
  expect(b.depth("e/1", second).placed).toBe(1_010);
  expect(b.depth("e/2", second).placed).toBe(500);
});

test("within one item records are smaller still", () => {
  const { a, b } = pair();
  const words = chainOf(createSeededRandom(4), 100);
  const sizeOf = (count: number): number => {
    for (let index = 0; index < count; index++) a.log.place("e/0", words, 100, use);
    a.log.flush();
    return a.journal.items.at(-1)!.bytes.length;
  };
  const single = sizeOf(1);
  expect(sizeOf(101) - single).toBeLessThanOrEqual(100 * 12);
  b.follow(a);
  expect(outcomes(b, "applied")).toBe(102);
});

test("a conversation of many turns is resolved everywhere, also by one that joins late", () => {
  const { time, a, b } = pair();
  const random = createSeededRandom(5);
  let words = chainOf(random, 30);
  for (let turn = 0; turn < 200; turn++) {
    words = chainOf(random, 3, words);
    place(a, `e/${turn % 3}`, words, 120_000);
    b.follow(a);
    time.advance(1_000);
  }
  const c = createLogRouter("c", { time });
  c.join(a);
  for (const router of [b, c]) {
    expect(router.depth("e/1", words).placed).toBe(blocksOf(words));
    expect(outcomes(router, "unresolved")).toBe(0);
  }
});

test("an item stays for as long as later ones refer to it, and no longer", () => {
  const { time, a } = pair();
  const random = createSeededRandom(6);
  const first = chainOf(random, 50);
  place(a, "e/0", first, 10_000);
  place(a, "e/0", chainOf(random, 5, first), 30_000);
  time.advance(20_000);
  a.journal.trim();
  expect(a.journal.items).toHaveLength(2);
  const c = createLogRouter("c", { time });
  c.join(a);
  expect(c.depth("e/0", first).placed).toBe(50);
  time.advance(10_001);
  a.journal.trim();
  expect(a.journal.items).toHaveLength(0);
  expect(place(a, "e/0", chainOf(random, 5, first), 30_000)).toBeGreaterThan(55 * 8);
});

test("what had to go from the journal for want of room is written anew, whole", () => {
  const { a, b } = pair();
  const random = createSeededRandom(7);
  const first = chainOf(random, 50);
  const second = chainOf(random, 5, first);
  a.journal.maxItems = 2;
  place(a, "e/0", first);
  place(a, "e/0", second);
  place(a, "e/0", chainOf(random, 5));
  expect(place(a, "e/0", chainOf(random, 1, second))).toBeGreaterThan(56 * 8);
  b.join(a);
  expect(b.depth("e/0", second).placed).toBe(55);
  expect(outcomes(b, "unresolved")).toBe(0);
});

test("no item is referred to for longer than ten minutes, however often a chain is repeated", () => {
  const { time, a } = pair();
  const words = chainOf(createSeededRandom(8), 100);
  const sizes: number[] = [];
  for (let minute = 0; minute <= 25; minute++) {
    sizes.push(place(a, "e/0", words, 300_000));
    time.advance(60_000);
    a.journal.trim();
  }
  expect(sizes.flatMap((size, minute) => (size > 800 ? [minute] : []))).toEqual([0, 10, 20]);
  expect(a.journal.items.length).toBeLessThan(20);
});

test("a placement expires by the time that was left when it arrived, on the receiver's own clock", () => {
  const time = createVirtualTime(nowWallMs);
  const a = createLogRouter("a", { time });
  const wrong = createVirtualTime(nowWallMs + 7_200_000);
  const b = createLogRouter("b", { time: wrong });
  const words = chainOf(createSeededRandom(9), 10);
  place(a, "e/0", words, 5_000);
  b.follow(a);
  wrong.advance(4_999);
  expect(b.depth("e/0", words).placed).toBe(10);
  wrong.advance(2);
  expect(b.depth("e/0", words).placed).toBe(0);
});

test("a placement of an ended epoch is dropped; one of an epoch that is new here is not", () => {
  const { a, b } = pair();
  const epoch = (timestampUs: number, predecessor: string | null): EngineEpoch => ({
    ...{ sequence: 0, timestampUs, checksum: 7, predecessor },
  });
  const random = createSeededRandom(10);
  const [one, two, three, four] = [1, 2, 3, 4].map(() => chainOf(random, 4)) as [
    Uint32Array,
    Uint32Array,
    Uint32Array,
    Uint32Array,
  ];
  b.epochs.set("e/0", epoch(200, "0.100.7"));
  a.epochs.set("e/0", epoch(100, null));
  place(a, "e/0", one);
  a.epochs.set("e/0", epoch(200, "0.100.7"));
  place(a, "e/0", two);
  a.epochs.set("e/0", epoch(150, "0.200.7"));
  place(a, "e/0", three);
  a.epochs.delete("e/0");
  place(a, "e/0", four);
  b.follow(a);
  expect([one, two, three, four].map((words) => b.depth("e/0", words).placed)).toEqual([0, 4, 4, 4]);
  expect(outcomes(b, "older-epoch")).toBe(1);
});

test("a router in a new epoch writes to its new journal, whole, and nothing that waited for the old one", () => {
  const { a, b } = pair();
  const words = chainOf(createSeededRandom(11), 40);
  place(a, "e/0", words);
  a.log.place("e/1", words, 40, use);
  Object.assign(a, { epoch: 2, journal: new FakeJournal(createVirtualTime()) });
  a.log.flush();
  expect(a.journal.items).toHaveLength(0);
  expect(place(a, "e/1", words)).toBeGreaterThan(40 * 8);
  b.follow(a);
  expect(b.depth("e/1", words).placed).toBe(40);
  expect(b.depth("e/0", words).placed).toBe(0);
});

test("what waits goes to the journal in items of bounded size, and a chain that is too long is cut", () => {
  const { a, b } = pair();
  const random = createSeededRandom(12);
  for (let index = 0; index < 80; index++) {
    const words = chainOf(random, 1_000);
    a.log.place("e/0", words, 1_000, use);
  }
  a.log.flush();
  expect(a.journal.items.length).toBe(3);
  for (const { bytes } of a.journal.items) expect(bytes.length).toBeLessThanOrEqual(flushPlacementBytes + 64 * 80);
  const longest = chainOf(random, maxRunBlocks + 1);
  place(a, "e/1", longest);
  b.join(a);
  expect(b.depth("e/1", longest).placed).toBe(maxRunBlocks);
  expect(outcomes(b, "applied")).toBe(81);
  a.log.refute("e/1", longest, { from: maxRunBlocks, blockCount: maxRunBlocks + 1 });
  a.log.flush();
  expect(a.journal.items.length).toBe(4);
});

test("a chain too short for what is said of it is a programming error; nothing placed is nothing written", () => {
  const { a } = pair();
  const words = chainOf(createSeededRandom(13), 4);
  expect(() => a.log.place("e/0", words, 5, use)).toThrow(RangeError);
  expect(() => a.log.refute("e/0", words, { from: 0, blockCount: 5 })).toThrow(RangeError);
  a.log.place("e/0", words, 0, use);
  a.log.place("e/0", words, 4, { ttlMs: 0, isConfirmed: false });
  a.log.refute("e/0", words, { from: 4, blockCount: 4 });
  a.log.flush();
  expect(a.journal.items).toHaveLength(0);
});

test("items of unknown feeds and runs are skipped, and so is what finds no slot", () => {
  const { time, a } = pair();
  const random = createSeededRandom(14);
  const first = chainOf(random, 10);
  const second = chainOf(random, 2, first);
  place(a, "e/0", first);
  place(a, "e/1", second);
  const c = createLogRouter("c", { time, maxTargets: 1 });
  c.log.receive(a.origin, a.journal.items[1]!.bytes, (feed) => a.journal.declarations[feed]);
  expect(outcomes(c, "unresolved")).toBe(1);
  c.log.receive(a.origin, a.journal.items[0]!.bytes, () => undefined);
  expect(outcomes(c, "unresolved")).toBe(2);
  c.join(a);
  expect(outcomes(c, "applied")).toBe(1);
  expect(outcomes(c, "no-slot")).toBe(1);
});

test("replicas that have received the same records find the same of every chain, a joiner too", () => {
  const { time, a, b } = pair();
  const random = createSeededRandom(15);
  const placed: { readonly target: string; readonly words: Uint32Array; readonly untilMs: number }[] = [];
  for (let round = 0; round < 40; round++) {
    const [target, words] = [`e/${round % 3}`, chainOf(random, 1 + random.integer(20))];
    const ttlMs = 5_000 + random.integer(100_000);
    placed.push({ target, words, untilMs: time.clock.nowMs() + ttlMs });
    place(a, target, words, ttlMs);
    a.bindings.set(`key-${round}`, "value", 50_000);
    a.log.flush();
    b.follow(a);
    time.advance(2_000);
  }
  const c = createLogRouter("c", { time });
  c.join(a);
  const living = placed.filter(({ untilMs }) => untilMs > time.clock.nowMs());
  expect(living.length).toBeGreaterThan(10);
  for (const { target, words } of living) {
    for (const router of [a, b, c]) expect(router.depth(target, words).placed).toBe(blocksOf(words));
  }
  for (const router of [b, c]) expect(outcomes(router, "unresolved")).toBe(0);
  b.log.journalDropped(a.origin);
  const { target, words } = living.at(-1)!;
  place(a, target, chainOf(random, 1, words));
  for (const router of [b, c]) router.follow(a);
  expect(outcomes(b, "unresolved")).toBe(1);
  expect(outcomes(c, "unresolved")).toBe(0);
});
