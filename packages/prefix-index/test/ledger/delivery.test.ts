import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { EngineCache } from "./engine-cache.ts";
import { batchOf, FoldingSink, hashAt, type TestEvent, testDigests } from "./helpers.ts";
import { PromptFeed, type PromptFeedOptions } from "./prompt-feed.ts";
import { RandomHistory } from "./random-history.ts";

const limits = { maxBlocks: 20_000, maxFloatingBlocks: 5_000 };
const shapes: readonly PromptFeedOptions[] = [
  { engineUnits: 1, routerUnits: 1, limits },
  { engineUnits: 2, routerUnits: 1, limits },
  { engineUnits: 1, routerUnits: 2, limits },
  { engineUnits: 1, routerUnits: 4, limits },
];

function shuffle<T>(random: Random, list: readonly T[]): T[] {
  const left = [...list];
  const shuffled: T[] = [];
  while (left.length > 0) shuffled.push(...left.splice(random.integer(left.length), 1));
  return shuffled;
}

/** Stored events of prompts that meet, each cut into runs. */
function prompts(feed: PromptFeed, random: Random, count: number): TestEvent[] {
  const events: TestEvent[] = [];
  for (let prompt = 0; prompt < count; prompt++) {
    const blocks = 1 + random.integer(10);
    let text = "";
    for (let unit = 0; unit < blocks * feed.engineUnits; unit++) text += random.integer(3) > 0 ? "a" : "b";
    for (let at = 0; at < text.length; ) {
      const end = Math.min(text.length, at + feed.engineUnits * (1 + random.integer(4)));
      const run = text.slice(at, end);
      events.push(feed.stored(at === 0 ? run : `${text.slice(0, at)}|${run}`));
      at = end;
    }
  }
  return events;
}

describe.each(shapes)("engine blocks of $engineUnits, router blocks of $routerUnits", (shape) => {
  test("blocks may be announced in any order", () => {
    for (let seed = 1; seed <= 8; seed++) {
      const random = createSeededRandom(seed);
      const inOrder = new PromptFeed(shape);
      const events = prompts(inOrder, random, 12);
      inOrder.apply(...events);
      const shuffled = new PromptFeed(shape);
      for (const event of shuffle(random, events)) shuffled.apply(event);
      expect(shuffled.sink.blocks, `seed ${seed}`).toEqual(inOrder.sink.blocks);
      expect(shuffled.stats, `seed ${seed}`).toMatchObject({
        blocks: inOrder.stats.blocks,
        nodes: inOrder.stats.nodes,
        floatingBlocks: 0,
        holes: 0,
      });
    }
  });

  test("blocks may be announced in runs of any length", () => {
    for (let seed = 1; seed <= 8; seed++) {
      const [cutOneWay, cutAnother] = [new PromptFeed(shape), new PromptFeed(shape)];
      const random = createSeededRandom(seed);
      const events = prompts(cutOneWay, random, 12);
      cutOneWay.apply(...events);
      const perBlock = cutAnother.engineUnits * 2;
      for (const event of events) {
        for (const [block, hash] of event.hashes!.entries()) {
          cutAnother.apply({
            ...event,
            hashes: [hash],
            parent: block === 0 ? event.parent : event.hashes![block - 1],
            tokens: event.tokens!.slice(block * perBlock, (block + 1) * perBlock),
          });
        }
      }
      expect(cutAnother.sink.blocks).toEqual(cutOneWay.sink.blocks);
    }
  });

  test("the last messages may be delivered again, as a replay from too early on does", () => {
    const [feed, once] = [new PromptFeed(shape), new PromptFeed(shape)];
    const random = createSeededRandom(5);
    const options = { maxDepth: 8, namespaces: [""], tiers: [0, 1], evictsLeaves: true };
    const cache = new EngineCache({ feed, random, ...options });
    const history: TestEvent[] = [];
    for (let round = 0; round < 10; round++) {
      for (let event = 0; event < 30; event++) history.push(cache.next());
      for (const event of history.slice(-30)) {
        once.apply(event);
        feed.apply(event);
      }
      for (const event of history.slice(-random.integer(20) - 1)) feed.apply(event);
      expect(feed.sink.blocks).toEqual(once.sink.blocks);
      expect(feed.sink.holes).toEqual(once.sink.holes);
    }
  });

  test("without some of the stores, what is told is still in the cache", () => {
    let seen = 0;
    let waited = 0;
    for (let seed = 1; seed <= 3; seed++) {
      const random = createSeededRandom(seed);
      const feed = new PromptFeed(shape);
      const cache = new EngineCache({ feed, random, maxDepth: 8, namespaces: [""], tiers: [0], evictsLeaves: true });
      for (let event = 0; event < 200; event++) {
        const next = cache.next();
        if (next.kind === "stored" && random.integer(3) === 0) continue;
        feed.apply(...cutAtRandom(next, feed, random));
        const held = feed.held();
        const truth = new Set(cache.blocks(0));
        expect(
          held.filter((name) => !truth.has(name)),
          `seed ${seed}, event ${event}`,
        ).toEqual([]);
        seen += held.length;
        waited += feed.stats.floatingBlocks;
      }
    }
    expect(Math.min(seen, waited)).toBeGreaterThan(50);
  });

  test("after a loss, an emptied cache and everything announced anew are the truth again", () => {
    const random = createSeededRandom(9);
    const feed = new PromptFeed(shape);
    const cache = new EngineCache({ feed, random, maxDepth: 8, namespaces: [""], tiers: [0, 1], evictsLeaves: true });
    for (let round = 0; round < 10; round++) {
      for (let event = 0; event < 40; event++) {
        const next = cache.next();
        if (random.integer(3) > 0) feed.apply(next);
      }
      feed.ledger.clear();
      for (const event of shuffle(random, cache.announcements())) feed.apply(event);
      expect(feed.held(0)).toEqual(cache.blocks(0));
      expect(feed.held(1)).toEqual(cache.blocks(1));
      for (const tier of [0, 1]) expect(feed.holes(tier)).toEqual(cache.holes(tier));
    }
  });
});

