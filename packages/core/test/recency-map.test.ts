import { describe, expect, test } from "vitest";
import { createSeededRandom, RecencyMap } from "../src/index.ts";

/** The plainest map with such an order: a list that is searched, the oldest first. */
class NaiveRecency {
  entries: [key: number, value: number][] = [];

  get(key: number): number | undefined {
    return this.entries.find(([known]) => known === key)?.[1];
  }

  use(key: number): number | undefined {
    const value = this.get(key);
    if (value !== undefined) this.set(key, value);
    return value;
  }

  set(key: number, value: number): void {
    this.delete(key);
    this.entries.push([key, value]);
  }

  delete(key: number): boolean {
    const before = this.entries.length;
    this.entries = this.entries.filter(([known]) => known !== key);
    return this.entries.length < before;
  }
}

describe("a map in the order of use", () => {
  test.each([1, 2, 3, 4, 5])("is what a searched list is, whatever is done to it (seed %i)", (seed) => {
    const random = createSeededRandom(seed);
    const map = new RecencyMap<number, number>();
    const naive = new NaiveRecency();
    for (let step = 0; step < 3_000; step++) {
      const key = random.integer(24);
      switch (random.integer(8)) {
        case 0:
          expect(map.delete(key)).toBe(naive.delete(key));
          break;
        case 1:
          map.deleteOldest();
          naive.entries.shift();
          break;
        case 2:
          expect(map.use(key)).toBe(naive.use(key));
          break;
        case 3:
          expect(map.get(key)).toBe(naive.get(key));
          break;
        case 4:
          if (random.integer(100) > 0) break;
          map.clear();
          naive.entries = [];
          break;
        default:
          map.set(key, step);
          naive.set(key, step);
      }
      expect(map.size).toBe(naive.entries.length);
      expect(map.oldest()).toEqual(naive.entries[0]);
      expect([...map.values()]).toEqual(naive.entries.map(([, value]) => value));
    }
  });

  test("an empty one has nothing that is oldest, and nothing to take out", () => {
    const map = new RecencyMap<string, number>();
    map.deleteOldest();
    expect(map.oldest()).toBeUndefined();
    expect(map.use("absent")).toBeUndefined();
    expect([...map.values()]).toEqual([]);
  });

  test("the value in hand may be deleted while the map is walked", () => {
    const map = new RecencyMap<number, number>();
    for (let key = 0; key < 10; key++) map.set(key, key);
    for (const value of map.values()) if (value % 3 === 0) map.delete(value);
    expect([...map.values()]).toEqual([1, 2, 4, 5, 7, 8]);
    for (const value of map.values()) map.delete(value);
    expect(map.size).toBe(0);
    expect(map.oldest()).toBeUndefined();
    map.set(1, 1);
    expect([...map.values()]).toEqual([1]);
  });

  test("nothing that is undefined is lost, and keys are told apart as by a map", () => {
    const map = new RecencyMap<unknown, string | undefined>();
    map.set("1", undefined);
    map.set(1, "one");
    expect(map.size).toBe(2);
    expect(map.oldest()).toEqual(["1", undefined]);
    expect(map.use("1")).toBeUndefined();
    expect(map.oldest()).toEqual([1, "one"]);
  });
});
