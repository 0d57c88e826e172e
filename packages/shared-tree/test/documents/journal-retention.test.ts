import { describe, expect, test } from "vitest";
import * as Y from "yjs";
import { itemOverheadBytes } from "../../src/documents/journal-document.ts";
import { maxPlacementItemBytes } from "../../src/documents/own-journal.ts";
import { journalContent } from "./journal-content.ts";
import {
  checkpoint,
  claimOf,
  declarationOf,
  entriesOf,
  feedOf,
  originOf,
  record,
  storeOf,
  sync,
  textOf,
  wholeUpdate,
} from "./journal-fixtures.ts";

const alice = originOf("alice");

/** A writer whose updates a reader takes at once. */
function pair(limits = {}) {
  const writer = storeOf("alice", limits);
  const reader = storeOf("bob").store;
  writer.store.onUpdate((update) => reader.apply(update));
  const held = () => entriesOf(reader, alice).map(textOf);
  return { ...writer, own: writer.store.own, reader, held };
}

/** How many structs a document has. */
function structsOf(update: Uint8Array): number {
  return Y.decodeUpdate(update).structs.length;
}

describe("settled entries", () => {
  test("items go once every entry in them is settled, with the next thing that is written", () => {
    const { own, held, store } = pair();
    const [a, b] = [own.declareFeed(feedOf("a")), own.declareFeed(feedOf("b"))];
    own.writeFact(record(a, 1));
    own.writeFact(record(b, 1));
    own.commit();
    own.writeFact(record(a, 2));
    own.commit();
    own.writeFact(checkpoint(a, 2));
    own.settle(a, 2);
    own.commit();
    expect(held()).toEqual(["record 1.1", "record 2.1", "checkpoint 1.2"]);
    own.settle(b, 1);
    own.commit();
    expect(own.hasPending).toBe(false);
    expect(held()).toHaveLength(3);
    own.writeFact({ kind: "gap", feed: b, from: 2, to: 4 });
    own.commit();
    expect(held()).toEqual(["checkpoint 1.2", "gap 2.2-4"]);
    own.settle(b, 3);
    own.writeFact(record(b, 5));
    own.commit();
    expect(held()).toContain("gap 2.2-4");
    own.settle(b, 4);
    own.claim(claimOf("a"));
    own.commit();
    expect(held()).toEqual(["checkpoint 1.2", "record 2.5"]);
    expect(store.stats()).toMatchObject({ ownFactItems: 2, ownPlacementItems: 0, documents: 1 });
  });

  test("the newest checkpoint of a feed stays, whatever is settled; older ones go", () => {
    const { own, held } = pair();
    const feed = own.declareFeed(feedOf("a"));
    for (let sequence = 1; sequence <= 3; sequence++) {
      own.writeFact(record(feed, sequence));
      own.writeFact(checkpoint(feed, sequence));
      own.settle(feed, sequence);
      own.commit();
    }
    own.settle(feed, 1_000);
    own.claim(claimOf("a"));
    own.commit();
    expect(held()).toEqual(["record 1.3", "checkpoint 1.3"]);
  });
});

