import { hashString } from "@espalier/policies";
import { expect, test } from "vitest";
import { chiSquareExcess } from "./helpers.ts";

// Known answers of MurmurHash3 x86_32; the bytes 21 43 65 87 are the code units 4321 and 8765.
test.each([
  ["", 0, 0],
  ["", 1, 0x514e28b7],
  ["", 0xffffffff, 0x81f16f39],
  ["\u4321\u8765", 0, 0xf55b516b],
  ["\u4321\u8765", 0x5082edee, 0x2362f9de],
  ["\u4321", 0, 0xa0f7b07a],
  ["\uffff\uffff", 0, 0x76293b50],
])("hash of %j under seed %i is the published one", (text, seed, hash) => {
  expect(hashString(text, seed)).toBe(hash);
});

const families: readonly (readonly [string, (i: number) => string])[] = [
  ["counted names", (i) => `session-${i}`],
  ["UUID-like keys", (i) => `${i.toString(16).padStart(8, "0")}-0000-4000-8000-000000000000`],
  ["addresses", (i) => `http://10.0.${i >> 8}.${i & 255}:8000`],
  ["other scripts", (i) => `会话${i}`],
];

test.each(families)("%s spread evenly over 128 buckets, by high and by low bits", (_name, nameOf) => {
  const high = new Array<number>(128).fill(0);
  const low = new Array<number>(128).fill(0);
  for (let i = 0; i < 65_536; i++) {
    const hash = hashString(nameOf(i), 0);
    high[hash >>> 25]! += 1;
    low[hash & 127]! += 1;
  }
  const expected = new Array<number>(128).fill(512);
  expect(chiSquareExcess(high, expected)).toBeLessThan(1);
  expect(chiSquareExcess(low, expected)).toBeLessThan(1);
});

test("one flipped bit of the text or another seed changes half the bits", () => {
  let flipped = 0;
  for (let i = 0; i < 1_000; i++) {
    flipped += ones(hashString(`key-${i}`, 7) ^ hashString(`kex-${i}`, 7));
    flipped += ones(hashString(`key-${i}`, 7) ^ hashString(`key-${i}`, 8));
  }
  expect(Math.abs(flipped / 2_000 - 16)).toBeLessThan(0.3);
});

function ones(bits: number): number {
  let count = 0;
  for (let left = bits >>> 0; left > 0; left >>>= 1) count += left & 1;
  return count;
}
