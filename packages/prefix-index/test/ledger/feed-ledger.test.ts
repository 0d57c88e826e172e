import { tier } from "@espalier/prefix-index";
import { expect, test } from "vitest";
import { maxBlockRatio } from "../../src/ledger/block-shape.ts";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { batchOf, chainOf, FoldingSink, type TestEvent, testDigests } from "./helpers.ts";

const blockSize = 4;

function setUp(limits = {}) {
  const sink = new FoldingSink();
  const ledger = new FeedLedger({ blockSize, digests: testDigests, sink, limits });
  return { sink, ledger, apply: (...events: TestEvent[]) => ({ ...ledger.apply(batchOf(...events)) }) };
}

const tokensOf = (...blocks: readonly number[]): number[] =>
  blocks.flatMap((block) => [block, block + 1, block + 2, block + 3]);

const stored = (hashes: readonly bigint[], blocks: readonly number[], more: Partial<TestEvent> = {}): TestEvent => ({
  kind: "stored",
  hashes,
  tokens: tokensOf(...blocks),
  blockSize,
  ...more,
});
const removed = (...hashes: readonly bigint[]): TestEvent => ({ kind: "removed", hashes });

test("blocks are told by the hashes of their chains, whatever the engine calls them, in one run", () => {
  const { sink, apply } = setUp();
  expect(apply(stored([5n, 6n], [100, 200]), stored([7n], [300], { parent: 6n }))).toMatchObject({ storedBlocks: 3 });
  expect([...sink.blocks[tier.gpu]!]).toEqual(chainOf(tokensOf(100, 200, 300), blockSize));
  expect(sink.log).toEqual(["stored 0 3"]);
});

test("a block stored twice is told once, and one removal ends it", () => {
  const { sink, apply } = setUp();
  apply(stored([5n], [100]), stored([5n], [100]));
  expect(apply(removed(5n), removed(5n))).toMatchObject({ removedBlocks: 1, unknownRemovals: 1 });
  expect(sink.log).toEqual(["stored 0 1", "removed 0 1"]);
});

test("removing parents before their children in one event leaves no hole", () => {
  const { sink, ledger, apply } = setUp();
  apply(stored([1n, 2n, 3n], [100, 200, 300]));
  apply(removed(1n, 2n, 3n));
  expect(sink.log).toEqual(["stored 0 3", "removed 0 3"]);
  expect(ledger.stats()).toMatchObject({ nodes: 0, holes: 0 });
});

test("a block removed from above others is a hole until it is stored again or nothing is below it", () => {
  const { sink, apply } = setUp();
  const chain = chainOf(tokensOf(100, 200, 300), blockSize);
  apply(stored([1n, 2n, 3n], [100, 200, 300]));
  apply(removed(2n));
  expect([...sink.holes[tier.gpu]!]).toEqual([[chain[1], 1]]);
  apply(stored([2n], [200], { parent: 1n }));
  expect(sink.holes[tier.gpu]!.size).toBe(0);
  apply(removed(1n), removed(2n));
  expect([...sink.holes[tier.gpu]!]).toEqual([
    [chain[0], 0],
    [chain[1], 1],
  ]);
  apply(removed(3n));
  expect(sink.log.slice(-3)).toEqual(["removed 0 1", "holeGone 0", "holeGone 0"]);
});

test("two engine hashes of one chain are one block, which goes with the last of them", () => {
  const { sink, apply } = setUp();
  apply(stored([1n, 2n], [100, 200]), stored([11n, 12n], [100, 200]));
  expect(sink.log).toEqual(["stored 0 2"]);
  apply(removed(2n, 1n));
  expect(sink.log).toEqual(["stored 0 2"]);
  apply(removed(12n), stored([13n], [300], { parent: 11n }), removed(13n, 11n));
  expect(sink.blocks[tier.gpu]!.size).toBe(0);
});

test("an engine hash that is stored with other tokens stands for those", () => {
  const { sink, apply } = setUp();
  apply(stored([1n], [100]), stored([1n], [500]));
  expect([...sink.blocks[tier.gpu]!]).toEqual(chainOf(tokensOf(500), blockSize));
  apply(removed(1n));
  expect(sink.blocks[tier.gpu]!.size).toBe(0);
});

