import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { createBlockHasher } from "../../src/hash/block-hasher.ts";

const hasher = createBlockHasher();
const parent = { low: 0x13579bdf, high: 0x2468ace0 };

const bitCount = (word: number): number => {
  let count = 0;
  for (let rest = word >>> 0; rest !== 0; rest = (rest & (rest - 1)) >>> 0) count++;
  return count;
};

/** Output bits in which two hashes of two words differ. */
const distance = (a: Uint32Array, b: Uint32Array, at: number): number =>
  bitCount(a[at]! ^ b[at]!) + bitCount(a[at + 1]! ^ b[at + 1]!);

function digestAndChain(tokens: Uint32Array, blockSize: number, after = parent) {
  const words = 2 * Math.floor(tokens.length / blockSize);
  const [chain, contents] = [new Uint32Array(words), new Uint32Array(words)];
  hasher.hashTokens({ tokens, blockSize, parent: after, chain, contents });
  return { chain, contents };
}

describe("avalanche: one flipped bit of input flips about half of the output", () => {
  const inputs: readonly { name: string; token: (random: Random) => number }[] = [
    { name: "token ids", token: (random) => random.integer(150_000) },
    { name: "full words", token: (random) => random.integer(2 ** 32) },
    { name: "zeros", token: () => 0 },
  ];
  test.each(inputs.flatMap((input) => [1, 3, 8, 16, 21].map((blockSize) => ({ ...input, blockSize }))))(
    "blocks of $blockSize $name",
    ({ token, blockSize }) => {
      const random = createSeededRandom(blockSize);
      const rounds = 60;
      const flips = new Float64Array(32 * blockSize);
      const flipsOfOutput = new Float64Array(64);
      for (let round = 0; round < rounds; round++) {
        const tokens = Uint32Array.from({ length: blockSize }, () => token(random));
        const original = digestAndChain(tokens, blockSize).contents;
        for (let bit = 0; bit < flips.length; bit++) {
          tokens[bit >> 5]! ^= 1 << (bit & 31);
          const changed = digestAndChain(tokens, blockSize).contents;
          tokens[bit >> 5]! ^= 1 << (bit & 31);
          flips[bit]! += distance(original, changed, 0) / rounds;
          for (let out = 0; out < 64; out++) {
            const differs = ((original[out >> 5]! ^ changed[out >> 5]!) >>> (out & 31)) & 1;
            flipsOfOutput[out]! += differs / rounds / flips.length;
          }
        }
      }
      const mean = flips.reduce((sum, value) => sum + value, 0) / flips.length;
      expect(mean).toBeGreaterThan(31);
      expect(mean).toBeLessThan(33);
      // Zeros are hashed once and the same every round, so a single bit has the spread of one sample: 4 bits.
      const slack = token(random) === 0 ? 18 : 5;
      for (const [bit, count] of flips.entries()) expect(Math.abs(count - 32), `input bit ${bit}`).toBeLessThan(slack);
      for (const [bit, share] of flipsOfOutput.entries()) {
        expect(Math.abs(share - 0.5), `output bit ${bit}`).toBeLessThan(token(random) === 0 ? 0.4 : 0.1);
      }
    },
  );

  test("a changed token changes the chain from its block on, and nothing before", () => {
    const random = createSeededRandom(3);
    const tokens = Uint32Array.from({ length: 16 * 40 }, () => random.integer(150_000));
    const original = digestAndChain(tokens, 16).chain;
    let [sum, count] = [0, 0];
    for (let at = 0; at < tokens.length; at += 7) {
      const changedTokens = tokens.slice();
      changedTokens[at]! ^= 1;
      const changed = digestAndChain(changedTokens, 16).chain;
      for (let block = 0; block < 40; block++) {
        const differing = distance(original, changed, 2 * block);
        if (block < at >> 4) expect(differing).toBe(0);
        else [sum, count] = [sum + differing, count + 1];
      }
    }
    expect(Math.abs(sum / count - 32)).toBeLessThan(0.5);
  });

  test("roots that differ in one bit share no hash, and differ as chance has it after two blocks", () => {
    const tokens = Uint32Array.from({ length: 16 * 8 }, (_, index) => index);
    const original = digestAndChain(tokens, 16).chain;
    let sum = 0;
    for (let bit = 0; bit < 64; bit++) {
      const low = bit < 32 ? (parent.low ^ (1 << bit)) >>> 0 : parent.low;
      const high = bit < 32 ? parent.high : (parent.high ^ (1 << (bit - 32))) >>> 0;
      const changed = digestAndChain(tokens, 16, { low, high }).chain;
      for (let block = 0; block < 8; block++) expect(distance(original, changed, 2 * block)).toBeGreaterThan(0);
      for (let block = 2; block < 8; block++) sum += distance(original, changed, 2 * block) / 64 / 6;
    }
    expect(Math.abs(sum - 32)).toBeLessThan(1);
  });
});

