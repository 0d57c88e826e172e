import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { type BlockHasher, createBlockHasher, maxBlockBytes } from "../../src/hash/block-hasher.ts";
import { fromInteger, naiveBlocks, naiveMix, wordsToIntegers } from "./naive-hash.ts";

const random = createSeededRandom(20);
const hashers = [createBlockHasher({ kernel: "wasm" }), createBlockHasher({ kernel: "js" })];
const parent = { low: 0x89abcdef, high: 0xf1234567 };
const parentInteger = 0xf123456789abcdefn;

const randomTokens = (count: number): Uint32Array =>
  Uint32Array.from({ length: count }, () => random.integer(random.integer(8) === 0 ? 2 ** 32 : 200_000));
const randomBytes = (count: number): Uint8Array => Uint8Array.from({ length: count }, () => random.integer(256));
const bytesOf = (tokens: Uint32Array): Uint8Array => new Uint8Array(tokens.slice().buffer);
const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const room = (blocks: number) => ({
  parent,
  chain: new Uint32Array(2 * blocks),
  contents: new Uint32Array(2 * blocks),
});

test("the default is the WebAssembly kernel", () => {
  expect(createBlockHasher().kernel).toBe("wasm");
  expect(hashers.map(({ kernel }) => kernel)).toEqual(["wasm", "js"]);
});

const integersOf = ({ chain, contents }: { chain: Uint32Array; contents: Uint32Array }) => ({
  contents: wordsToIntegers(contents),
  chain: wordsToIntegers(chain),
});

/** Hashes into arrays of just the right size and gives integers. */
function tokensHashed(hasher: BlockHasher, tokens: Uint32Array, blockSize: number) {
  const target = room(Math.floor(tokens.length / blockSize));
  expect(hasher.hashTokens({ tokens, blockSize, ...target })).toBe(target.chain.length / 2);
  return integersOf(target);
}

function bytesHashed(hasher: BlockHasher, bytes: Uint8Array, blockBytes: number) {
  const target = room(Math.floor(bytes.length / blockBytes));
  expect(hasher.hashBytes({ bytes, blockBytes, ...target })).toBe(target.chain.length / 2);
  return integersOf(target);
}

function textHashed(hasher: BlockHasher, text: string, blockBytes: number) {
  const target = room(Math.floor(encode(text).length / blockBytes));
  expect(hasher.hashText({ text, blockBytes, ...target })).toBe(target.chain.length / 2);
  return integersOf(target);
}

describe.each(hashers)("$kernel kernel: agreement with the definition", (hasher) => {
  test("tokens: every block size from 1 to 200 agrees with the definition, and so do larger ones", () => {
    for (let blockSize = 1; blockSize <= 600; blockSize += blockSize < 200 ? 1 : 13) {
      const tokens = randomTokens(2 * blockSize + random.integer(blockSize));
      expect(tokensHashed(hasher, tokens, blockSize)).toEqual(
        naiveBlocks(bytesOf(tokens), 4 * blockSize, parentInteger),
      );
    }
  });

  test("bytes: every block size from 1 to 200 agrees with the definition", () => {
    for (let blockBytes = 1; blockBytes <= 200; blockBytes++) {
      const bytes = randomBytes(3 * blockBytes + random.integer(blockBytes));
      expect(bytesHashed(hasher, bytes, blockBytes)).toEqual(naiveBlocks(bytes, blockBytes, parentInteger));
    }
  });

  test.each([
    { blockSize: 1, tokens: 20_000 },
    { blockSize: 16, tokens: 16_385 },
    { blockSize: 17, tokens: 33_000 },
    { blockSize: 4_096, tokens: 20_480 },
  ])("tokens: $tokens tokens in blocks of $blockSize pass through the memory in slices", ({ blockSize, tokens }) => {
    const given = randomTokens(tokens);
    expect(tokensHashed(hasher, given, blockSize)).toEqual(naiveBlocks(bytesOf(given), 4 * blockSize, parentInteger));
  });

  test.each([5, 64, 16_384])("bytes: 70,000 bytes in blocks of %i pass through in slices", (blockBytes) => {
    const bytes = randomBytes(70_000);
    expect(bytesHashed(hasher, bytes, blockBytes)).toEqual(naiveBlocks(bytes, blockBytes, parentInteger));
  });

  test.each([
    { name: "ASCII", unit: "The quick brown fox. " },
    { name: "two bytes", unit: "déjà vu à la façade " },
    { name: "three bytes", unit: "漢字かな交じり文。x" },
    { name: "four bytes", unit: "a😀b🏴‍☠️" },
    { name: "lone surrogates", unit: "a\ud800b\udc00\udc00c\ud83d" },
  ])("text: $name of any length hashes like its UTF-8", ({ unit }) => {
    for (const length of [0, 1, 64, 65, 1_000, 70_000]) {
      for (const blockBytes of [64, 7]) {
        if (blockBytes === 7 && length > 50_000) continue;
        const text = unit.repeat(Math.ceil(length / unit.length)).slice(0, length);
        expect(textHashed(hasher, text, blockBytes)).toEqual(naiveBlocks(encode(text), blockBytes, parentInteger));
      }
    }
  });

  test("text: characters may straddle the end of a slice at any of their bytes", () => {
    for (const straddler of ["é", "漢", "😀", "\ud83d", "\ude00"]) {
      for (let before = 65_531; before <= 65_537; before++) {
        const text = `${"x".repeat(before)}${straddler}${"y".repeat(100)}`;
        const tail = textHashed(hasher, text, 64).contents.slice(-4);
        const bytes = encode(text);
        const from = 64 * (Math.floor(bytes.length / 64) - 4);
        expect(tail).toEqual(naiveBlocks(bytes.subarray(from), 64, parentInteger).contents);
      }
    }
  });
});

