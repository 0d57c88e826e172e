import { createSeededRandom } from "@espalier/core";
import { blockSize, joinTokens, promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { PromptBlocks } from "../../src/prefix/prompt-blocks.ts";
import { createRecentPrompts, type RecentPrompts } from "../../src/prefix/prompt-blocks.ts";

const ofBlocks = (letter: string, blocks: number): PromptBlocks => promptOf(tokensOf(letter, blocks * blockSize));

/** How many blocks of a kept prompt are before its last one; undefined when it is not kept. */
const before = (recent: RecentPrompts, { contents, blockCount }: PromptBlocks): number | undefined =>
  recent.find(contents.subarray(2 * blockCount - 2), 1)?.blocks;

describe("where a run of blocks belongs", () => {
  test("is after the blocks that come before it in a prompt", () => {
    const recent = createRecentPrompts();
    const prompt = ofBlocks("a", 6);
    recent.add(prompt);
    for (let at = 1; at < 6; at++) {
      const path = recent.find(prompt.contents.subarray(2 * at), 6 - at);
      expect(path?.blocks, `from ${at}`).toBe(at);
      expect(path?.words.subarray(0, 2 * at), `from ${at}`).toEqual(prompt.chain.subarray(0, 2 * at));
    }
  });

  test("is not told of a first block: nothing is before it", () => {
    const recent = createRecentPrompts();
    const prompt = ofBlocks("a", 6);
    recent.add(prompt);
    expect(recent.find(prompt.contents, 6)).toBeUndefined();
  });

  test("is told where all prompts with the run agree", () => {
    const recent = createRecentPrompts();
    const prompt = ofBlocks("a", 6);
    for (let again = 0; again < 3; again++) recent.add(prompt);
    recent.add(ofBlocks("a", 9));
    expect(before(recent, prompt)).toBe(5);
  });

  test("is not told where they do not", () => {
    const recent = createRecentPrompts();
    const tail = tokensOf("t", 2 * blockSize);
    for (const letter of ["a", "b"]) recent.add(promptOf(joinTokens(tokensOf(letter, blockSize), tail)));
    expect(recent.find(promptOf(tail).contents, 2)).toBeUndefined();
  });

  test("is told apart for prompts of other roots", () => {
    const recent = createRecentPrompts();
    const tokens = tokensOf("a", 3 * blockSize);
    const salted = promptOf(tokens, { cacheSalt: "tenant-7" });
    recent.add(salted);
    expect(recent.find(salted.contents.subarray(2), 2)?.words.subarray(0, 2)).toEqual(salted.chain.subarray(0, 2));
    recent.add(promptOf(tokens));
    expect(recent.find(salted.contents.subarray(2), 2)).toBeUndefined();
  });
});

/** The bounds that a router has. */
const [maxRecentPrompts, maxRecentBlocks] = [4_096, 262_144];

describe("the bounds", () => {
  test("as they are by default: one prompt more", () => {
    const recent = createRecentPrompts();
    const prompts = Array.from({ length: maxRecentPrompts + 1 }, (_, at) =>
      promptOf(Uint32Array.from({ length: 2 * blockSize }, (__, token) => at * 100 + token)),
    );
    for (const prompt of prompts) recent.add(prompt);
    expect(prompts.slice(0, 2).map((prompt) => before(recent, prompt))).toEqual([undefined, 1]);
    expect(before(recent, prompts.at(-1)!)).toBe(1);
  });

  test("as they are by default: one block more", () => {
    const recent = createRecentPrompts();
    const words = Uint32Array.from({ length: 2 * (maxRecentBlocks + 1) }, (_, at) => at);
    const ofLength = (blockCount: number): PromptBlocks => ({
      ...ofBlocks("a", 1),
      ...{ blockCount, chain: words.subarray(0, 2 * blockCount), contents: words.subarray(0, 2 * blockCount) },
    });
    const [whole, larger] = [ofLength(maxRecentBlocks), ofLength(maxRecentBlocks + 1)];
    recent.add(larger);
    expect(before(recent, larger)).toBeUndefined();
    recent.add(whole);
    expect(before(recent, whole)).toBe(maxRecentBlocks - 1);
  });

  test("a prompt without blocks takes no place", () => {
    const recent = createRecentPrompts({ maxRequests: 1, maxBlocks: 12 });
    const prompt = ofBlocks("a", 4);
    recent.add(prompt);
    recent.add(ofBlocks("b", 0));
    expect(before(recent, prompt)).toBe(3);
  });
});

test.each([1, 2, 3])("the latest that fit are those that are kept, step by step (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const bounds = { maxRequests: 5, maxBlocks: 20 };
  const recent = createRecentPrompts(bounds);
  let kept: PromptBlocks[] = [];
  const gone: PromptBlocks[] = [];
  for (let step = 0; step < 200; step++) {
    const prompt = promptOf(
      Uint32Array.from({ length: random.integer(24) * blockSize }, (_, at) => (step + 1) * 10_000 + at),
    );
    recent.add(prompt);
    const blocks = () => kept.reduce((sum, { blockCount }) => sum + blockCount, 0);
    if (prompt.blockCount > 0 && prompt.blockCount <= bounds.maxBlocks) {
      while (kept.length >= bounds.maxRequests || blocks() + prompt.blockCount > bounds.maxBlocks) {
        gone.push(kept[0]!);
        kept = kept.slice(1);
      }
      kept.push(prompt);
    }
    for (const one of kept.filter(({ blockCount }) => blockCount > 1)) {
      expect(before(recent, one), `seed ${seed} step ${step}`).toBe(one.blockCount - 1);
    }
    for (const one of gone.slice(-5)) expect(before(recent, one), `seed ${seed} step ${step}`).toBeUndefined();
  }
});