test("a hash that comes twice in a run, and one that is its own parent, do no harm", () => {
  const { sink, ledger, apply } = setUp();
  apply(stored([1n, 1n, 1n], [100, 200, 300]));
  expect([...sink.blocks[tier.gpu]!]).toEqual([chainOf(tokensOf(100, 200, 300), blockSize)[2]]);
  expect(sink.holes[tier.gpu]!.size).toBe(2);
  apply(removed(1n));
  expect(apply(stored([7n], [100], { parent: 7n }))).toMatchObject({ refusedEvents: 1 });
  expect(apply(stored([8n], [1], { parent: 9n }), stored([9n], [2], { parent: 8n }))).toMatchObject({
    refusedEvents: 1,
  });
  apply(removed(8n));
  expect(ledger.stats()).toMatchObject({ nodes: 0, floatingBlocks: 0 });
});

test("blocks move between tiers without their tokens", () => {
  const { sink, ledger, apply } = setUp();
  const [first, second] = chainOf(tokensOf(100, 200), blockSize);
  apply(stored([1n, 2n], [100, 200]));
  const move: TestEvent = { kind: "stored", hashes: [2n, 99n], tier: tier.cpu };
  expect(apply(move, removed(2n))).toMatchObject({ storedBlocks: 1, unknownMoves: 1, removedBlocks: 1 });
  expect([...sink.blocks[tier.gpu]!]).toEqual([first]);
  expect([...sink.blocks[tier.cpu]!]).toEqual([second]);
  expect([...sink.holes[tier.cpu]!]).toEqual([[first, 0]]);
  expect(ledger.stats().blocks).toEqual([1, 1, 0, 0]);
  expect(apply({ ...removed(2n), tier: tier.disk })).toMatchObject({ unknownRemovals: 1 });
  apply({ ...removed(2n), tier: tier.cpu });
  expect(sink.holes[tier.cpu]!.size).toBe(0);
  expect(ledger.stats().nodes).toBe(1);
});

test("a move or a removal before the first block is of something unknown", () => {
  const { apply } = setUp();
  expect(apply({ kind: "stored", hashes: [2n, 3n] }, removed(4n))).toMatchObject({
    unknownMoves: 2,
    unknownRemovals: 1,
  });
});

test("blocks with an unknown parent wait for it, and can be removed while they wait", () => {
  const { sink, ledger, apply } = setUp();
  expect(apply(stored([3n, 4n], [300, 400], { parent: 2n }))).toMatchObject({ floatedBlocks: 2, storedBlocks: 0 });
  apply(stored([5n], [500], { parent: 3n }), removed(4n));
  expect(sink.log).toEqual([]);
  expect(apply(stored([1n, 2n], [100, 200]))).toMatchObject({ storedBlocks: 2, attachedBlocks: 2 });
  expect(sink.blocks[tier.gpu]).toEqual(new Set(chainOf(tokensOf(100, 200, 300, 500), blockSize)));
  expect(ledger.stats().floatingBlocks).toBe(0);
  apply(removed(1n, 2n, 3n, 5n));
  expect(ledger.stats().nodes).toBe(0);
});

test("a parent that is removed keeps the place of what comes below it", () => {
  const { sink, apply } = setUp();
  apply(stored([1n, 2n, 3n], [100, 200, 300]), removed(2n));
  apply(stored([4n], [400], { parent: 2n }));
  expect(sink.blocks[tier.gpu]!.has(chainOf(tokensOf(100, 200, 400), blockSize)[2]!)).toBe(true);
});

test("adapters, salts and keys of blocks set chains apart", () => {
  const { sink, apply } = setUp();
  const event = (hash: bigint, detail: TestEvent["detail"]) => stored([hash], [100], { detail });
  apply(event(1n, undefined), event(2n, { adapter: "a" }), event(3n, { cacheSalt: "a" }));
  apply(event(4n, { blockKeys: ["image"] }), event(5n, { blockKeys: [undefined] }));
  expect(sink.blocks[tier.gpu]!.size).toBe(4);
});

test("other kinds of attention are left out, by the group's number for removals", () => {
  const { sink, apply } = setUp();
  apply(stored([1n], [100], { group: 0 }));
  const window: TestEvent = {
    kind: "stored",
    hashes: [1n],
    tokens: tokensOf(100, 200),
    blockSize,
    group: 1,
    partial: true,
  };
  expect(apply(window)).toMatchObject({ skippedEvents: 1, refusedEvents: 0 });
  expect(apply({ ...removed(1n), group: 1 }, { ...removed(1n), group: 7 })).toMatchObject({ skippedEvents: 2 });
  expect(sink.blocks[tier.gpu]!.size).toBe(1);
  expect(apply({ ...removed(1n), group: 0 })).toMatchObject({ removedBlocks: 1 });
});

