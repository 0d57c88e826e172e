import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { type ChainBuilder, createChainBuilder, maxSegmentTokens } from "../../src/clients/conversation.ts";
import { blockTokens } from "../../src/clients/workload.ts";
import { hashesOf, sharedBlocks } from "./recorded-run.ts";

interface Segment {
  readonly name: number;
  readonly tokens: number;
}

const build = (segments: readonly Segment[], seed = 1): ChainBuilder => {
  const chain = createChainBuilder({ seed });
  for (const { name, tokens } of segments) chain.append(name, tokens);
  return chain;
};

/** Every token by its segment and its place in it: what the chain stands for. */
const tokensOf = (segments: readonly Segment[]): readonly string[] =>
  segments.flatMap(({ name, tokens }) => Array.from({ length: tokens }, (_, at) => `${name}/${at}`));

const bytesOf = (words: Uint32Array): Buffer => Buffer.from(words.buffer, words.byteOffset, words.byteLength);

const drawSegments = (random: Random): readonly Segment[] =>
  Array.from({ length: 1 + random.integer(6) }, () => ({ name: random.integer(3), tokens: random.integer(40) }));

describe("a chain", () => {
  test("has as many blocks as its tokens fill", () => {
    const chain = createChainBuilder({ seed: 1 });
    expect([chain.tokens, chain.blocks, chain.view().length]).toEqual([0, 0, 0]);
    chain.append(1, 15);
    expect([chain.tokens, chain.blocks]).toEqual([15, 0]);
    chain.append(2, 0);
    chain.append(2, 1);
    expect([chain.tokens, chain.blocks]).toEqual([16, 1]);
    chain.append(3, 100);
    expect([chain.tokens, chain.blocks, chain.view().length]).toEqual([116, 7, 14]);
  });

  test("shares exactly the blocks whose tokens, and all before, are the same, against a naive reference", () => {
    const random = createSeededRandom(7);
    let partly = 0;
    for (let round = 0; round < 500; round++) {
      const common = drawSegments(random);
      const one = [...common, ...drawSegments(random)];
      const other = [...common, ...drawSegments(random)];
      const [oneTokens, otherTokens] = [tokensOf(one), tokensOf(other)];
      let same = 0;
      while (same < oneTokens.length && oneTokens[same] === otherTokens[same]) same += 1;
      const expected = Math.floor(same / blockTokens);
      expect(sharedBlocks(build(one).view(), build(other).view())).toBe(expected);
      if (expected > 0 && expected < Math.min(oneTokens.length, otherTokens.length) / blockTokens) partly += 1;
    }
    expect(partly).toBeGreaterThan(50);
  });

  test("does not depend on how far a segment goes past a block", () => {
    const short = build([{ name: 5, tokens: 33 }]);
    const long = build([{ name: 5, tokens: 3_300 }]);
    expect(sharedBlocks(short.view(), long.view())).toBe(2);
  });

  test("depends on what comes before", () => {
    const one = build([
      { name: 1, tokens: 16 },
      { name: 9, tokens: 160 },
    ]);
    const other = build([
      { name: 2, tokens: 16 },
      { name: 9, tokens: 160 },
    ]);
    const common = new Set(hashesOf(one.view()));
    expect(hashesOf(other.view()).some((hash) => common.has(hash))).toBe(false);
  });

  test.each([
    ["a segment's place in the block", [3, 13], [13, 3]],
    ["the length of a piece", [4, 12], [5, 11]],
  ])("tells apart blocks that differ in %s", (_, one, other) => {
    const of = ([first, second]: readonly number[]): Uint32Array =>
      build([
        { name: 1, tokens: first! },
        { name: 2, tokens: second! },
      ]).view();
    expect(sharedBlocks(of(one), of(other))).toBe(0);
  });

  test("is the same for the same seed and has nothing in common with another seed's", () => {
    const segments = [{ name: 4, tokens: 16_000 }];
    expect(build(segments, 3).view()).toEqual(build(segments, 3).view());
    const common = new Set(hashesOf(build(segments, 3).view()));
    expect(hashesOf(build(segments, 4).view()).some((hash) => common.has(hash))).toBe(false);
  });
});