/** A store as one of its own and the rest, the first of which is lost at times. */
function cutAtRandom(event: TestEvent, feed: PromptFeed, random: Random): TestEvent[] {
  const { hashes = [], tokens = [] } = event;
  if (event.kind !== "stored" || hashes.length < 2) return [event];
  const cut = 1 + random.integer(hashes.length - 1);
  const perBlock = 2 * feed.engineUnits;
  const rest = { ...event, hashes: hashes.slice(cut), parent: hashes[cut - 1], tokens: tokens.slice(cut * perBlock) };
  if (random.integer(4) === 0) return [rest];
  return [{ ...event, hashes: hashes.slice(0, cut), tokens: tokens.slice(0, cut * perBlock) }, rest];
}

/** Everything that a sink is told, hash by hash. */
class Transcript extends FoldingSink {
  readonly lines: string[] = [];

  override stored(tier: number, words: Uint32Array, from: number, to: number): void {
    super.stored(tier, words, from, to);
    for (let at = from; at < to; at++) this.lines.push(`stored ${tier} ${hashAt(words, at)}`);
  }

  override removed(tier: number, words: Uint32Array, from: number, to: number): void {
    super.removed(tier, words, from, to);
    for (let at = from; at < to; at++) this.lines.push(`removed ${tier} ${hashAt(words, at)}`);
  }

  override orphaned(tier: number, words: Uint32Array, at: number, depthBlocks: number): void {
    super.orphaned(tier, words, at, depthBlocks);
    this.lines.push(`orphaned ${tier} ${hashAt(words, at)} ${depthBlocks}`);
  }

  override holeGone(tier: number, words: Uint32Array, at: number): void {
    super.holeGone(tier, words, at);
    this.lines.push(`holeGone ${tier} ${hashAt(words, at)}`);
  }

  override cleared(): void {
    super.cleared();
    this.lines.push("cleared");
  }
}

const bits64 = (1n << 64n) - 1n;
/** One-to-one on 64 bits. */
const renamed = (hash: bigint): bigint => (hash * 0x9e3779b97f4a7c15n + 0x1234567n) & bits64;

test.each([
  [4, 4],
  [8, 4],
  [1, 4],
])("what is told does not depend on how the engine calls its blocks: %i in %i", (engine, router) => {
  const transcripts = [renamed, (hash: bigint) => hash].map((nameOf) => {
    const sink = new Transcript();
    const ledger = new FeedLedger({ blockSize: router, digests: testDigests, sink, limits });
    const history = new RandomHistory({ random: createSeededRandom(engine), engine, tiers: 3, maxDepth: 6 });
    for (let event = 0; event < 600; event++) {
      const { event: next } = history.next();
      const { hashes = [], parent } = next;
      ledger.apply(
        batchOf({ ...next, hashes: hashes.map(nameOf), parent: parent === undefined ? undefined : nameOf(parent) }),
      );
    }
    return { lines: sink.lines, nodes: ledger.stats().nodes };
  });
  expect(transcripts[0]!.lines.length).toBeGreaterThan(200);
  expect(transcripts[0]).toEqual(transcripts[1]);
});

test("a batch is read, and not kept: what is in its arrays afterwards means nothing", () => {
  const feed = new PromptFeed();
  const event = feed.stored("abc");
  const batch = batchOf(event, feed.stored("xy|z"));
  feed.ledger.apply(batch);
  for (const array of [batch.hashes, batch.tokens, batch.parent, batch.hashStart, batch.tokenStart]) array.fill(99);
  expect(feed.apply(feed.stored("abc|d"), feed.stored("xy"))).toMatchObject({ storedBlocks: 3, attachedBlocks: 1 });
  expect(feed.held()).toEqual(["a", "ab", "abc", "abcd", "x", "xy", "xyz"]);
});

test("entries of a batch beyond its count mean nothing", () => {
  const feed = new PromptFeed();
  const batch = batchOf(feed.stored("ab"), feed.stored("xy"), { kind: "cleared" });
  batch.count = 1;
  expect(feed.ledger.apply(batch)).toMatchObject({ storedBlocks: 2 });
  expect(feed.held()).toEqual(["a", "ab"]);
  batch.count = 0;
  expect(feed.ledger.apply(batch)).toMatchObject({ storedBlocks: 0, refusedEvents: 0 });
});

test("a report is about its own batch", () => {
  const feed = new PromptFeed();
  const first = feed.ledger.apply(batchOf(feed.stored("ab"), feed.removed("zz")));
  expect(first).toMatchObject({ storedBlocks: 2, unknownRemovals: 1 });
  const second = feed.ledger.apply(batchOf(feed.removed("ab")));
  expect(second).toMatchObject({ storedBlocks: 0, unknownRemovals: 0, removedBlocks: 1 });
});
