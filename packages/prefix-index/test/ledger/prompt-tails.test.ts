import { expect, test } from "vitest";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { batchOf, chainOf, FoldingSink, testDigests } from "./helpers.ts";

// vLLM announces the tail of a prompt as a block of its own, smaller than the others, where blocks are larger than the unit
// of its hashes. Such a feed must not end as one whose engine has changed its block size.
const tail = { kind: "stored" as const, hashes: [9n], tokens: [1, 2], blockSize: 2, group: 0 };
const whole = { kind: "stored" as const, hashes: [1n, 2n], tokens: [1, 2, 3, 4, 5, 6, 7, 8], blockSize: 4, group: 0 };

function feed() {
  const sink = new FoldingSink();
  const ledger = new FeedLedger({ blockSize: 2, digests: testDigests, sink });
  return { sink, ledger };
}

const blocks = new Set(chainOf([1, 2, 3, 4, 5, 6, 7, 8], 2));

test("a tail after whole blocks is left out, and so is its removal", () => {
  const { sink, ledger } = feed();
  ledger.apply(batchOf(whole, { ...tail, parent: 2n }));
  ledger.apply(batchOf({ kind: "removed", hashes: [9n], group: 0 }));
  expect(ledger.stats()).toMatchObject({ unusable: undefined, engineBlockSize: 4, nodes: 4 });
  expect(sink.blocks[0]).toEqual(blocks);
});

test("whole blocks after tails alone begin the feed again", () => {
  const { sink, ledger } = feed();
  ledger.apply(batchOf(tail));
  expect(ledger.stats()).toMatchObject({ engineBlockSize: 2, nodes: 1 });
  ledger.apply(batchOf(whole));
  expect(ledger.stats()).toMatchObject({ unusable: undefined, engineBlockSize: 4, nodes: 4 });
  expect(sink.blocks[0]).toEqual(blocks);
});

test("another size of several blocks is a change", () => {
  const { ledger } = feed();
  ledger.apply(batchOf(whole));
  ledger.apply(batchOf({ ...whole, hashes: [3n, 4n, 5n, 6n], blockSize: 2 }));
  expect(ledger.stats()).toMatchObject({ unusable: "block-size-changed" });
});
