import { createSeededRandom } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { checkpoint, declarationOf, feedOf, originOf, record, storeOf, sync } from "./journal-fixtures.ts";

describe("a feed of the own journal", () => {
  test.each(fixedSeeds(10))("leaves nothing behind when it ends, here and at a reader, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const { store, time } = storeOf("alice", { maxFeeds: 64 });
    const reader = storeOf("bob").store;
    const { own } = store;
    const numbers = new Set<number>();
    const open = new Map<number, number>();
    for (let step = 0; step < 2_000; step++) {
      const epoch = feedOf(`t${random.integer(4)}`, random.integer(3));
      const kind = random.integer(6);
      if (kind < 3) {
        const feed = kind === 0 ? own.placingFeed(epoch) : own.declareFeed(epoch);
        numbers.add(feed);
        if (kind > 0) {
          const sequence = (open.get(feed) ?? 0) + 1;
          open.set(feed, sequence);
          own.writeFact(random.integer(4) === 0 ? checkpoint(feed, sequence) : record(feed, sequence));
        }
      } else if (kind === 3) {
        own.writePlacements(Uint8Array.of(1), time.clock.nowMs() + random.integer(5_000));
      } else if (kind === 4) {
        const known = [...numbers];
        own.retireFeed(known[random.integer(known.length)] ?? 0);
      } else {
        time.advance(random.integer(1_000));
        own.commit();
        sync(store, reader, own.name);
      }
    }
    expect(numbers.size).toBeGreaterThan(60);
    for (let target = 0; target < 4; target++) own.retireFeedsOf(`t${target}`);
    time.advance(5_000);
    // The first deletes what needed the feeds, the second what says what they are, should that come later.
    for (let commit = 0; commit < 2; commit++) {
      own.placingFeed(feedOf("last", commit));
      own.commit();
    }
    own.retireFeedsOf("last");
    own.placingFeed(feedOf("another"));
    own.commit();
    sync(store, reader, own.name);
    expect(Array.from(own.feeds(), ({ declaration }) => declaration)).toEqual([feedOf("another")]);
    expect([store.stats().ownFactItems, store.stats().ownPlacementItems]).toEqual([0, 0]);
    const origin = originOf("alice");
    for (const number of numbers) {
      expect([own.declarationOf(number), declarationOf(reader, origin, number)]).toEqual([undefined, undefined]);
    }
  });

  test("that is retired twice does not take along the one that has its target and epoch since", () => {
    const { store } = storeOf("alice");
    const { own } = store;
    const first = own.declareFeed(feedOf("t"));
    own.writeFact(record(first, 1));
    own.commit();
    own.retireFeed(first);
    const second = own.declareFeed(feedOf("t"));
    own.retireFeed(first);
    expect([second === first, own.declareFeed(feedOf("t"))]).toEqual([false, second]);
    own.retireFeedsOf("t");
    own.commit();
    expect([...own.feeds()]).toEqual([]);
  });
});