describe.each(hashers)("$kernel kernel: ranges, room and bounds", (hasher) => {
  test("a range is hashed like a copy of it, wherever it starts", () => {
    const tokens = randomTokens(500);
    const bytes = randomBytes(500);
    for (let start = 0; start < 40; start++) {
      for (const end of [start, start + 15, start + 16, start + 100, 500]) {
        const length = Math.floor((end - start) / 16);
        const [ofRange, ofCopy] = [room(length), room(length)];
        expect(hasher.hashTokens({ tokens, start, end, blockSize: 16, ...ofRange })).toBe(length);
        hasher.hashTokens({ tokens: tokens.slice(start, end), blockSize: 16, ...ofCopy });
        expect(ofRange).toEqual(ofCopy);
        const [bytesOfRange, bytesOfCopy] = [room(length), room(length)];
        expect(hasher.hashBytes({ bytes, start, end, blockBytes: 16, ...bytesOfRange })).toBe(length);
        hasher.hashBytes({ bytes: bytes.slice(start, end), blockBytes: 16, ...bytesOfCopy });
        expect(bytesOfRange).toEqual(bytesOfCopy);
      }
    }
  });

  test("the room of the chain bounds the work", () => {
    const tokens = randomTokens(20_000);
    const whole = tokensHashed(hasher, tokens, 2);
    const text = "0123456789".repeat(20_000);
    const wholeText = textHashed(hasher, text, 8);
    for (const blocks of [0, 1, 4_096, 4_097, 9_999]) {
      const target = room(blocks);
      expect(hasher.hashTokens({ tokens, blockSize: 2, ...target })).toBe(blocks);
      expect(wordsToIntegers(target.chain)).toEqual(whole.chain.slice(0, blocks));
      expect(wordsToIntegers(target.contents)).toEqual(whole.contents.slice(0, blocks));
      expect(hasher.hashBytes({ bytes: bytesOf(tokens), blockBytes: 8, ...target })).toBe(blocks);
      expect(wordsToIntegers(target.chain)).toEqual(whole.chain.slice(0, blocks));
      expect(hasher.hashText({ text, blockBytes: 8, ...target })).toBe(blocks);
      expect(wordsToIntegers(target.chain)).toEqual(wholeText.chain.slice(0, blocks));
    }
  });

  test("words beyond the last block stay as they were", () => {
    const chain = new Uint32Array(12).fill(7);
    const contents = new Uint32Array(12).fill(8);
    hasher.hashTokens({ tokens: randomTokens(65), blockSize: 16, parent, chain, contents });
    expect([...chain.subarray(8)]).toEqual([7, 7, 7, 7]);
    expect([...contents.subarray(8)]).toEqual([8, 8, 8, 8]);
  });

  test("contents are optional, and mixing them afterwards gives the same chain", () => {
    const tokens = randomTokens(80_000);
    const { chain, contents } = room(5_000);
    hasher.hashTokens({ tokens, blockSize: 16, parent, chain, contents });
    const alone = new Uint32Array(10_000);
    hasher.hashTokens({ tokens, blockSize: 16, parent, chain: alone });
    expect(alone).toEqual(chain);
    for (const blocks of [0, 1, 4_096, 4_097, 5_000]) {
      const mixed = new Uint32Array(10_000);
      expect(hasher.mixContents({ parent, contents, blocks, chain: mixed })).toBe(blocks);
      expect(mixed.subarray(0, 2 * blocks)).toEqual(chain.subarray(0, 2 * blocks));
      expect(mixed.subarray(2 * blocks).every((word) => word === 0)).toBe(true);
    }
    const other = new Uint32Array(2);
    hasher.mixContents({ parent: fromInteger(5n), contents, blocks: 2, chain: other });
    expect(wordsToIntegers(other)).toEqual([naiveMix(5n, wordsToIntegers(contents.subarray(0, 2))[0] ?? 0n)]);
  });

  test("sizes and ranges out of bounds are refused, and so are arrays that are too short", () => {
    const tokens = new Uint32Array(32);
    const target = room(2);
    for (const blockSize of [0, -1, 1.5, Number.NaN, 4_097]) {
      expect(() => hasher.hashTokens({ tokens, blockSize, ...target })).toThrow(/^blockSize must be .* 1 to 4096/);
    }
    for (const blockBytes of [0, 0.5, maxBlockBytes + 1]) {
      const message = /^blockBytes must be .* 1 to 16384/;
      expect(() => hasher.hashBytes({ bytes: new Uint8Array(9), blockBytes, ...target })).toThrow(message);
      expect(() => hasher.hashText({ text: "x", blockBytes, ...target })).toThrow(message);
    }
    for (const [start, end] of [
      [-1, 5],
      [5, 4],
      [0, 33],
      [0.5, 4],
      [0, Number.NaN],
    ] as const) {
      expect(() => hasher.hashTokens({ tokens, start, end, blockSize: 1, ...target })).toThrow(RangeError);
      expect(() =>
        hasher.hashBytes({ bytes: bytesOf(tokens).subarray(96), start, end, blockBytes: 1, ...target }),
      ).toThrow(RangeError);
    }
    const short = { ...target, contents: new Uint32Array(3) };
    expect(() => hasher.hashTokens({ tokens, blockSize: 16, ...short })).toThrow("contents has 3 words, chain 4");
    expect(() => hasher.mixContents({ ...short, blocks: 2 })).toThrow(/^blocks must be a whole number up to 1/);
    expect(() => hasher.mixContents({ ...target, blocks: -1 })).toThrow(RangeError);
  });
});