describe("retired feeds", () => {
  test("a retired feed leaves nothing, its declaration goes when no item mentions it any more", () => {
    const { own, held, reader } = pair();
    const [a, b] = [own.declareFeed(feedOf("a")), own.declareFeed(feedOf("b"))];
    own.writeFact(checkpoint(a, 1));
    own.writeFact(record(b, 1));
    own.commit();
    own.retireFeed(a);
    own.retireFeed(99);
    own.claim(claimOf("x"));
    own.commit();
    expect(held()).toEqual(["checkpoint 1.1", "record 2.1"]);
    expect(declarationOf(reader, alice, a)).toEqual(feedOf("a"));
    own.settle(b, 1);
    own.claim(claimOf("y"));
    own.commit();
    expect(held()).toEqual([]);
    expect(declarationOf(reader, alice, a)).toBeUndefined();
    expect(declarationOf(reader, alice, b)).toEqual(feedOf("b"));
  });

  test("all feeds of a target are retired together, those of others stay, and it may have feeds again", () => {
    const { own, held, reader } = pair();
    const of = (target: string, epoch: number) => own.declareFeed(feedOf(target, epoch));
    const [first, second, other] = [of("a", 1), of("a", 2), of("b", 1)];
    const unknown = own.declareFeed({ target: "a", epoch: null });
    for (const feed of [first, second, other]) {
      own.writeFact(checkpoint(feed, 1));
      own.commit();
    }
    own.retireFeedsOf("a");
    own.retireFeedsOf("a");
    own.retireFeedsOf("nobody");
    own.claim(claimOf("x"));
    own.commit();
    own.claim(claimOf("y"));
    own.commit();
    expect(held()).toEqual([`checkpoint ${other}.1`]);
    expect([first, second, unknown].map((feed) => declarationOf(reader, alice, feed))).toEqual(
      Array(3).fill(undefined),
    );
    const again = of("a", 2);
    expect(again).toBeGreaterThan(unknown);
    own.writeFact(checkpoint(again, 7));
    own.commit();
    expect(held()).toEqual([`checkpoint ${other}.1`, `checkpoint ${again}.7`]);
  });

  // Placements of a feed that had been retired meant nothing to a router that came later: the declaration of the feed was
  // deleted with the last item of facts that mentioned it, whereas placements refer to it for as long as they live.
  test("the declaration of a retired feed stays for as long as a placement item may mention it", () => {
    const { own, reader, store, time } = pair();
    const feed = own.declareFeed(feedOf("a"));
    own.writeFact(checkpoint(feed, 1));
    own.writePlacements(Uint8Array.of(1), time.clock.nowMs() + 1_000);
    own.commit();
    own.retireFeed(feed);
    own.claim(claimOf("x"));
    own.commit();
    own.claim(claimOf("y"));
    own.commit();
    const late = storeOf("carol").store;
    sync(store, late, own.name);
    for (const each of [reader, late]) expect(declarationOf(each, alice, feed)).toEqual(feedOf("a"));
    own.writePlacements(Uint8Array.of(2), time.clock.nowMs() + 9_000);
    time.advance(2_000);
    own.commit();
    own.writePlacements(Uint8Array.of(3), time.clock.nowMs() + 9_000);
    own.commit();
    time.advance(10_000);
    own.claim(claimOf("z"));
    own.commit();
    expect(declarationOf(reader, alice, feed)).toBeUndefined();
  });

  test("a feed that is retired before it was committed is never written", () => {
    const { own, reader, updates } = pair();
    own.retireFeed(own.declareFeed(feedOf("a")));
    own.commit();
    expect(updates).toHaveLength(0);
    own.claim(claimOf("x"));
    own.commit();
    expect(declarationOf(reader, alice, 1)).toBeUndefined();
  });

  test("ops since the checkpoint of a feed are counted", () => {
    const { own } = pair();
    const feed = own.declareFeed(feedOf("a"));
    own.writeFact(record(feed, 1, 10));
    own.writeFact({ kind: "gap", feed, from: 2, to: 3 });
    own.writeFact(record(feed, 4, 5));
    expect(own.opsSinceCheckpoint(feed)).toBe(15);
    own.writeFact(checkpoint(feed, 4));
    expect(own.opsSinceCheckpoint(feed)).toBe(0);
    expect(own.opsSinceCheckpoint(77)).toBe(0);
  });

  test("with nothing to write, deletions wait until there are many, and travel with an empty item then", () => {
    const { own, updates, held } = pair();
    const feed = own.declareFeed(feedOf("a"));
    for (let sequence = 1; sequence <= 64; sequence++) {
      own.writeFact(record(feed, sequence));
      own.commit();
    }
    own.settle(feed, 63);
    expect(own.hasPending).toBe(false);
    own.settle(feed, 64);
    expect(own.hasPending).toBe(true);
    own.commit();
    expect(held()).toEqual([]);
    const last = updates.at(-1)!;
    expect(last.to - last.from).toBe(1);
    expect(last.bytes.length).toBeLessThan(60);
    expect(own.hasPending).toBe(false);
  });
});

