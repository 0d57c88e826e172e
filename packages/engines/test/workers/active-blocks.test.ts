import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ActiveBlocks, type ActivePrompt, type ActiveShare, maxActiveBlocks } from "../../src/workers/index.ts";

/** A prompt whose blocks are these numbers; as for chain hashes, equal ones must have equal numbers before them. */
function promptOf(blocks: readonly number[], blockSize = 16): ActivePrompt {
  const chain = Uint32Array.from(blocks.flatMap((block) => [block, block * 7 + 1]));
  return { chain, blockCount: blocks.length, blockSize };
}

const upTo = (count: number): ActivePrompt => promptOf(Array.from({ length: count }, (_, at) => at + 1));

describe("blocks of requests in flight", () => {
  test("count once, as long as one of the requests that have them is in flight", () => {
    const blocks = new ActiveBlocks();
    const first = blocks.add(promptOf([1, 2]));
    expect(blocks.tokens).toBe(32);
    const second = blocks.add(promptOf([1, 2, 3]));
    expect(blocks.tokens).toBe(48);
    first.release();
    expect(blocks.tokens).toBe(48);
    expect(blocks.newTokens(promptOf([1, 2, 3, 4]))).toBe(16);
    second.release();
    expect(blocks.tokens).toBe(0);
    expect(blocks.newTokens(promptOf([1, 2, 3, 4]))).toBe(64);
  });

  test("of one request leave once, however often it ends", () => {
    const blocks = new ActiveBlocks();
    const one = blocks.add(upTo(4));
    blocks.add(upTo(4));
    one.release();
    one.release();
    expect(blocks.tokens).toBe(64);
  });

  test("of a prompt without a full block are none", () => {
    const blocks = new ActiveBlocks();
    blocks.add(promptOf([])).release();
    expect(blocks.tokens).toBe(0);
    expect(blocks.newTokens(promptOf([]))).toBe(0);
  });

  test("are told apart by all that a number holds of their hashes", () => {
    const blocks = new ActiveBlocks();
    const of = (low: number, high: number): ActivePrompt => {
      return { chain: Uint32Array.of(low, high), blockCount: 1, blockSize: 16 };
    };
    blocks.add(of(7, 1));
    expect(blocks.newTokens(of(7, 1))).toBe(0);
    expect(blocks.newTokens(of(7, 2))).toBe(16);
    expect(blocks.newTokens(of(8, 1))).toBe(16);
    expect(blocks.newTokens(of(2 ** 31 + 7, 1))).toBe(16);
  });
});

describe("one block past the bound", () => {
  test("counts, but for each request anew, and all leave with the requests", () => {
    const blocks = new ActiveBlocks(4);
    const first = blocks.add(upTo(4));
    expect(blocks.newTokens(upTo(5))).toBe(16);
    const [second, third] = [blocks.add(upTo(5)), blocks.add(upTo(5))];
    expect(blocks.tokens).toBe(6 * 16);
    expect(blocks.newTokens(upTo(5))).toBe(16);
    for (const share of [first, second, third]) share.release();
    expect(blocks.tokens).toBe(0);
  });

  test("and where there is room again, blocks are told apart again", () => {
    const blocks = new ActiveBlocks(4);
    const full = blocks.add(upTo(4));
    const beyond = blocks.add(promptOf([90, 91]));
    full.release();
    expect(blocks.tokens).toBe(32);
    const again = blocks.add(promptOf([90, 91]));
    expect(blocks.newTokens(promptOf([90, 91]))).toBe(0);
    beyond.release();
    expect(blocks.tokens).toBe(32);
    again.release();
    expect(blocks.tokens).toBe(0);
  });

  test("is past more than any engine holds", () => {
    const blocks = new ActiveBlocks();
    const share = blocks.add(upTo(maxActiveBlocks));
    const one = blocks.add(promptOf([0]));
    expect(blocks.newTokens(promptOf([0]))).toBe(16);
    one.release();
    share.release();
    expect(blocks.tokens).toBe(0);
  });
});

test("counts as sets of blocks do, whatever comes and ends in whatever order", () => {
  // Prompts are paths in a tree: a block is named by the turns that lead to it.
  const turns = fc.array(fc.integer({ min: 1, max: 2 }), { maxLength: 6 });
  const pathOf = (path: readonly number[]): number[] => path.map((_, at) => Number(path.slice(0, at + 1).join("")));
  const steps = fc.array(fc.oneof(turns, fc.nat({ max: 20 })), { maxLength: 40 });
  fc.assert(
    fc.property(steps, turns, (script, asked) => {
      const blocks = new ActiveBlocks();
      const held: { readonly path: number[]; readonly share: ActiveShare }[] = [];
      for (const step of script) {
        if (typeof step !== "number") held.push({ path: pathOf(step), share: blocks.add(promptOf(pathOf(step))) });
        else held.splice(step % (held.length + 1), 1)[0]?.share.release();
        const all = new Set(held.flatMap(({ path }) => path));
        expect(blocks.tokens).toBe(16 * all.size);
        const missing = pathOf(asked).filter((block) => !all.has(block)).length;
        expect(blocks.newTokens(promptOf(pathOf(asked)))).toBe(16 * missing);
      }
    }),
  );
});
