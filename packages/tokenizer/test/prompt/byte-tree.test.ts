import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ByteKey, ByteTree, maxTreeDepth, nodeBytes } from "../../src/prompt/byte-tree.ts";

/** A text in several stretches, each with other bytes around it. */
function keyOf(text: string, cuts: readonly number[] = []): ByteKey {
  const ends = [...new Set([...cuts.map((cut) => cut % (text.length + 1)), text.length])].sort(
    (one, other) => one - other,
  );
  let start = 0;
  return new ByteKey(
    ends.map((end) => {
      const part = text.slice(start, end);
      start = end;
      return { bytes: Buffer.from(`<<${part}>`, "latin1"), start: 2, end: 2 + part.length };
    }),
  );
}

/** Texts that have much in common. */
const texts = fc.string({ unit: fc.constantFrom("a", "b"), maxLength: 12 });
const cuts = fc.array(fc.nat(20), { maxLength: 4 });
const any = (): boolean => true;
/** More than a test keeps. */
const enough = 1_000_000;

describe("a byte tree", () => {
  test("finds the longest key that another one begins with, and how much is shared", () => {
    const step = fc.record({ text: texts, cuts, length: fc.nat(12), isSet: fc.boolean() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const tree = new ByteTree<number>(enough);
        const kept = new Map<string, number>();
        for (const [index, { text, cuts: at, length, isSet }] of steps.entries()) {
          const key = keyOf(text, at);
          const first = text.slice(0, length);
          if (index % 3 > 0) {
            const begins = [...kept.keys()].filter((other) => text.startsWith(other));
            const isWanted = (value: number): boolean => index % 2 === 0 || value % 2 === 0;
            const wanted = begins.filter((other) => isWanted(kept.get(other)!));
            const longest = wanted.sort((one, other) => other.length - one.length)[0];
            const inCommon = (other: string): number => {
              let same = 0;
              while (same < Math.min(other.length, text.length) && other[same] === text[same]) same++;
              return same;
            };
            const shared = Math.max(0, ...[...kept.keys()].map(inCommon));
            const value = longest === undefined ? undefined : kept.get(longest);
            expect(tree.find(key, isWanted)).toEqual({ value, shared });
          }
          if (!isSet || first === "") continue;
          tree.set(key, first.length, index, 0);
          kept.set(first, index);
        }
      }),
    );
  });

  test("takes bytes as they are, wherever they lie", () => {
    const tree = new ByteTree<string>(enough);
    const bytes = Buffer.from([0, 255, 0x7b, 0, 1, 2, 3]);
    const key = new ByteKey([
      { bytes, start: 0, end: 3 },
      { bytes, start: 3, end: 3 },
      { bytes, start: 4, end: 7 },
    ]);
    tree.set(key, 5, "value", 0);
    bytes.fill(9, 3, 4);
    expect(tree.find(new ByteKey([{ bytes: Buffer.from([0, 255, 0x7b, 1, 2]), start: 0, end: 5 }]), any).value).toBe(
      "value",
    );
    bytes.fill(9);
    expect(tree.find(key, any)).toEqual({ value: undefined, shared: 0 });
  });

  test("never holds more than its bound: what was used longest ago goes first, and the last key is still kept", () => {
    const bytesOfEach = nodeBytes + 10;
    const tree = new ByteTree<number>(4 * bytesOfEach);
    const texts10 = Array.from({ length: 9 }, (_, index) => String(index).repeat(10));
    for (const [index, text] of texts10.entries()) {
      tree.set(keyOf(text), text.length, index, 0);
      tree.find(keyOf(texts10[0]!), any);
      expect(tree.sizeBytes).toBeLessThanOrEqual(4 * bytesOfEach);
    }
    expect(texts10.map((text) => tree.find(keyOf(text), any).value)).toEqual([
      ...[0, undefined, undefined, undefined, undefined, undefined],
      ...[6, 7, 8],
    ]);
  });

  test("keeps no value beyond its bound, and nothing goes because of one", () => {
    const tree = new ByteTree<string>(5_000);
    tree.set(keyOf("known"), 5, "known", 0);
    tree.set(keyOf("large"), 5, "large", 5_001);
    tree.set(keyOf("x".repeat(5_001)), 5_001, "long", 0);
    expect(["known", "large"].map((text) => tree.find(keyOf(text), any).value)).toEqual(["known", undefined]);
  });

  test("lets go of what is behind before what is before it, and of ways to nothing", () => {
    const tree = new ByteTree<number>(4 * (nodeBytes + 10));
    const long = "abcdefghij".repeat(3);
    tree.set(keyOf(long), 10, 1, 0);
    tree.set(keyOf(long), 20, 2, 0);
    tree.set(keyOf(long), 30, 3, 0);
    tree.set(keyOf("k".repeat(10)), 10, 4, 0);
    tree.set(keyOf("l".repeat(10)), 10, 5, 0);
    expect(tree.find(keyOf(long), any)).toEqual({ value: 2, shared: 20 });
    for (const first of "mnop") tree.set(keyOf(first.repeat(10)), 10, 6, 0);
    expect(tree.find(keyOf(long), any)).toEqual({ value: undefined, shared: 0 });
    expect(tree.sizeBytes).toBe(4 * (nodeBytes + 10));
  });

  test("counts what it takes: a value in the place of another, and an edge that is divided", () => {
    const tree = new ByteTree<number>(enough);
    tree.set(keyOf("abcdef"), 6, 1, 100);
    expect(tree.sizeBytes).toBe(nodeBytes + 6 + 100);
    tree.set(keyOf("abcdef"), 6, 1, 40);
    expect(tree.sizeBytes).toBe(nodeBytes + 6 + 40);
    tree.set(keyOf("abcxyz"), 6, 1, 0);
    expect(tree.sizeBytes).toBe(3 * nodeBytes + 9 + 40);
  });

  test("grows no deeper than its bound, and finds what lies before that", () => {
    const tree = new ByteTree<number>(100_000_000);
    const text = "ab".repeat(maxTreeDepth);
    const key = keyOf(text);
    for (let length = 1; length <= maxTreeDepth + 8; length++) tree.set(key, length, length, 0);
    const deepest = tree.find(key, any).value!;
    expect(deepest).toBeLessThan(maxTreeDepth);
    expect(deepest).toBeGreaterThan(maxTreeDepth - 4);
    // What is divided later at its beginning lies deeper then, and is no longer found behind the bound.
    tree.set(keyOf("b"), 1, 0, 0);
    for (let length = 1; length < 9; length++) tree.set(keyOf(`${text.slice(0, length)}c`), length + 1, 0, 0);
    expect(tree.find(key, any).value).toBe(deepest);
    expect(tree.find(keyOf("b"), any).value).toBe(0);
  });
});
