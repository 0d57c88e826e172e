import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { HoleSet } from "../../src/table/holder-ids.ts";
import { randomHashes } from "../random-chains.ts";

const maxHoles = 10_000;

test("holes come and go as in a map, and the shallowest on a chain is found", () => {
  const random = createSeededRandom(1);
  const chain = randomHashes(100, random);
  const others = randomHashes(800, random);
  const holes = new HoleSet();
  const model = new Map<string, number>();
  const keyOf = (words: Uint32Array, at: number) => `${words[at * 2]}:${words[at * 2 + 1]}`;
  const chainKeys = Array.from({ length: 100 }, (_, at) => keyOf(chain, at));
  for (let operation = 0; operation < 12_000; operation++) {
    const words = random.integer(20) === 0 ? chain : others;
    const at = random.integer(words.length / 2);
    const [low, high] = [words[at * 2]!, words[at * 2 + 1]!];
    const isGrowing = operation % 4_000 < 2_000;
    if (random.integer(10) < (isGrowing ? 7 : 2)) {
      expect(holes.add(low, high, { depth: at, maxHoles })).toBe(true);
      model.set(keyOf(words, at), at);
    } else expect(holes.delete(low, high)).toBe(model.delete(keyOf(words, at)));
    expect(holes.count).toBe(model.size);
    const blocks = random.integer(101);
    const shallowest = chainKeys.slice(0, blocks).findIndex((key) => model.has(key));
    expect(holes.shallowestOn(chain, blocks)).toBe(shallowest);
  }
  expect(holes.list()).toHaveLength(model.size * 3);
});

test("memory is given back when holes go", () => {
  const holes = new HoleSet();
  const hashes = randomHashes(5_000, createSeededRandom(2));
  const empty = holes.byteLength;
  for (let at = 0; at < 5_000; at++) holes.add(hashes[at * 2]!, hashes[at * 2 + 1]!, { depth: at, maxHoles });
  expect(holes.byteLength).toBeGreaterThan(empty * 100);
  for (let at = 0; at < 5_000; at++) holes.delete(hashes[at * 2]!, hashes[at * 2 + 1]!);
  expect(holes.byteLength).toBe(empty);
});

test("one hole beyond the bound is refused, but not one that is known", () => {
  const holes = new HoleSet();
  expect(holes.add(1, 1, { depth: 1, maxHoles: 2 })).toBe(true);
  expect(holes.add(2, 1, { depth: 2, maxHoles: 2 })).toBe(true);
  expect(holes.add(3, 1, { depth: 3, maxHoles: 2 })).toBe(false);
  expect(holes.add(2, 1, { depth: 2, maxHoles: 2 })).toBe(true);
  expect(holes.count).toBe(2);
});
