import { tier } from "@espalier/prefix-index";
import { expect, test } from "vitest";
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

// LMCache tells of its chunks of 256 tokens in the stream of an engine with blocks of 16: all that was known of the engine
// used to be given up for that, and later the chunks were left out.
test.each(["cpu", "disk", "external"] as const)(
  "blocks of another size in the tier %s are in external memory, and those in the GPU stay",
  (name) => {
    const { sink, ledger, apply } = setUp();
    const chunk = (hash: bigint, blocks: readonly number[], parent?: bigint) =>
      stored([hash], blocks, { blockSize: 8, tier: tier[name], parent });
    apply(stored([1n], [100]), chunk(2n, [100, 200]), stored([3n], [300], { parent: 1n }), chunk(4n, [300, 400], 2n));
    expect(ledger.stats()).toMatchObject({ unusable: undefined, engineBlockSize: 4, blocks: [2, 0, 0, 4] });
    expect(sink.blocks[tier.gpu]!.size).toBe(2);
    // Chunks of two blocks, and the blocks.
    expect([...sink.blocks[tier.external]!]).toEqual([2n, ...chainOf(tokensOf(100, 200, 300, 400), blockSize)]);
    apply(stored([1n], [100], { tier: tier.cpu }));
    expect(apply({ kind: "removed", hashes: [2n, 9n], tier: tier[name] })).toMatchObject({
      removedBlocks: 1,
      unknownRemovals: 1,
    });
    expect(ledger.stats().blocks).toEqual([2, 1, 0, 2]);
    expect(apply(stored([5n], [100, 200, 300], { blockSize: 12, tier: tier[name] }))).toMatchObject({
      refusedEvents: 1,
    });
    ledger.clear();
    expect(ledger.stats()).toMatchObject({ blocks: [0, 0, 0, 0], nodes: 0 });
  },
);

// An engine that starts beside a full LMCache server may announce its chunks before a block of its own: the first block
// of another size then made the feed unusable for good.
test("chunks that come before the first block of the GPU are no blocks of the engine", () => {
  const { sink, ledger, apply } = setUp();
  const chunk = (hash: bigint, blocks: readonly number[], parent?: bigint) =>
    stored([hash], blocks, { blockSize: 8, tier: tier.cpu, parent });
  apply(chunk(1n, [100, 200]), chunk(2n, [300, 400], 1n), chunk(3n, [100, 200]));
  apply(stored([7n, 8n], [100, 200]));
  expect(ledger.stats()).toMatchObject({ unusable: undefined, engineBlockSize: 4, blocks: [2, 0, 0, 4] });
  expect(sink.blocks[tier.cpu]!.size).toBe(0);
  const chunks = [2n, ...chainOf(tokensOf(100, 200, 300, 400), blockSize)];
  expect(sink.blocks[tier.external]).toEqual(new Set(chunks));
  const synced = setUp().sink;
  ledger.tellAll(synced);
  expect(synced.blocks[tier.external]).toEqual(sink.blocks[tier.external]);
  apply({ kind: "removed", hashes: [2n, 1n], tier: tier.cpu });
  expect(ledger.stats().blocks).toEqual([2, 0, 0, 2]);
  apply({ kind: "removed", hashes: [3n], tier: tier.cpu });
  expect(ledger.stats().blocks).toEqual([2, 0, 0, 0]);
  apply({ kind: "cleared" });
  expect(ledger.stats()).toMatchObject({ nodes: 0 });
});

test("a stream of chunks alone is followed by the size of the first, and a second size beside it", () => {
  const { sink, ledger, apply } = setUp();
  const chunk = (hash: bigint, ...blocks: readonly number[]) =>
    stored([hash], blocks, { blockSize: 4 * blocks.length, tier: tier.external });
  apply(chunk(1n, 100, 200), chunk(2n, 500), chunk(3n, 300, 400));
  expect(ledger.stats()).toMatchObject({ engineBlockSize: 8, blocks: [0, 0, 0, 5] });
  expect(sink.blocks[tier.external]!.size).toBe(6);
});

// vLLM's `block_size` of the offloading connector: it announces all blocks of a chunk, finds it by the last, and fetches
// whole chunks. A prompt that parted inside one was predicted a block too long.
test("blocks that vLLM offloads together are a chunk with the name of the last", () => {
  const { sink, ledger, apply } = setUp();
  apply(stored([1n, 2n], [100, 200], { group: 0 }));
  apply(stored([1n, 2n], [100, 200], { group: 0, tier: tier.cpu }), {
    ...stored([3n, 4n], [300, 400], { parent: 2n, group: 0 }),
    tier: tier.cpu,
  });
  expect(ledger.stats().blocks).toEqual([2, 0, 0, 4]);
  expect(sink.blocks[tier.external]!.has(0x1_0002n)).toBe(true);
  apply({ kind: "removed", hashes: [1n], tier: tier.cpu, group: 0 });
  expect(ledger.stats().blocks).toEqual([2, 0, 0, 4]);
  apply({ kind: "removed", hashes: [2n, 3n, 4n], tier: tier.cpu, group: 0 });
  expect(ledger.stats().blocks).toEqual([2, 0, 0, 0]);
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