/** Counts hashes that occur twice, and 32-bit halves that do. */
function collisions(hashes: Uint32Array) {
  const whole = new BigUint64Array(hashes.buffer, hashes.byteOffset, hashes.length / 2).slice().sort();
  const half = (offset: number): Uint32Array => hashes.filter((_, index) => index % 2 === offset).sort();
  const repeats = (sorted: Uint32Array | BigUint64Array): number => {
    let count = 0;
    for (let index = 1; index < sorted.length; index++) if (sorted[index] === sorted[index - 1]) count++;
    return count;
  };
  return { whole: repeats(whole), low: repeats(half(0)), high: repeats(half(1)) };
}

/** What a perfect hash of 32 bits collides on average among n values. */
const expectedRepeats = (count: number): number => count ** 2 / 2 / 2 ** 32;

describe("no two of a million different blocks have the same digest", () => {
  const count = 1_000_000;
  const blockSize = 16;
  const cases: readonly { name: string; fill: (tokens: Uint32Array, block: number) => void }[] = [
    { name: "a counter in one token", fill: (tokens, block) => tokens.fill(0).fill(block, 5, 6) },
    {
      name: "two counters of ten bits, in the upper tokens of two words",
      fill: (tokens, block) => {
        tokens.fill(17);
        tokens[9] = block & 1023;
        tokens[15] = block >> 10;
      },
    },
    {
      name: "two counters of ten bits, in words that follow each other in one lane",
      fill: (tokens, block) => {
        tokens.fill(17);
        tokens[1] = block & 1023;
        tokens[8] = block >> 10;
      },
    },
    {
      name: "windows of a counting sequence, shifted by one",
      fill: (tokens, block) => {
        for (let index = 0; index < blockSize; index++) tokens[index] = block + index;
      },
    },
    {
      name: "the same token but for one place, or another one there",
      fill: (tokens, block) =>
        tokens.fill(Math.floor(block / 160)).fill(200_000 + (block % 10), (block / 10) % 16, ((block / 10) % 16) + 1),
    },
    {
      name: "bits spread over all tokens, each 0 or 1 at two places",
      fill: (tokens, block) => {
        for (let index = 0; index < blockSize; index++)
          tokens[index] = ((block >> index) & 1) | (((block >> (index + 4)) & 1) << 16);
      },
    },
  ];

  test.each(cases)("$name", ({ fill }) => {
    const hashes = new Uint32Array(2 * count);
    const perRun = 1_000;
    const tokens = new Uint32Array(perRun * blockSize);
    const [chain, contents] = [new Uint32Array(2 * perRun), new Uint32Array(2 * perRun)];
    for (let done = 0; done < count; done += perRun) {
      for (let block = 0; block < perRun; block++) {
        fill(tokens.subarray(block * blockSize, (block + 1) * blockSize), done + block);
      }
      hasher.hashTokens({ tokens, blockSize, parent, chain, contents });
      hashes.set(contents, 2 * done);
    }
    const found = collisions(hashes);
    expect(found.whole).toBe(0);
    // Halves collide as chance has it: 116 times on average, with a spread of 11.
    for (const half of [found.low, found.high]) {
      expect(half).toBeGreaterThan(0.5 * expectedRepeats(count));
      expect(half).toBeLessThan(1.5 * expectedRepeats(count));
    }
  });

  test("a chain over equal blocks never repeats, nor do chains of neighbouring roots", () => {
    const blocks = 50_000;
    const hashes = new Uint32Array(10 * 2 * blocks);
    const tokens = new Uint32Array(blocks);
    for (let root = 0; root < 10; root++) {
      const chain = hashes.subarray(root * 2 * blocks, (root + 1) * 2 * blocks);
      hasher.hashTokens({ tokens, blockSize: 1, parent: { low: root, high: 0 }, chain });
    }
    expect(collisions(hashes).whole).toBe(0);
  });
});

test("the order of tokens counts, within a block and among blocks", () => {
  const random = createSeededRandom(9);
  for (let round = 0; round < 200; round++) {
    const tokens = Uint32Array.from({ length: 48 }, (_, index) => 1_000 * index + random.integer(1_000));
    const original = digestAndChain(tokens, 16);
    const swapped = tokens.slice();
    const [one, other] = [random.integer(16), random.integer(16)];
    if (one === other) continue;
    [swapped[one], swapped[other]] = [tokens[other]!, tokens[one]!];
    const ofSwapped = digestAndChain(swapped, 16);
    expect(distance(original.contents, ofSwapped.contents, 0)).toBeGreaterThan(8);
    const blocksSwapped = Uint32Array.from([...tokens.slice(16, 32), ...tokens.slice(0, 16), ...tokens.slice(32)]);
    const ofBlocks = digestAndChain(blocksSwapped, 16);
    expect([...ofBlocks.contents.subarray(4)]).toEqual([...original.contents.subarray(4)]);
    expect(distance(original.chain, ofBlocks.chain, 2)).toBeGreaterThan(8);
    expect(distance(original.chain, ofBlocks.chain, 4)).toBeGreaterThan(8);
  }
});

test("zeros count: blocks of zeros of different lengths differ, and so do texts that end in NUL", () => {
  const seen = new Set<string>();
  for (let blockBytes = 1; blockBytes <= 600; blockBytes++) {
    const contents = new Uint32Array(2);
    hasher.hashBytes({ bytes: new Uint8Array(blockBytes), blockBytes, parent, chain: new Uint32Array(2), contents });
    seen.add(contents.join());
  }
  expect(seen.size).toBe(600);
});
