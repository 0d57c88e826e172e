import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  blockText,
  createBlockTextCache,
  createPromptSynthesizer,
  maxCachedBlocks,
  toChatMessages,
} from "../../src/workload/index.ts";
import { traceRequest } from "./helpers.ts";

const synthesize = createPromptSynthesizer({ seed: 1 });
const textOf = (blockIds: readonly number[], inputTokens = blockIds.length * 512): string =>
  synthesize(traceRequest({ blockIds, inputTokens })) as string;

describe("the text of a block", () => {
  test("is words of three letters with a space behind, four bytes each", () => {
    for (const id of [0, 1, 255, 256, 182_789, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
      const text = blockText(id, 512);
      expect(Buffer.byteLength(text)).toBe(2_048);
      expect(text).toMatch(/^(?:[a-z]{3} ){512}$/);
    }
  });

  test("stays the same for ever: recorded prompts and caches of blocks depend on it", () => {
    expect(blockText(0, 10)).toMatchInlineSnapshot(`"act act act act act act act tin era ago "`);
    expect(blockText(182_789, 10)).toMatchInlineSnapshot(`"aim sad age act act act act spy hop lot "`);
  });

  test("a shorter text is the beginning of the longer one", () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.integer({ min: 0, max: 40 }), (id, wordCount) => {
        expect(blockText(id, 40).startsWith(blockText(id, wordCount))).toBe(true);
      }),
    );
  });

  test("different ids differ within the first seven words, ids of a trace within the first three", () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.maxSafeNat(), (one, other) => {
        fc.pre(one !== other);
        expect(blockText(one, 7)).not.toBe(blockText(other, 7));
      }),
    );
    expect(new Set(Array.from({ length: 65_536 }, (_, id) => blockText(id, 2))).size).toBe(65_536);
    expect(new Set(Array.from({ length: 5_000 }, (_, i) => blockText(i * 3_355, 3))).size).toBe(5_000);
  });

  test("uses its words evenly", () => {
    const counts = new Map<string, number>();
    for (let id = 0; id < 100; id++) {
      for (const word of blockText(id, 512).trimEnd().split(" ").slice(7))
        counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    expect(counts.size).toBe(256);
    // 50,500 words over 256 values: 197 each, with a deviation of 14.
    for (const count of counts.values()) expect(Math.abs(count - 197)).toBeLessThan(75);
  });
});

describe("the prompt of a request", () => {
  test("has exactly its input tokens, the last block cut", () => {
    const text = textOf([0, 7, 9], 1_300);
    expect(text).toHaveLength(1_300 * 4);
    expect(text).toBe(blockText(0, 512) + blockText(7, 512) + blockText(9, 276));
  });

  test("requests that share blocks at their beginning share that text and no more", () => {
    const one = textOf([0, 7, 9]);
    const other = textOf([0, 7, 8, 10]);
    expect(other.slice(0, 1_024 * 4)).toBe(one.slice(0, 1_024 * 4));
    expect(other.slice(1_024 * 4, 1_024 * 4 + 12)).not.toBe(one.slice(1_024 * 4, 1_024 * 4 + 12));
  });

  test("is the same whatever was asked before, and in another process", () => {
    const fresh = createPromptSynthesizer({ seed: 1 });
    textOf([5, 6, 7], 1_200);
    expect(textOf([0, 7])).toBe(fresh(traceRequest({ blockIds: [0, 7], inputTokens: 1_024 })));
  });

  test("blocks of 16 tokens work the same", () => {
    const request = traceRequest({ blockIds: [4, 5, 6], blockTokens: 16, inputTokens: 40 });
    expect(synthesize(request)).toBe(blockText(4, 16) + blockText(5, 16) + blockText(6, 8));
  });

  test("what the trace does not name is the request's own, by index and seed", () => {
    const unnamed = (index: number, seed = 1) =>
      createPromptSynthesizer({ seed })(traceRequest({ index, inputTokens: 100 })) as string;
    expect(unnamed(3)).toHaveLength(400);
    expect(unnamed(3)).toBe(unnamed(3));
    expect(new Set([unnamed(3), unnamed(4), unnamed(3, 2)].map((text) => text.slice(0, 28))).size).toBe(3);
    const tail = synthesize(traceRequest({ index: 3, blockIds: [8], inputTokens: 600 })) as string;
    expect(tail).toBe(blockText(8, 512) + unnamed(3).slice(0, 88 * 4));
  });

  test("a prompt that the trace holds is given back", () => {
    const messages = [{ role: "user", content: "hi" }];
    expect(synthesize(traceRequest({ prompt: "as it is" }))).toBe("as it is");
    expect(synthesize(traceRequest({ prompt: messages }))).toBe(messages);
  });

  test("as chat: a text is one message of the user, messages stay", () => {
    const messages = [{ role: "system", content: "x" }];
    expect(toChatMessages("hello")).toEqual([{ role: "user", content: "hello" }]);
    expect(toChatMessages(messages)).toBe(messages);
  });
});

describe("the cache of block texts", () => {
  test("one past its capacity, the text that was used longest ago goes", () => {
    const cache = createBlockTextCache(3);
    for (const id of [1, 2, 3, 1]) expect(cache.text(id, 16)).toBe(blockText(id, 16));
    expect(cache.size).toBe(3);
    expect(cache.text(4, 16)).toBe(blockText(4, 16));
    expect(cache.text(2, 16)).toBe(blockText(2, 16));
    expect(cache.size).toBe(3);
  });

  test("a cut block is kept apart from the whole one", () => {
    const cache = createBlockTextCache(4);
    expect(cache.text(9, 512)).toHaveLength(2_048);
    expect(cache.text(9, 100)).toHaveLength(400);
    expect(cache.size).toBe(2);
  });

  test("a synthesizer that has gone past it still gives the same texts", () => {
    const narrow = createPromptSynthesizer({ seed: 1 });
    const one = (id: number) => narrow(traceRequest({ blockIds: [id], blockTokens: 16, inputTokens: 16 }));
    for (let id = 0; id <= maxCachedBlocks; id++) one(id);
    for (const id of [0, 1, maxCachedBlocks]) expect(one(id)).toBe(blockText(id, 16));
  });
});
