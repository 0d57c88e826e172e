import { expect, test } from "vitest";
import { fnv1a, fnv1aOf, hashText, mixWord } from "../src/index.ts";

// Known answers of FNV-1a, 32 bits, as its authors publish them.
test.each([
  ["", 0x811c9dc5],
  ["a", 0xe40c292c],
  ["foobar", 0xbf9cf968],
])("FNV-1a of %j is the published one, of a text and of bytes", (text, hash) => {
  expect(fnv1a(text)).toBe(hash);
  expect(fnv1aOf(new TextEncoder().encode(text))).toBe(hash);
  expect(fnv1aOf(Uint32Array.from(text, (letter) => letter.charCodeAt(0)))).toBe(hash);
});

test("a word counts with all of its bits, as a unit of a text does", () => {
  expect(fnv1aOf(Uint32Array.of(0x4f1a))).toBe(fnv1a("\u4f1a"));
  expect(fnv1aOf(Uint32Array.of(2 ** 31))).not.toBe(fnv1aOf(Uint32Array.of(0)));
});

// The finalizer of MurmurHash3, alone: the hash of nothing with the word as its seed.
test.each([
  [0, 0],
  [1, 0x514e28b7],
  [0xffff_ffff, 0x81f16f39],
  [-1, 0x81f16f39],
])("the finalizer of %i is the published one", (word, mixed) => {
  expect(mixWord(word)).toBe(mixed);
});

test("a seed enters the hash of a text before its first unit", () => {
  expect(hashText("router-a@7", 3)).toBe(mixWord(fnv1a("router-a@7", 3)));
  expect(hashText("", 5)).toBe(mixWord(0x811c9dc5 ^ 5));
});
