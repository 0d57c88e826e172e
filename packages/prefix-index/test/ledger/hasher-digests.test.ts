import { chainRoot, createBlockHasher, createHasherDigests, createSeededRandom } from "@espalier/core";
import { tier } from "@espalier/prefix-index";
import { expect, test } from "vitest";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { batchOf, FoldingSink, hashAt } from "./helpers.ts";

const hasher = createBlockHasher();

/** The chain hashes of a prompt as a router works them out. */
function chainOf(tokens: readonly number[], blockSize: number, adapter?: string): bigint[] {
  const chain = new Uint32Array(2 * Math.floor(tokens.length / blockSize));
  const parent = chainRoot({ seed: "test", adapter, blockSize, unit: "tokens" });
  hasher.hashTokens({ tokens: Uint32Array.from(tokens), blockSize, parent, chain });
  return Array.from({ length: chain.length / 2 }, (_, at) => hashAt(chain, at));
}

function setUp(blockSize: number) {
  const sink = new FoldingSink();
  const digests = createHasherDigests({
    hasher,
    root: (adapter, cacheSalt) => chainRoot({ seed: "test", adapter, cacheSalt, blockSize, unit: "tokens" }),
  });
  return { sink, ledger: new FeedLedger({ blockSize, digests, sink }) };
}

test.each([
  [16, 16],
  [100, 20],
  [8, 16],
])("what an engine with blocks of %i stores is what a router with blocks of %i asks for", (engine, router) => {
  const random = createSeededRandom(engine);
  const { sink, ledger } = setUp(router);
  const blocks = 1_600 / engine;
  const tokens = Array.from({ length: blocks * engine }, () => random.integer(2 ** 32));
  const hashes = Array.from({ length: blocks }, (_, block) => BigInt(block + 1));
  let at = 0;
  while (at < blocks) {
    const next = Math.min(blocks, at + 1 + random.integer(40));
    ledger.apply(
      batchOf({
        kind: "stored",
        hashes: hashes.slice(at, next),
        tokens: tokens.slice(at * engine, next * engine),
        blockSize: engine,
        parent: at === 0 ? undefined : hashes[at - 1],
        detail: { adapter: "lora" },
      }),
    );
    at = next;
  }
  expect(sink.blocks[tier.gpu]).toEqual(new Set(chainOf(tokens, router, "lora")));
});
