import { createSeededRandom } from "@espalier/core";
import { tier } from "@espalier/prefix-index";
import { expect, test } from "vitest";
import { AttachHints, maxHintCandidates } from "../../src/ledger/attach-hints.ts";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { batchOf, chainOf, FoldingSink, hashAt, testDigests, wordsOf } from "./helpers.ts";

/** Contents and chains of prompts of one token per block. */
function hashed(tokens: readonly number[]): { contents: Uint32Array; chain: Uint32Array; blocks: number } {
  const contents = new Uint32Array(2 * tokens.length);
  testDigests.contents(Uint32Array.from(tokens), 0, tokens.length, 1, contents);
  return { contents, chain: wordsOf(chainOf(tokens, 1)), blocks: tokens.length };
}

const setUp = () => new AttachHints({ maxRequests: 1_000, maxBlocks: 10_000 });

function add(hints: AttachHints, key: string, tokens: readonly number[]): void {
  const { contents, chain, blocks } = hashed(tokens);
  expect(hints.add(key, contents, chain, blocks)).toBe(true);
}

/** The chain hash before a run, as found. */
function find(hints: AttachHints, tokens: readonly number[]): bigint | undefined {
  const { contents, blocks } = hashed(tokens);
  const path = hints.find(contents, blocks);
  return path && hashAt(path.words, path.blocks - 1);
}

test("content in more places than are compared tells nothing", () => {
  const hints = setUp();
  for (let request = 0; request < maxHintCandidates; request++) add(hints, `${request}`, [1, 2]);
  expect(find(hints, [2])).toBe(chainOf([1], 1)[0]);
  add(hints, "one more", [1, 2]);
  expect(find(hints, [2])).toBeUndefined();
});

test("as a search through all requests, while they come and go", () => {
  const random = createSeededRandom(3);
  const hints = setUp();
  const requests = new Map<string, number[]>();
  const draw = (length: number) => Array.from({ length }, () => random.integer(3));
  let found = 0;
  for (let step = 0; step < 4_000; step++) {
    const key = `${random.integer(12)}`;
    if (random.integer(3) === 0) {
      hints.remove(key);
      requests.delete(key);
    } else {
      const tokens = draw(1 + random.integer(9));
      add(hints, key, tokens);
      requests.set(key, tokens);
    }
    const run = draw(1 + random.integer(6));
    const expected = search([...requests.values()], run);
    if (expected !== undefined) found++;
    expect(find(hints, run)).toBe(expected);
  }
  expect(found).toBeGreaterThan(500);
  expect(hints.blocks).toBe([...requests.values()].reduce((sum, tokens) => sum + tokens.length, 0));
});

function search(requests: readonly number[][], run: readonly number[]): bigint | undefined {
  let longest = 0;
  let ends = new Set<bigint>();
  for (const tokens of requests) {
    for (let position = 1; position < tokens.length; position++) {
      const blocks = Math.min(run.length, tokens.length - position);
      if (tokens.slice(position, position + blocks).join() !== run.slice(0, blocks).join() || blocks < longest)
        continue;
      if (blocks > longest) ends = new Set();
      longest = blocks;
      ends.add(chainOf(tokens, 1)[position - 1]!);
    }
  }
  return ends.size === 1 ? [...ends][0] : undefined;
}

test("blocks that wait are attached below what a request says", () => {
  const sink = new FoldingSink();
  const ledger = new FeedLedger({ blockSize: 1, digests: testDigests, sink });
  const hints = setUp();
  add(hints, "a", [1, 2, 3, 4]);
  ledger.apply(batchOf({ kind: "stored", hashes: [13n, 14n, 15n], tokens: [3, 4, 5], blockSize: 1, parent: 12n }));
  const report = ledger.attachFloating((contents, blocks) => hints.find(contents, blocks));
  expect(report).toMatchObject({ attachedBlocks: 3 });
  const chain = chainOf([1, 2, 3, 4, 5], 1);
  expect([...sink.blocks[tier.gpu]!]).toEqual(chain.slice(2));
  // What is before them was never announced: the index must not take it for held.
  expect([...sink.holes[tier.gpu]!].sort((one, other) => one[1] - other[1])).toEqual([
    [chain[0], 0],
    [chain[1], 1],
  ]);
  ledger.apply(batchOf({ kind: "stored", hashes: [16n], tokens: [6], blockSize: 1, parent: 12n }));
  expect(sink.blocks[tier.gpu]!.has(chainOf([1, 2, 6], 1)[2]!)).toBe(true);
  ledger.apply(batchOf({ kind: "removed", hashes: [13n, 14n, 15n, 16n] }));
  expect(ledger.stats()).toMatchObject({ nodes: 0, holes: 0 });
});

test("what a request says is left alone when it ends inside of an engine block", () => {
  const ledger = new FeedLedger({ blockSize: 1, digests: testDigests, sink: new FoldingSink() });
  ledger.apply(batchOf({ kind: "stored", hashes: [13n], tokens: [3, 4], blockSize: 2, parent: 12n }));
  const chain = wordsOf(chainOf([1, 2], 1));
  expect(ledger.attachFloating(() => ({ words: chain, blocks: 1 }))).toMatchObject({ attachedBlocks: 0 });
  expect(ledger.attachFloating(() => ({ words: chain, blocks: 2 }))).toMatchObject({ attachedBlocks: 1 });
});

test("engine blocks smaller than the router's are not offered", () => {
  const ledger = new FeedLedger({ blockSize: 2, digests: testDigests, sink: new FoldingSink() });
  ledger.apply(batchOf({ kind: "stored", hashes: [13n], tokens: [3], blockSize: 1, parent: 12n }));
  ledger.attachFloating(() => {
    throw new Error("offered");
  });
  expect(ledger.stats().floatingBlocks).toBe(2);
});
