import { createSeededRandom, mixWord } from "@espalier/core";
import type { LedgerSink } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { maxStoredPerMessage, SyntheticFeed } from "../src/support/synthetic-feed.ts";
import { textBits } from "../src/support/text-bits.ts";

/** Holds what it is told, block by block, and refuses what cannot be. */
class NaiveEngine implements LedgerSink {
  readonly held = new Set<string>();
  stores = 0;
  removals = 0;
  mostStored = 0;
  /** Blocks in the order in which they were stored last. */
  readonly order: string[] = [];

  stored(_tier: number, words: Uint32Array, from: number, to: number): void {
    this.mostStored = Math.max(this.mostStored, to - from);
    for (let block = from; block < to; block++) {
      const name = nameOf(words, block);
      if (this.held.has(name)) throw new Error(`${name} was held`);
      this.held.add(name);
      this.order.push(name);
      this.stores += 1;
    }
  }

  removed(_tier: number, words: Uint32Array, from: number, to: number): void {
    for (let block = from; block < to; block++) {
      if (!this.held.delete(nameOf(words, block))) throw new Error(`${nameOf(words, block)} was not held`);
      this.removals += 1;
    }
  }

  orphaned(): void {
    throw new Error("a hole");
  }

  holeGone(): void {
    throw new Error("a hole is gone");
  }

  cleared(): void {
    throw new Error("cleared");
  }
}

const nameOf = (words: Uint32Array, block: number): string => `${words[2 * block]}.${words[2 * block + 1]}`;

function feedOf(liveBlocks: number, seed = 1): SyntheticFeed {
  return new SyntheticFeed({ random: createSeededRandom(seed), seed, liveBlocks });
}

describe.each([68, 100, 300, 2_048])("an engine of %i blocks", (liveBlocks) => {
  test.each([1, 2, 3])("removes only what it holds and stores only what it does not, seed %i", (seed) => {
    const feed = feedOf(liveBlocks, seed);
    const engine = new NaiveEngine();
    for (let message = 0; message < 2_000; message++) {
      const before = engine.stores + engine.removals;
      const ops = feed.step(engine);
      expect(engine.stores + engine.removals - before).toBe(ops);
      expect(engine.held.size).toBe(feed.blocks);
      expect(feed.blocks).toBeLessThanOrEqual(liveBlocks);
    }
    expect(engine.mostStored).toBeLessThanOrEqual(maxStoredPerMessage);
    expect(feed.isFull).toBe(true);
  });
});

test("once full, as much goes as comes", () => {
  const feed = feedOf(1_000);
  const engine = new NaiveEngine();
  while (!feed.isFull) feed.step(engine);
  for (let message = 0; message < 50; message++) feed.step(engine);
  const { stores, removals } = engine;
  for (let message = 0; message < 3_000; message++) feed.step(engine);
  expect(Math.abs(engine.stores - stores - (engine.removals - removals))).toBeLessThanOrEqual(maxStoredPerMessage);
  expect(engine.removals - removals).toBeGreaterThan(20_000);
});

test("the oldest chains go first, and of each the deepest block", () => {
  const feed = feedOf(30_000);
  const engine = new NaiveEngine();
  while (!feed.isFull) feed.step(engine);
  while (feed.step(engine) > 0 && engine.removals === 0) {}
  // A block that was stored in the second half of the time is not among the first to go.
  const late = new Set(engine.order.slice(engine.order.length / 2));
  const gone = engine.order.filter((name) => !engine.held.has(name));
  expect(gone.length).toBeGreaterThan(0);
  expect(gone.filter((name) => late.has(name))).toEqual([]);
});

test("tells everything that it holds onto nothing", () => {
  const feed = feedOf(3_000);
  const engine = new NaiveEngine();
  for (let message = 0; message < 1_500; message++) feed.step(engine);
  const anew = new NaiveEngine();
  feed.tellAll(anew);
  expect([...anew.held].sort()).toEqual([...engine.held].sort());
});

test("an empty engine tells nothing", () => {
  const engine = new NaiveEngine();
  feedOf(68).tellAll(engine);
  expect(engine.held.size).toBe(0);
});

test("is the same for the same seed, and shares no block with another one", () => {
  const [one, same, other] = [7, 7, 8].map((seed) => {
    const feed = feedOf(2_000, seed);
    const engine = new NaiveEngine();
    for (let message = 0; message < 500; message++) feed.step(engine);
    return engine.held;
  });
  expect([...one!]).toEqual([...same!]);
  expect([...one!].filter((name) => other!.has(name))).toEqual([]);
});

test("messages are numbered from 0, and marked by what they are", () => {
  const feed = feedOf(68, 5);
  const marks = Array.from({ length: 3 }, (_, at) => feed.mark(1_000 + at));
  expect(marks.map(({ sequence }) => sequence)).toEqual([0, 1, 2]);
  expect(marks.map(({ timestampUs }) => timestampUs)).toEqual([1_000, 1_001, 1_002]);
  expect(new Set(marks.map(({ checksum }) => checksum)).size).toBe(3);
  expect(feedOf(68, 6).mark(1_000).checksum).not.toBe(marks[0]!.checksum);
});

test("less than one message is refused as a size", () => {
  expect(() => feedOf(maxStoredPerMessage)).not.toThrow();
  expect(() => feedOf(maxStoredPerMessage - 1)).toThrow(RangeError);
});

test("bits are mixed one to one, to 32 bits without a sign", () => {
  const seen = new Set<number>();
  for (let value = 0; value < 50_000; value++) {
    const mixed = mixWord(value);
    expect(mixed >>> 0).toBe(mixed);
    seen.add(mixed);
  }
  expect(seen.size).toBe(50_000);
});

test("texts have bits of their own", () => {
  const texts = Array.from({ length: 5_000 }, (_, at) => `engine-${at}/0`);
  expect(new Set(texts.map(textBits)).size).toBeGreaterThan(4_998);
  expect(textBits("engine-1/0")).toBe(textBits("engine-1/0"));
  expect(textBits("ab")).not.toBe(textBits("ba"));
});
