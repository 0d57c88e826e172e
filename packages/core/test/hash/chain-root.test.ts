import { expect, test } from "vitest";
import { createBlockHasher } from "../../src/hash/block-hasher.ts";
import { type ChainRootParts, chainRoot } from "../../src/hash/text-hasher.ts";
import { naiveDigest, toInteger } from "./naive-hash.ts";

const parts: ChainRootParts = { seed: "orchard", blockSize: 16, unit: "tokens" };
const full: ChainRootParts = {
  ...parts,
  model: "meta-llama/Llama-3.1-8B-Instruct",
  adapter: "sql-lora",
  cacheSalt: "tenant 17",
};

test("roots and chains are the same in every process and on every machine", () => {
  expect(chainRoot(parts)).toEqual({ low: 0x9b77723f, high: 0xd762ce35 });
  expect(chainRoot(full)).toEqual({ low: 0x53afb90c, high: 0x52293902 });
  const chain = new Uint32Array(4);
  const tokens = Uint32Array.from({ length: 32 }, (_, index) => 3 * index);
  createBlockHasher().hashTokens({ tokens, blockSize: 16, parent: chainRoot(full), chain });
  expect([...chain]).toEqual([0x98ab99c0, 0xf97091ce, 0xf7834020, 0xafa35b67]);
});

test("a root is the hash of its parts, each with its length in front", () => {
  const text = "espalier chain 1 tokens 16 7:orchard32:meta-llama/Llama-3.1-8B-Instruct8:sql-lora9:tenant 17";
  expect(toInteger(chainRoot(full))).toBe(naiveDigest(new TextEncoder().encode(text)));
});

test("any part makes another root, and absent is not empty", () => {
  const variants: readonly ChainRootParts[] = [
    parts,
    full,
    { ...parts, seed: "orchard2" },
    { ...parts, seed: "" },
    { ...parts, blockSize: 32 },
    { ...parts, unit: "bytes" },
    { ...parts, model: "" },
    { ...parts, adapter: "" },
    { ...parts, cacheSalt: "" },
    { ...parts, model: "", adapter: "" },
    { ...parts, model: "x" },
    { ...parts, adapter: "x" },
    { ...parts, cacheSalt: "x" },
    { ...parts, model: "-" },
    { ...parts, model: "--" },
  ];
  expect(new Set(variants.map((variant) => toInteger(chainRoot(variant)))).size).toBe(variants.length);
  expect(chainRoot({ ...parts, model: undefined })).toEqual(chainRoot(parts));
});

test("parts cannot run into each other", () => {
  const pairs: readonly (readonly [Partial<ChainRootParts>, Partial<ChainRootParts>])[] = [
    [
      { model: "ab", adapter: "c" },
      { model: "a", adapter: "bc" },
    ],
    [{ model: "a1:b" }, { model: "a", adapter: "b" }],
    [{ model: "a-" }, { model: "a" }],
    [{ seed: "orchard-" }, { seed: "orchard" }],
    [{ adapter: "é" }, { adapter: "e\u0301" }],
    [
      { model: "a", cacheSalt: "b" },
      { adapter: "a", cacheSalt: "b" },
    ],
  ];
  for (const [one, other] of pairs) {
    expect(chainRoot({ ...parts, ...one })).not.toEqual(chainRoot({ ...parts, ...other }));
  }
});

test.each([0, -16, 1.5, Number.NaN])("a block size of %d is refused", (blockSize) => {
  expect(() => chainRoot({ ...parts, blockSize })).toThrow(RangeError);
});