test("an event whose tokens do not fit its hashes is refused", () => {
  const { sink, apply } = setUp();
  const tokens = tokensOf(100, 200, 300);
  expect(apply({ kind: "stored", hashes: [1n, 2n], tokens, blockSize })).toMatchObject({ refusedEvents: 1 });
  expect(apply({ kind: "stored", hashes: [], tokens, blockSize })).toMatchObject({ refusedEvents: 1 });
  expect(apply({ ...stored([1n], [100]), tier: 4 })).toMatchObject({ refusedEvents: 1 });
  expect(sink.log).toEqual([]);
});

test("the block size is learned from the tokens when the event does not say", () => {
  const { ledger, apply } = setUp();
  apply(stored([1n, 2n], [100, 200], { blockSize: 0 }));
  expect(ledger.stats().engineBlockSize).toBe(blockSize);
});

test.each([
  [6, "block-size-ratio"],
  [blockSize * (maxBlockRatio + 1), "block-size-ratio"],
])("a feed with blocks of %i tokens cannot be used: %s", (size, reason) => {
  const { ledger, apply } = setUp();
  const tokens = Array.from({ length: size }, (_, at) => at);
  expect(apply({ kind: "stored", hashes: [1n], tokens, blockSize: size })).toMatchObject({ refusedEvents: 1 });
  expect(ledger.stats().unusable).toBe(reason);
  expect(apply(stored([1n], [100]))).toMatchObject({ refusedEvents: 1 });
  ledger.clear();
  expect(apply(stored([1n], [100]))).toMatchObject({ storedBlocks: 1 });
});

// LMCache tells of its chunks of 256 tokens in the stream of an engine with blocks of 16: all that was known of the engine
// used to be given up for that.
test.each(["cpu", "disk", "external"] as const)(
  "blocks of another size in the tier %s are left out, and those in the GPU stay",
  (name) => {
    const { sink, ledger, apply } = setUp();
    const chunk = stored([2n], [100, 200], { blockSize: 8, tier: tier[name] });
    expect(apply(stored([1n], [100]), chunk, stored([3n], [300], { parent: 1n }))).toMatchObject({
      storedBlocks: 2,
      refusedEvents: 1,
    });
    expect(ledger.stats()).toMatchObject({ unusable: undefined, engineBlockSize: 4, nodes: 2, blocks: [2, 0, 0, 0] });
    expect(sink.blocks[tier.gpu]!.size).toBe(2);
    expect(apply({ kind: "removed", hashes: [2n], tier: tier[name] })).toMatchObject({ unknownRemovals: 1 });
    apply(stored([1n], [100], { tier: tier[name] }));
    expect(sink.blocks[tier[name]]!.size).toBe(1);
  },
);

test("a stream of chunks alone is followed by the size of the first", () => {
  const { sink, ledger, apply } = setUp();
  const chunk = (hash: bigint, ...blocks: readonly number[]) =>
    stored([hash], blocks, { blockSize: 4 * blocks.length, tier: tier.external });
  expect(apply(chunk(1n, 100, 200), chunk(2n, 500), chunk(3n, 300, 400))).toMatchObject({ refusedEvents: 1 });
  expect(ledger.stats()).toMatchObject({ engineBlockSize: 8, blocks: [0, 0, 0, 4] });
  expect(sink.blocks[tier.external]!.size).toBe(4);
});

test("a change of the block size ends what is known of the feed", () => {
  const { sink, ledger, apply } = setUp();
  apply(stored([1n], [100]), stored([2n], [100, 200], { blockSize: 8 }));
  expect(ledger.stats()).toMatchObject({ unusable: "block-size-changed", nodes: 0 });
  expect(sink.blocks[tier.gpu]!.size).toBe(0);
});

