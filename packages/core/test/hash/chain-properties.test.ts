import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { addContentKey, createHasherDigests } from "../../src/hash/block-digests.ts";
import { createBlockHasher } from "../../src/hash/block-hasher.ts";
import type { Hash64 } from "../../src/hash/text-hasher.ts";
import { chainRoot } from "../../src/hash/text-hasher.ts";
import { fromInteger, naiveDigest, naiveMix, wordsToIntegers } from "./naive-hash.ts";

const hasher = createBlockHasher();
const rounds = 60;

function draw(random: Random) {
  const blockSize = 1 + random.integer(random.integer(4) === 0 ? 80 : 20);
  const blocks = 1 + random.integer(40);
  const tokens = Uint32Array.from({ length: blocks * blockSize + random.integer(blockSize) }, () =>
    random.integer(2 ** 32),
  );
  const parent = { low: random.integer(2 ** 32), high: random.integer(2 ** 32) };
  return { blockSize, blocks, tokens, parent };
}

function hashed(tokens: Uint32Array, blockSize: number, parent: Hash64) {
  const blocks = Math.floor(tokens.length / blockSize);
  const [chain, contents] = [new Uint32Array(2 * blocks), new Uint32Array(2 * blocks)];
  hasher.hashTokens({ tokens, blockSize, parent, chain, contents });
  return { chain: wordsToIntegers(chain), contents: wordsToIntegers(contents), words: contents };
}

function each(seed: number, check: (random: Random, drawn: ReturnType<typeof draw>) => void): void {
  const random = createSeededRandom(seed);
  for (let round = 0; round < rounds; round++) check(random, draw(random));
}

describe("chains", () => {
  test("the chain of a prefix is a prefix of the chain", () => {
    each(1, (random, { blockSize, tokens, parent }) => {
      const { chain } = hashed(tokens, blockSize, parent);
      const cut = random.integer(tokens.length + 1);
      const prefix = hashed(tokens.subarray(0, cut), blockSize, parent);
      expect(prefix.chain).toEqual(chain.slice(0, Math.floor(cut / blockSize)));
    });
  });

  test("a token changed changes its block's digest only, and the chain from there on", () => {
    each(2, (random, { blockSize, blocks, tokens, parent }) => {
      const block = random.integer(blocks);
      const changed = tokens.slice();
      changed[block * blockSize + random.integer(blockSize)]! ^= 1 << random.integer(32);
      const [before, after] = [hashed(tokens, blockSize, parent), hashed(changed, blockSize, parent)];
      const same = (one: readonly bigint[], other: readonly bigint[]) => one.map((hash, at) => hash === other[at]);
      expect(same(before.contents, after.contents)).toEqual(before.contents.map((_, at) => at !== block));
      expect(same(before.chain, after.chain)).toEqual(before.chain.map((_, at) => at < block));
    });
  });

  test("tokens after the last full block count for nothing", () => {
    each(3, (random, { blockSize, blocks, tokens, parent }) => {
      const full = tokens.subarray(0, blocks * blockSize);
      const more = Uint32Array.from({ length: random.integer(blockSize) }, () => random.integer(2 ** 32));
      expect(hashed(Uint32Array.of(...full, ...more), blockSize, parent)).toEqual(hashed(full, blockSize, parent));
    });
  });

  test("another parent makes another chain of the same digests", () => {
    each(4, (random, { blockSize, tokens, parent }) => {
      const one = hashed(tokens, blockSize, parent);
      const bit = 1 << random.integer(32);
      const low = hashed(tokens, blockSize, { ...parent, low: (parent.low ^ bit) >>> 0 });
      const high = hashed(tokens, blockSize, { ...parent, high: (parent.high ^ bit) >>> 0 });
      for (const other of [low, high]) {
        expect(other.contents).toEqual(one.contents);
        expect(other.chain.filter((hash) => one.chain.includes(hash))).toEqual([]);
      }
    });
  });

  test("blocks that are the same have the same digest wherever they are, and never the same chain hash", () => {
    each(5, (_, { blockSize, blocks, parent }) => {
      const { contents, chain } = hashed(new Uint32Array(blockSize * blocks).fill(7), blockSize, parent);
      expect(new Set(contents).size).toBe(1);
      expect(new Set(chain).size).toBe(blocks);
    });
  });

  test("blocks in another order make another chain end", () => {
    each(6, (_, { blockSize, blocks, tokens, parent }) => {
      if (blocks < 2) return;
      const swapped = tokens.slice();
      swapped.set(tokens.subarray(0, blockSize), blockSize);
      swapped.set(tokens.subarray(blockSize, 2 * blockSize), 0);
      const end = ({ chain }: { chain: readonly bigint[] }) => chain[blocks - 1];
      expect(end(hashed(swapped, blockSize, parent))).not.toBe(end(hashed(tokens, blockSize, parent)));
    });
  });

  test("mixing digests is hashing their tokens, in one go or cut anywhere", () => {
    each(7, (random, { blockSize, blocks, tokens, parent }) => {
      const { chain, words } = hashed(tokens, blockSize, parent);
      const cut = random.integer(blocks + 1);
      const [first, second] = [new Uint32Array(2 * cut), new Uint32Array(2 * (blocks - cut))];
      hasher.mixContents({ parent, contents: words, blocks: cut, chain: first });
      const middle = cut === 0 ? parent : fromInteger(chain[cut - 1]!);
      hasher.mixContents({ parent: middle, contents: words.subarray(2 * cut), blocks: blocks - cut, chain: second });
      expect([...wordsToIntegers(first), ...wordsToIntegers(second)]).toEqual(chain);
    });
  });
});

