import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { AttachHints } from "../../src/ledger/attach-hints.ts";
import { maxCacheGroups } from "../../src/ledger/cache-groups.ts";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { maxOfferedTrees } from "../../src/ledger/floating-blocks.ts";
import { batchOf, FoldingSink, type TestEvent, testDigests } from "./helpers.ts";

function setUp(limits = {}) {
  const sink = new FoldingSink();
  const ledger = new FeedLedger({ blockSize: 1, digests: testDigests, sink, limits });
  return { sink, ledger, apply: (...events: TestEvent[]) => ({ ...ledger.apply(batchOf(...events)) }) };
}

/** A run of blocks of one token each, the engine's hashes from `first` on. */
const run = (first: number, blocks: number, parent?: bigint): TestEvent => ({
  kind: "stored",
  hashes: Array.from({ length: blocks }, (_, at) => BigInt(first + at)),
  tokens: Array.from({ length: blocks }, (_, at) => first + at),
  blockSize: 1,
  parent,
});
const removed = (first: number, blocks: number): TestEvent => ({ kind: "removed", hashes: run(first, blocks).hashes! });

test("a tree that there is no room to attach is dropped", () => {
  const { ledger, apply } = setUp({ maxBlocks: 8, maxFloatingBlocks: 12 });
  apply(run(11, 10, 10n));
  expect(apply(run(10, 1))).toMatchObject({ storedBlocks: 1, attachedBlocks: 0, droppedBlocks: 10 });
  expect(ledger.stats()).toMatchObject({ nodes: 1, floatingBlocks: 0 });
});

test("a group beyond those that are remembered is not held against full attention", () => {
  const { apply } = setUp();
  apply({ ...run(1, 2), group: maxCacheGroups });
  expect(apply({ ...removed(2, 1), group: maxCacheGroups })).toMatchObject({ removedBlocks: 1 });
});

test("hints beyond their bounds are left out", () => {
  const hints = new AttachHints({ maxRequests: 2, maxBlocks: 4 });
  const words = (blocks: number) => Uint32Array.from({ length: 2 * blocks }, (_, at) => at);
  expect(hints.add("a", words(2), words(2), 2)).toBe(true);
  expect(hints.add("b", words(3), words(3), 3)).toBe(false);
  expect(hints.add("b", words(2), words(2), 2)).toBe(true);
  expect(hints.add("c", words(0), words(0), 0)).toBe(false);
  hints.remove("a");
  expect(hints.add("c", words(2), words(2), 2)).toBe(true);
  expect(hints).toMatchObject({ requests: 2, blocks: 4 });
});

test("floating trees are offered up to a bound, the youngest first", () => {
  const { ledger, apply } = setUp();
  for (let tree = 0; tree <= maxOfferedTrees; tree++) apply(run(1_000 + 2 * tree, 1, BigInt(100_000 + tree)));
  const offered: number[] = [];
  const digest = new Uint32Array(2);
  testDigests.contents(Uint32Array.of(1_000 + 2 * maxOfferedTrees), 0, 1, 1, digest);
  ledger.attachFloating((contents) => {
    offered.push(contents[0]!);
    return undefined;
  });
  expect(offered).toHaveLength(maxOfferedTrees);
  expect(offered[0]).toBe(digest[0]);
});

test("memory per block is bounded, does not grow with turnover, and is given back", () => {
  const { ledger } = setUp();
  const random = createSeededRandom(7);
  const perRun = 64;
  const runs = 1_000;
  const stored = batchOf(run(1, perRun));
  const removing = batchOf(removed(1, perRun));
  const live: Uint32Array[] = [];
  const turn = (): void => {
    for (let word = 0; word < stored.hashes.length; word++) stored.hashes[word] = random.integer(2 ** 32);
    for (let token = 0; token < perRun; token++) stored.tokens[token] = random.integer(2 ** 32);
    ledger.apply(stored);
    live.push(stored.hashes.slice());
    if (live.length <= runs) return;
    removing.hashes = live.shift()!;
    if (ledger.apply(removing).removedBlocks !== perRun) throw new Error("not removed");
  };
  for (let at = 0; at < runs; at++) turn();
  const { bytes, nodes } = ledger.stats();
  expect(nodes).toBe(runs * perRun);
  expect(bytes / nodes).toBeLessThan(31);
  for (let at = 0; at < 10 * runs; at++) turn();
  expect(ledger.stats().nodes).toBe(nodes);
  expect(ledger.stats().bytes / bytes).toBeLessThan(1.05);
  for (const hashes of live) {
    removing.hashes = hashes;
    ledger.apply(removing);
  }
  expect(ledger.stats()).toMatchObject({ nodes: 0, bytes: 0, engineBlockSize: 1 });
  expect(ledger.apply(stored).storedBlocks).toBe(perRun);
});