describe("placement items", () => {
  test("stay until they expire, or longer where they are kept", () => {
    const { own, time, reader, store } = pair();
    const first = own.writePlacements(Uint8Array.of(1), 100);
    const second = own.writePlacements(Uint8Array.of(2), 100);
    own.commit();
    own.keepPlacements(second, 300);
    own.keepPlacements(second, 200);
    own.keepPlacements(999, 200);
    time.advance(99);
    expect(own.holdsPlacements(first)).toBe(true);
    time.advance(1);
    expect([own.holdsPlacements(first), own.holdsPlacements(second), own.holdsPlacements(9)]).toEqual([
      false,
      true,
      false,
    ]);
    own.claim(claimOf("x"));
    own.commit();
    expect(store.stats().ownPlacementItems).toBe(1);
    time.advance(200);
    own.claim(claimOf("y"));
    own.commit();
    expect(store.stats().ownPlacementItems).toBe(0);
    expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
  });

  test("beyond the room the oldest go, and are known to go before they do", () => {
    const { own, store } = pair({ maxPlacementBytes: 8 * (1_000 + itemOverheadBytes) });
    const items: number[] = [];
    for (let at = 0; at < 8; at++) items.push(own.writePlacements(new Uint8Array(1_000), 1e9));
    own.commit();
    expect(store.stats().ownPlacementItems).toBe(8);
    expect(items.map((item) => own.holdsPlacements(item)).indexOf(true)).toBe(1);
    items.push(own.writePlacements(new Uint8Array(1), 1e9));
    own.commit();
    expect(store.stats().ownPlacementItems).toBe(8);
    expect(items.map((item) => own.holdsPlacements(item)).indexOf(true)).toBe(2);
  });

  test("more than fits between two commits is not written at all", () => {
    const { own, store, updates } = pair({ maxPlacementBytes: 4 * (1_000 + itemOverheadBytes) });
    for (let at = 0; at < 100; at++) own.writePlacements(new Uint8Array(1_000), 1e9);
    own.commit();
    expect(store.stats().ownPlacementItems).toBe(4);
    expect(updates[0]!.bytes.length).toBeLessThan(5_000);
  });

  test("an item larger than the bound is refused", () => {
    const { own } = pair();
    own.writePlacements(new Uint8Array(maxPlacementItemBytes), 1);
    expect(() => own.writePlacements(new Uint8Array(maxPlacementItemBytes + 1), 1)).toThrow(RangeError);
  });

  test("expiry is in order of time, whatever the order of writing", () => {
    const { own, time, store } = pair();
    for (let at = 0; at < 200; at++) own.writePlacements(Uint8Array.of(at), 1 + ((at * 67) % 200));
    own.commit();
    for (let nowMs = 20; nowMs <= 200; nowMs += 20) {
      time.advance(20);
      own.claim(claimOf("x", nowMs));
      own.commit();
      expect(store.stats().ownPlacementItems).toBe(200 - nowMs);
    }
  });
});

test("after a hundredfold turnover a journal is as large as it was, in structs and in bytes, here and there", () => {
  const { own, time, store, reader } = pair();
  const sizes: { structs: number; bytes: number; there: number; byteLength: number }[] = [];
  const feeds = ["a", "b", "c"].map((target) => own.declareFeed(feedOf(target)));
  for (let tick = 0; tick < 100 * 60; tick++) {
    for (const [at, feed] of feeds.entries()) {
      own.writeFact(record(feed, tick));
      if (tick % 20 !== 7 * at) continue;
      own.writeFact(checkpoint(feed, tick));
      own.settle(feed, tick);
    }
    own.writePlacements(Uint8Array.of(tick & 255, tick >> 8), time.clock.nowMs() + 400 + (tick % 7) * 50);
    if (tick % 5 === 0) own.claim(claimOf("a", tick));
    if (tick % 60 === 0) own.retireFeed(own.declareFeed(feedOf("d", tick)));
    own.commit();
    time.advance(25);
    if (tick % 60 !== 59 || tick < 100) continue;
    const update = wholeUpdate(store, own.name);
    const there = structsOf(wholeUpdate(reader, own.name));
    sizes.push({ structs: structsOf(update), bytes: update.length, there, byteLength: store.stats().byteLength });
  }
  const [first, last] = [sizes[0]!, sizes.at(-1)!];
  expect(first.structs).toBeLessThan(200);
  expect(last.structs).toBeLessThan(first.structs * 1.2);
  expect(last.there).toBe(last.structs);
  expect(last.bytes).toBeLessThan(first.bytes * 1.3);
  expect(last.byteLength).toBe(reader.state(own.name)?.byteLength);
  expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
  const joiner = storeOf("carol").store;
  sync(reader, joiner, own.name, 500);
  expect(journalContent(joiner, own.name)).toEqual(journalContent(store, own.name));
  expect(joiner.state(own.name)).toEqual(reader.state(own.name));
});
