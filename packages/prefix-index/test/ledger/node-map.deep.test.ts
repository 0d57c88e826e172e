import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { NodeMap } from "../../src/ledger/node-map.ts";
import { NodeTable, nodeField } from "../../src/ledger/node-table.ts";

function setUp() {
  const table = new NodeTable(5, 100_000);
  const map = new NodeMap(table, nodeField.engine);
  const add = (low: number, high: number): number => {
    const id = table.allocate();
    table.words[id * table.stride] = low;
    table.words[id * table.stride + 1] = high;
    map.add(id);
    return id;
  };
  const remove = (id: number): void => {
    map.remove(id);
    table.release(id);
  };
  return { table, map, add, remove };
}

// Look-ups of absent keys did not end: with deletions in between, nodes go past every bucket of a segment, if never past
// all at the same time, so that no bucket says "none went past here".
test.each([40, 400, 4_000, 40_000])("as a Map, around %i keys, also after long turnover", (size) => {
  const { map, add, remove } = setUp();
  const random = createSeededRandom(size);
  const ids = new Map<number, number>();
  const keys: number[] = [];
  for (let step = 0; step < 20 * size; step++) {
    if (keys.length < size * (0.5 + random.float())) {
      const key = random.integer(2 ** 32);
      if (ids.has(key)) continue;
      ids.set(key, add(key, ~key >>> 0));
      keys.push(key);
    } else {
      const place = random.integer(keys.length);
      const key = keys[place]!;
      keys[place] = keys.at(-1)!;
      keys.pop();
      remove(ids.get(key)!);
      ids.delete(key);
      if (map.find(key, ~key >>> 0) !== 0) throw new Error(`found after removal in step ${step}`);
    }
    const other = random.integer(2 ** 32);
    if (map.find(other, other) !== 0) throw new Error(`found what was never there in step ${step}`);
  }
  for (const [key, id] of ids) if (map.find(key, ~key >>> 0) !== id) throw new Error(`${key} was not found`);
  expect(map.count).toBe(ids.size);
  for (const id of ids.values()) remove(id);
  expect(map.byteLength).toBe(0);
});

test("numbered keys are spread as well as random ones", () => {
  const { map, add } = setUp();
  for (let key = 0; key < 60_000; key++) add(key, 0);
  expect(map.byteLength / map.count).toBeLessThan(7);
  for (let key = 0; key < 60_000; key++) if (map.find(key, 0) === 0) throw new Error(`${key} was not found`);
});

test("warming up changes nothing", () => {
  const { map, add } = setUp();
  const keys = new Uint32Array(256);
  for (let key = 0; key < 100; key++) {
    keys[2 * key] = key;
    if (key % 2 === 0) add(key, 0);
  }
  map.warm(keys, 3, 128);
  for (let key = 0; key < 100; key++) expect(map.find(key, 0) !== 0).toBe(key % 2 === 0);
});

test("released numbers are used again, and a table has a bound", () => {
  const table = new NodeTable(5, 300);
  const ids = Array.from({ length: 300 }, () => table.allocate());
  expect(new Set(ids).size).toBe(300);
  expect(table.hasRoomFor(1)).toBe(false);
  table.words[ids[7]! * 5 + nodeField.chain] = 9;
  table.release(ids[7]!);
  expect([table.isLive(ids[7]!), table.isLive(ids[8]!)]).toEqual([false, true]);
  expect(table.allocate()).toBe(ids[7]);
  expect([...table.words.subarray(ids[7]! * 5, ids[7]! * 5 + 5)]).toEqual([0, 0, 0, 0, 0]);
  expect(() => new NodeTable(5, 0xff_ffff)).toThrow(RangeError);
});