describe("keys of blocks", () => {
  const keys = ["", "a", "b", "ab", "ba", "image 1", "ï", "\u0000", "a\u0000", "x".repeat(200_000)];

  test("a key is the digest of its text mixed in, and touches no other block", () => {
    const random = createSeededRandom(11);
    for (const key of keys) {
      const contents = Uint32Array.from({ length: 10 }, () => random.integer(2 ** 32));
      const before = wordsToIntegers(contents);
      const block = random.integer(5);
      addContentKey(contents, block, key);
      const keyDigest = naiveDigest(new TextEncoder().encode(key));
      const expected = before.map((digest, at) => (at === block ? naiveMix(digest, keyDigest) : digest));
      expect(wordsToIntegers(contents)).toEqual(expected);
    }
  });

  test("keys make different digests, together and in turn", () => {
    const digestOf = (...applied: readonly string[]) => {
      const contents = Uint32Array.of(1, 2);
      for (const key of applied) addContentKey(contents, 0, key);
      return wordsToIntegers(contents)[0]!;
    };
    const found = [digestOf(), ...keys.map((key) => digestOf(key))];
    for (const key of keys) found.push(digestOf(key, "z"), digestOf("z", key));
    expect(new Set(found).size).toBe(1 + 3 * keys.length);
  });

  test.each([
    [-1, 4],
    [2, 4],
    [0.5, 4],
  ])("a key for block %d of %i words is refused", (block, words) => {
    expect(() => addContentKey(new Uint32Array(words), block, "key")).toThrow(`no block ${block} in ${words} words`);
  });

  test("of an odd number of words the last is no block", () => {
    const contents = new Uint32Array(5);
    expect(() => addContentKey(contents, 2, "key")).toThrow(RangeError);
    addContentKey(contents, 1, "key");
    expect(contents[4]).toBe(0);
  });
});

describe("the digests of a ledger", () => {
  const digests = createHasherDigests({
    hasher,
    root: (adapter, cacheSalt) => chainRoot({ seed: "s", adapter, cacheSalt, blockSize: 16, unit: "tokens" }),
  });

  test("are those of the hasher, for any part of the tokens, and with room to spare", () => {
    each(21, (random, { blockSize, blocks, tokens, parent }) => {
      const first = random.integer(blocks);
      const out = new Uint32Array(2 * blocks).fill(9);
      digests.contents(tokens, first * blockSize, blocks * blockSize, blockSize, out);
      const { contents } = hashed(tokens, blockSize, parent);
      expect(wordsToIntegers(out.subarray(0, 2 * (blocks - first)))).toEqual(contents.slice(first));
      expect([...out.subarray(2 * (blocks - first))].every((word) => word === 9)).toBe(true);
    });
  });

  test("mix from any word on as the hasher does from there", () => {
    each(22, (random, { blockSize, blocks, tokens, parent }) => {
      const { words } = hashed(tokens, blockSize, parent);
      const first = random.integer(blocks);
      const count = random.integer(blocks - first + 1);
      const [out, expected] = [new Uint32Array(2 * blocks), new Uint32Array(2 * count)];
      digests.mix(parent, words, 2 * first, count, out);
      hasher.mixContents({ parent, contents: words.subarray(2 * first), blocks: count, chain: expected });
      expect(out.subarray(0, 2 * count)).toEqual(expected);
    });
  });
});
