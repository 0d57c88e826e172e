import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { EngineCache } from "./engine-cache.ts";
import { PromptFeed } from "./prompt-feed.ts";

interface Case {
  readonly engineUnits: number;
  readonly routerUnits: number;
  readonly tiers: readonly number[];
  readonly namespaces: readonly string[];
}

const plain = { tiers: [0], namespaces: [""] };
const rich = { tiers: [0, 1, 2], namespaces: ["", "tenant"] };
const cases: readonly Case[] = [
  { engineUnits: 1, routerUnits: 1, ...plain },
  { engineUnits: 1, routerUnits: 1, ...rich },
  { engineUnits: 1, routerUnits: 1, tiers: [2, 0], namespaces: [""] },
  { engineUnits: 2, routerUnits: 1, ...plain },
  { engineUnits: 4, routerUnits: 1, ...rich },
  { engineUnits: 1, routerUnits: 2, ...plain },
  { engineUnits: 1, routerUnits: 2, ...rich },
  { engineUnits: 1, routerUnits: 4, ...rich },
  { engineUnits: 1, routerUnits: 16, ...plain },
];
const eventsPerRun = 130;
const limits = { maxBlocks: 20_000, maxFloatingBlocks: 1_000 };

function setUp(from: Case, seed: number, evictsLeaves: boolean) {
  const { engineUnits, routerUnits, tiers, namespaces } = from;
  const feed = new PromptFeed({ engineUnits, routerUnits, limits });
  const random = createSeededRandom(seed);
  const maxDepth = 3 + Math.ceil((2 * routerUnits) / engineUnits);
  return { feed, random, cache: new EngineCache({ feed, random, maxDepth, namespaces, tiers, evictsLeaves }) };
}

const stateOf = (feed: PromptFeed, tiers: readonly number[]) =>
  tiers.map((tier) => ({ blocks: feed.held(tier), holes: feed.holes(tier) }));

const truthOf = (cache: EngineCache, tiers: readonly number[]) =>
  tiers.map((tier) => ({ blocks: cache.blocks(tier), holes: cache.holes(tier) }));

describe.each(cases)("engine blocks of $engineUnits, router blocks of $routerUnits, tiers $tiers", (from) => {
  test("after every event the sink was told what is in the cache, and the missing blocks above that", () => {
    for (let seed = 1; seed <= 2; seed++) {
      const { feed, cache } = setUp(from, seed, false);
      for (let event = 0; event < eventsPerRun; event++) {
        feed.apply(cache.next());
        const at = `seed ${seed}, event ${event}`;
        expect(stateOf(feed, from.tiers), at).toEqual(truthOf(cache, from.tiers));
        expect({ blocks: feed.stats.blocks, holes: feed.stats.holes }, at).toEqual(feed.reported());
      }
    }
  });

  test("an engine that evicts leaves first leaves no holes", () => {
    const { feed, cache } = setUp({ ...from, tiers: from.tiers.slice(0, 1) }, 11, true);
    for (let event = 0; event < eventsPerRun; event++) {
      feed.apply(cache.next());
      expect(feed.stats.holes).toBe(0);
    }
    expect(feed.sink.log.some((line) => line.startsWith("orphaned"))).toBe(false);
  });

  test("nothing that is announced again is told again", () => {
    const { feed, cache } = setUp(from, 21, false);
    for (let event = 0; event < eventsPerRun || cache.announcements().length < 3; event++) feed.apply(cache.next());
    const reported = feed.sink.log.length;
    const { nodes } = feed.stats;
    const events = cache.announcements();
    const named = new Set(events.map(({ hashes }) => hashes![0]));
    // A parent that is gone may have no name any more, and what is below it would wait.
    const again = events.filter(({ parent }) => parent === undefined || named.has(parent));
    expect(again.length).toBeGreaterThan(0);
    for (const event of again) expect(feed.apply(event)).toMatchObject({ floatedBlocks: 0 });
    expect(feed.sink.log).toHaveLength(reported);
    expect(feed.stats.nodes).toBe(nodes);
  });

  test("several events in a message end as one by one", () => {
    const [single, whole] = [setUp(from, 31, false), setUp(from, 31, false)];
    for (let batch = 0; batch < 40; batch++) {
      const events = Array.from({ length: 1 + single.random.integer(12) }, () => single.cache.next());
      for (const event of events) single.feed.apply(event);
      whole.feed.apply(...events);
      expect(whole.feed.sink.blocks).toEqual(single.feed.sink.blocks);
      expect(whole.feed.sink.holes).toEqual(single.feed.sink.holes);
    }
    const { bytes: _, ...stats } = single.feed.stats;
    expect(whole.feed.stats).toMatchObject(stats);
  });

  test("the removal of all blocks leaves nothing, in any order", () => {
    for (let seed = 41; seed < 43; seed++) {
      const { feed, cache, random } = setUp(from, seed, false);
      for (let event = 0; event < eventsPerRun; event++) feed.apply(cache.next());
      const removals = cache.announcements().map(({ hashes, tier }) => ({ hashes: hashes!, tier: tier! }));
      while (removals.length > 0) {
        const [{ hashes, tier }] = removals.splice(random.integer(removals.length), 1) as [(typeof removals)[number]];
        feed.apply({ kind: "removed", hashes, tier });
        expect({ blocks: feed.stats.blocks, holes: feed.stats.holes }).toEqual(feed.reported());
      }
      expect(feed.stats).toMatchObject({ nodes: 0, holes: 0, blocks: [0, 0, 0, 0], floatingBlocks: 0 });
    }
  });
});

test("blocks are told parents before children, within an event", () => {
  for (const from of cases) {
    const { feed, cache } = setUp(from, 51, false);
    const reported: string[][] = [[], [], []];
    const { sink } = feed;
    const stored = sink.stored.bind(sink);
    sink.stored = (tier, words, begin, end) => {
      const before = new Set(sink.blocks[tier]);
      stored(tier, words, begin, end);
      for (const hash of sink.blocks[tier]!) if (!before.has(hash)) reported[tier]!.push(feed.nameOf(hash));
    };
    for (let event = 0; event < eventsPerRun; event++) {
      feed.apply(cache.next());
      for (const names of reported) {
        for (const [at, name] of names.entries()) {
          expect(names.slice(0, at).filter((earlier) => earlier.startsWith(name))).toEqual([]);
        }
        names.length = 0;
      }
    }
  }
});

test("long runs come in pieces that are together what one run would be", () => {
  const feed = new PromptFeed();
  const text = "abcde".repeat(205);
  feed.apply(feed.stored(text));
  expect(feed.sink.log).toEqual(["stored 0 1024", "stored 0 1"]);
  expect([...feed.sink.blocks[0]!]).toEqual(feed.chain(text));
  feed.apply({ kind: "removed", hashes: feed.stored(text).hashes! });
  expect(feed.sink.log.slice(2)).toEqual(["removed 0 1024", "removed 0 1"]);
});
