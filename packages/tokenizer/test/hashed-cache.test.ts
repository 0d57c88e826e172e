import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createHashedCache, type TextKey } from "../src/prompt/hashed-cache.ts";

const key = (low: number, high = 0, length = 1): TextKey => ({ low, high, length });
/** What an entry takes besides its value. */
const entryBytes = 160;

test("an entry is found by hash and length, and only when both agree", () => {
  const cache = createHashedCache<string>(10_000);
  cache.set(key(1, 2, 3), "value", 10);
  expect(cache.get(key(1, 2, 3))).toBe("value");
  expect(cache.get(key(1, 2, 4))).toBeUndefined();
  expect(cache.get(key(2, 2, 3))).toBeUndefined();
  // Bits of the hash above the 53 that the index has.
  expect(cache.get(key(1, 2 + 2 ** 31, 3))).toBeUndefined();
  expect(cache.get(key(0xffff_ffff, 0xffff_ffff))).toBeUndefined();
});

test("keys that share 53 bits replace each other, and neither is taken for the other", () => {
  const cache = createHashedCache<string>(10_000);
  cache.set(key(1, 5), "first", 10);
  cache.set(key(1, 5 + 2 ** 31), "second", 10);
  expect(cache.get(key(1, 5))).toBeUndefined();
  expect(cache.get(key(1, 5 + 2 ** 31))).toBe("second");
  expect(cache.sizeBytes).toBe(10 + entryBytes);
});

test("a value that exactly fits is kept; one byte more is not, and does not push others out", () => {
  const cache = createHashedCache<string>(1_000);
  cache.set(key(1), "small", 10);
  cache.set(key(2), "too large", 1_001 - entryBytes);
  expect(cache.get(key(2))).toBeUndefined();
  expect(cache.get(key(1))).toBe("small");
  cache.set(key(3), "all", 1_000 - entryBytes);
  expect(cache.get(key(3))).toBe("all");
  expect(cache.get(key(1))).toBeUndefined();
  expect([cache.sizeBytes, cache.entries]).toEqual([1_000, 1]);
});

test("one entry past the bound drops what was not used for longest", () => {
  const cache = createHashedCache<number>(3 * (entryBytes + 40));
  for (const index of [1, 2, 3]) cache.set(key(index), index, 40);
  cache.get(key(1));
  cache.set(key(4), 4, 40);
  expect([1, 2, 3, 4].map((index) => cache.get(key(index)))).toEqual([1, undefined, 3, 4]);
});

test("a new value for a key replaces the old one and its size", () => {
  const cache = createHashedCache<string>(1_000);
  cache.set(key(1), "a", 500);
  cache.set(key(1), "b", 20);
  expect(cache.get(key(1))).toBe("b");
  expect([cache.sizeBytes, cache.entries]).toEqual([20 + entryBytes, 1]);
});

test("under random use it equals a plain list of what was used last", () => {
  const maxBytes = 2_000;
  for (let seed = 1; seed <= 20; seed++) {
    const random = createSeededRandom(seed);
    const cache = createHashedCache<number>(maxBytes);
    let model: { index: number; value: number; bytes: number }[] = [];
    for (let step = 0; step < 400; step++) {
      const index = random.integer(20);
      const entry = model.find((one) => one.index === index);
      model = model.filter((one) => one !== entry);
      if (random.integer(2) === 0) {
        const bytes = random.integer(400);
        cache.set(key(index), step, bytes);
        model.push({ index, value: step, bytes: bytes + entryBytes });
        while (model.reduce((sum, one) => sum + one.bytes, 0) > maxBytes) model.shift();
      } else {
        expect(cache.get(key(index)), `seed ${seed}, step ${step}`).toBe(entry?.value);
        if (entry) model.push(entry);
      }
      expect(cache.sizeBytes).toBe(model.reduce((sum, one) => sum + one.bytes, 0));
      expect(cache.entries).toBe(model.length);
    }
  }
});

test("what is set again and again costs no more than something new, however much there is beside it", () => {
  const cache = createHashedCache<string>(100_000_000);
  const random = createSeededRandom(7);
  const keys = Array.from({ length: 60_000 }, () => key(random.integer(2 ** 32), random.integer(2 ** 32)));
  const processorUsOf = (sets: readonly TextKey[]): number => {
    const before = process.threadCpuUsage();
    for (const each of sets) cache.set(each, "value", 10);
    const { user, system } = process.threadCpuUsage(before);
    return user + system;
  };
  processorUsOf(keys.slice(0, 30_000));
  const newUs = processorUsOf(keys.slice(30_000));
  const againUs = processorUsOf(new Array<TextKey>(30_000).fill(keys[0]!));
  expect(againUs).toBeLessThan(4 * newUs);
  expect(cache.entries).toBe(60_000);
});
