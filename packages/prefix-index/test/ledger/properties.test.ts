import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { batchOf, FoldingSink, testDigests } from "./helpers.ts";
import { NaiveLedger } from "./naive-ledger.ts";
import { RandomHistory } from "./random-history.ts";

const eventsPerHistory = 1_000;

/** Engine and router block sizes, tiers, histories at full depth. */
const cases = [
  [4, 4, 1, 20],
  [4, 4, 3, 20],
  [8, 4, 2, 10],
  [16, 4, 1, 10],
  [16, 1, 2, 10],
  [2, 4, 2, 15],
  [1, 4, 1, 10],
  [1, 16, 2, 15],
] as const;

test.each(cases)(
  "engine blocks of %i in router blocks of %i, %i tiers: as the naive ledger",
  (engine, router, tiers, histories) => {
    for (const seed of fixedSeeds(histories, 1)) {
      try {
        compareOver({ engine, router, tiers, seed });
      } catch (error) {
        throw new Error(`engine ${engine}, router ${router}, tiers ${tiers}: seed ${seed}`, { cause: error });
      }
    }
  },
);

function compareOver(options: { engine: number; router: number; tiers: number; seed: number }): void {
  const { engine, router, tiers, seed } = options;
  const random = createSeededRandom(seed * 1_000 + engine * 17 + router);
  const sink = new FoldingSink();
  const maxFloating = 40;
  const ledger = new FeedLedger({
    blockSize: router,
    digests: testDigests,
    sink,
    limits: { maxFloatingBlocks: maxFloating },
  });
  const naive = new NaiveLedger({ engine, router, maxFloating });
  const history = new RandomHistory({ random, engine, tiers, maxDepth: 3 + Math.ceil((2 * router) / engine) });
  for (let event = 0; event < eventsPerHistory; event++) {
    const next = history.next();
    if (random.integer(12) === 0) continue;
    const report = ledger.apply(batchOf(next.event));
    expect(report, `event ${event}`).toMatchObject(next.applyTo(naive));
    if (engine >= router && random.integer(40) === 0) attachSome({ ledger, naive, history, random });
    if (event % 25 !== 0) continue;
    const expected = naive.outcome();
    expect({ event, blocks: sink.blocks }).toEqual({ event, blocks: expected.blocks });
    expect({ event, holes: sink.holes }).toEqual({ event, holes: expected.holes });
    const stats = ledger.stats();
    expect(stats.floatingBlocks).toBe(naive.floatingCount());
    expect(stats.blocks).toEqual(expected.blocks.map((blocks) => blocks.size));
    expect(stats.holes).toBe(expected.holes.reduce((sum, holes) => sum + holes.size, 0));
  }
  for (const tier of [0, 1, 2, 3]) ledger.apply(batchOf({ kind: "removed", hashes: naive.names(), tier }));
  expect(ledger.stats()).toMatchObject({ nodes: 0, floatingBlocks: 0, holes: 0, blocks: [0, 0, 0, 0] });
}

/** Recognizes some of what floats as what follows a prompt, no matter which. */
function attachSome(on: { ledger: FeedLedger; naive: NaiveLedger; history: RandomHistory; random: Random }): void {
  const { ledger, naive, history, random } = on;
  const names = naive.unknownNames().reverse();
  let offered = 0;
  ledger.attachFloating(() => {
    const name = names[offered++]!;
    if (random.integer(3) > 0) return undefined;
    const { blocks } = history.prompt();
    const words = Uint32Array.from(naive.pathOf(blocks));
    naive.attach(name, blocks);
    return { words, blocks: words.length / 2 };
  });
  expect(offered).toBe(names.length);
}