describe("views", () => {
  test("never change, however the chain grows or is cut", () => {
    const chain = createChainBuilder({ seed: 1 });
    const views: { readonly view: Uint32Array; readonly copy: Uint32Array }[] = [];
    const random = createSeededRandom(3);
    for (let round = 0; round < 100; round++) {
      if (round % 20 === 19) chain.cut(random.integer(chain.blocks + 1));
      chain.append(round, random.integer(500));
      views.push({ view: chain.view(), copy: chain.view().slice() });
    }
    for (const { view, copy } of views) expect(Buffer.compare(bytesOf(view), bytesOf(copy))).toBe(0);
  });

  test("share their memory with the chain, but for the doublings", () => {
    const chain = createChainBuilder({ seed: 1 });
    const buffers = new Set<ArrayBufferLike>();
    for (let turn = 0; turn < 1_000; turn++) {
      chain.append(turn, 320);
      buffers.add(chain.view().buffer);
    }
    expect(chain.blocks).toBe(20_000);
    expect(buffers.size).toBeLessThanOrEqual(Math.ceil(Math.log2(20_000 / 32)) + 1);
  });

  test("of a chain with a known length are of one buffer", () => {
    const chain = createChainBuilder({ seed: 1, expectedTokens: 20_000 });
    const { buffer } = chain.view();
    for (let turn = 0; turn < 100; turn++) chain.append(turn, 200);
    expect(chain.view().buffer).toBe(buffer);
    chain.append(100, 16);
    expect(chain.view().buffer).not.toBe(buffer);
  });
});

describe("cutting", () => {
  test("leaves the blocks before, and goes on as if nothing else had been", () => {
    const chain = build([
      { name: 1, tokens: 100 },
      { name: 2, tokens: 100 },
    ]);
    chain.cut(5);
    expect([chain.tokens, chain.blocks]).toEqual([80, 5]);
    chain.append(3, 48);
    const fresh = build([
      { name: 1, tokens: 80 },
      { name: 3, tokens: 48 },
    ]);
    expect(chain.view()).toEqual(fresh.view());
  });

  test("to nothing begins anew", () => {
    const chain = build([{ name: 1, tokens: 100 }]);
    chain.cut(0);
    chain.append(2, 64);
    expect(chain.view()).toEqual(build([{ name: 2, tokens: 64 }]).view());
  });

  test.each([7, -1, 0.5])("to %d of 6 blocks is refused", (blocks) => {
    expect(() => build([{ name: 1, tokens: 100 }]).cut(blocks)).toThrow(RangeError);
  });
});

describe("hashes", () => {
  test("of half a million blocks are all different, in 64 bits", () => {
    const seen = new Set<number>();
    const names = [0, 1, -1, 2 ** 32, -(2 ** 32), 2 ** 52, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];
    for (const name of names) {
      const chain = createChainBuilder({ seed: 1 });
      chain.append(name, 64_000 * blockTokens);
      for (const hash of hashesOf(chain.view())) seen.add(hash);
    }
    expect(seen.size).toBe(names.length * 64_000);
  });

  test("of neighbouring names are all different, in the first block already", () => {
    const seen = new Set<number>();
    for (let name = -10_000; name < 10_000; name++) seen.add(hashesOf(build([{ name, tokens: 16 }]).view())[0]!);
    expect(seen.size).toBe(20_000);
  });

  test("have every bit set in half of the blocks", () => {
    const blocks = 20_000;
    const words = build([{ name: 77, tokens: blocks * blockTokens }]).view();
    for (let bit = 0; bit < 64; bit++) {
      let set = 0;
      for (let block = 0; block < blocks; block++) set += (words[2 * block + (bit >>> 5)]! >>> (bit & 31)) & 1;
      // Five standard deviations.
      expect(Math.abs(set - blocks / 2)).toBeLessThan((5 * Math.sqrt(blocks)) / 2);
    }
  });
});

describe("bounds", () => {
  test("the longest segment is taken, and one token more refused", () => {
    const chain = createChainBuilder({ seed: 1 });
    expect(() => chain.append(1, maxSegmentTokens + 1)).toThrow(RangeError);
    expect(chain.tokens).toBe(0);
    chain.append(1, 0);
  });

  test.each([0.5, Number.NaN, 2 ** 53, Number.POSITIVE_INFINITY])("a segment %d is refused", (segment) => {
    expect(() => createChainBuilder({ seed: 1 }).append(segment, 16)).toThrow("is not a safe integer");
  });

  test.each([-1, 1.5, Number.NaN])("%d tokens are refused", (tokens) => {
    expect(() => createChainBuilder({ seed: 1 }).append(1, tokens)).toThrow("tokens, not");
  });
});