test("clearing forgets everything at once, and the next event of the batch begins anew", () => {
  const { sink, ledger, apply } = setUp();
  apply(stored([1n, 2n], [100, 200]), { kind: "cleared" }, stored([3n], [300]));
  expect([...sink.blocks[tier.gpu]!]).toEqual(chainOf(tokensOf(300), blockSize));
  expect(sink.clears).toBe(1);
  expect(apply(removed(1n))).toMatchObject({ unknownRemovals: 1 });
  ledger.clear();
  expect(ledger.stats()).toMatchObject({ nodes: 0, engineBlockSize: 0, bytes: 0 });
});

test("an engine's larger block is stored and removed as a whole", () => {
  const { sink, apply } = setUp();
  const chain = chainOf(tokensOf(100, 200, 300, 400), blockSize);
  const tokens = tokensOf(100, 200, 300, 400);
  apply({ kind: "stored", hashes: [1n, 2n], tokens, blockSize: 8 });
  expect([...sink.blocks[tier.gpu]!]).toEqual(chain);
  apply(removed(1n));
  expect([...sink.blocks[tier.gpu]!]).toEqual(chain.slice(2));
  expect(sink.holes[tier.gpu]).toEqual(
    new Map([
      [chain[0], 0],
      [chain[1], 1],
    ]),
  );
});

// Blocks of 32 tokens in a capture of vLLM that began with the same 16: these were stored twice for the router.
test("router blocks at the beginning of several larger blocks are told once, and go with the last", () => {
  const { sink, ledger, apply } = setUp();
  const event = (hash: bigint, ...blocks: number[]): TestEvent => ({
    kind: "stored",
    hashes: [hash],
    tokens: tokensOf(...blocks),
    blockSize: 8,
  });
  apply(event(1n, 100, 200), event(2n, 100, 300), event(3n, 100, 200));
  expect(sink.log).toEqual(["stored 0 3"]);
  apply(removed(1n));
  expect(sink.blocks[tier.gpu]!.size).toBe(3);
  apply(removed(2n));
  expect([...sink.blocks[tier.gpu]!]).toEqual(chainOf(tokensOf(100, 200), blockSize));
  apply(removed(3n));
  expect(ledger.stats()).toMatchObject({ nodes: 0, blocks: [0, 0, 0, 0] });
});

test("a router block is there while all of the engine's smaller blocks are", () => {
  const { sink, ledger, apply } = setUp();
  const tokens = [1, 2, 3, 4, 5, 6, 7, 8];
  const chain = chainOf(tokens, blockSize);
  const pages = [1n, 2n, 3n, 4n, 5n, 6n, 7n, 8n];
  apply({ kind: "stored", hashes: pages.slice(0, 3), tokens: tokens.slice(0, 3), blockSize: 1 });
  expect(sink.log).toEqual([]);
  apply({ kind: "stored", hashes: pages.slice(3), tokens: tokens.slice(3), blockSize: 1, parent: 3n });
  expect([...sink.blocks[tier.gpu]!]).toEqual(chain);
  apply(removed(2n));
  expect([...sink.blocks[tier.gpu]!]).toEqual([chain[1]]);
  expect([...sink.holes[tier.gpu]!]).toEqual([[chain[0], 0]]);
  apply({ kind: "stored", hashes: [2n], tokens: [2], blockSize: 1, parent: 1n });
  expect(sink.blocks[tier.gpu]).toEqual(new Set(chain));
  apply(removed(...pages));
  expect(ledger.stats().nodes).toBe(0);
});

test("largest shared prefixes", () => {
  const { ledger, apply } = setUp();
  expect(ledger.sharedPrefixes(3)).toEqual([]);
  apply(stored([1n, 2n], [100, 200]));
  for (let turn = 0; turn < 5; turn++) apply(stored([BigInt(10 + turn)], [300 + 10 * turn], { parent: 2n }));
  apply(stored([20n], [900], { parent: 10n }), stored([21n], [910], { parent: 10n }), stored([30n], [990]));
  const chain = chainOf(tokensOf(100, 200, 300), blockSize);
  const found = ledger
    .sharedPrefixes(3)
    .map(({ low, high, ...rest }) => ({ hash: (BigInt(high) << 32n) | BigInt(low), ...rest }));
  expect(found).toEqual([
    { hash: chain[1], depthBlocks: 2, continuations: 5, blocksBelow: 7 },
    { hash: chain[2], depthBlocks: 3, continuations: 2, blocksBelow: 2 },
  ]);
  expect(ledger.sharedPrefixes(1)).toHaveLength(1);
});
