import { EspalierError } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { maxCommitBytes } from "../../src/documents/own-journal.ts";
import { journalContent } from "./journal-content.ts";
import {
  checkpoint,
  claimOf,
  claimsOf,
  declarationOf,
  entriesOf,
  feedOf,
  originOf,
  record,
  recordingObserver,
  storeOf,
  sync,
} from "./journal-fixtures.ts";

const [alice, bob] = [originOf("alice"), originOf("bob")];

/** A writer and a reader, whose updates the test delivers. */
function pair(limits = {}) {
  const writer = storeOf("alice");
  const reader = storeOf("bob", limits);
  const { reported, observer } = recordingObserver();
  reader.store.observe(observer);
  return { ...writer, own: writer.store.own, reader: reader.store, reported };
}

describe("what a writer commits", () => {
  test("is told to observers in the order: feeds, facts, placements, claims", () => {
    const { own, updates, reader, reported } = pair();
    own.claim(claimOf("t1"));
    own.writePlacements(Uint8Array.of(1, 2), 1_000);
    const feed = own.declareFeed(feedOf("t1"));
    own.writeFact(record(feed, 5));
    own.writeFact({ kind: "gap", feed, from: 6, to: 8 });
    own.writeFact(checkpoint(feed, 5));
    expect(updates).toHaveLength(0);
    expect(own.hasPending).toBe(true);
    own.commit();
    expect(own.hasPending).toBe(false);
    expect(updates).toHaveLength(1);
    expect(updates[0]).toMatchObject({ name: "journal/default/alice/1", from: 0, to: 4 });
    expect(reader.apply(updates[0]!)).toBe("applied");
    expect(reported).toEqual([
      "alice feed 1 t1",
      "alice facts record 1.5,gap 1.6-8,checkpoint 1.5",
      "alice placements 1,2",
      "alice claim t1 1",
    ]);
    expect(declarationOf(reader, alice, 1)).toEqual(feedOf("t1"));
    expect(claimsOf(reader, alice)).toEqual(new Map([["t1", claimOf("t1")]]));
    expect(own.claims).toEqual(claimsOf(reader, alice));
    expect(entriesOf(reader, alice)).toEqual([
      record(1, 5),
      { kind: "gap", feed: 1, from: 6, to: 8 },
      checkpoint(1, 5),
    ]);
  });

  test("nothing pending makes no update", () => {
    const { own, updates } = pair();
    own.commit();
    expect(own.hasPending).toBe(false);
    expect(updates).toHaveLength(0);
  });

  test("feeds have one number for the same target and epoch, and numbers are never given again", () => {
    const { own } = pair();
    const first = own.declareFeed(feedOf("t1"));
    expect(own.declareFeed(feedOf("t1"))).toBe(first);
    expect(own.declareFeed(feedOf("t1", 4))).not.toBe(first);
    expect(own.declareFeed({ target: "t1", epoch: null })).toBe(own.declareFeed({ target: "t1", epoch: null }));
    own.retireFeed(first);
    expect(() => own.writeFact(record(first, 1))).toThrow(RangeError);
    expect(own.declareFeed(feedOf("t1"))).toBeGreaterThan(first + 2);
  });

  test("a claim that changes or ends reaches readers, those too that missed the update", () => {
    const { store, own, updates, reader, reported } = pair();
    own.claim(claimOf("t1"));
    own.claim(claimOf("t2"));
    own.commit();
    reader.apply(updates[0]!);
    own.claim(claimOf("t1", 2));
    own.unclaim("t2");
    own.unclaim("t3");
    own.commit();
    reported.length = 0;
    sync(store, reader, own.name);
    expect(reported).toEqual(["alice claim t1 2", "alice claim t2 undefined"]);
    own.unclaim("t1");
    own.commit();
    own.claim(claimOf("t4"));
    own.unclaim("t4");
    own.commit();
    sync(store, reader, own.name);
    expect(reported.slice(2)).toEqual(["alice claim t1 undefined"]);
    expect(claimsOf(reader, alice).size).toBe(0);
  });

  test("more than a mebibyte is committed in parts, each of which others take", () => {
    const { own, updates, reader } = pair();
    const feed = own.declareFeed(feedOf("t1"));
    for (let sequence = 0; sequence < 40; sequence++) own.writeFact(record(feed, sequence, 10_000));
    own.commit();
    expect(updates).toHaveLength(4);
    for (const update of updates) {
      expect(update.bytes.length).toBeLessThan(maxCommitBytes + 1_000);
      expect(reader.apply(update)).toBe("applied");
    }
    expect(entriesOf(reader, alice)).toHaveLength(40);
  });

  test("claims and feeds beyond the bound, and texts that others would refuse, are refused at once", () => {
    const { store } = storeOf("alice", { maxFeeds: 2 });
    const { own } = store;
    own.declareFeed(feedOf("t1"));
    own.declareFeed(feedOf("t2"));
    expect(() => own.declareFeed(feedOf("t3"))).toThrow(RangeError);
    own.claim(claimOf("t1"));
    own.claim(claimOf("t2"));
    expect(() => own.claim(claimOf("t3"))).toThrow(RangeError);
    own.claim(claimOf("t2", 2));
    expect(() => own.claim({ ...claimOf("t1"), reason: "x".repeat(5_000) })).toThrow(RangeError);
    own.retireFeed(1);
    own.commit();
    expect(() => own.declareFeed(feedOf("x".repeat(5_000)))).toThrow(RangeError);
    own.declareFeed(feedOf("t3"));
    expect(own.claims.get("t1")).toEqual(claimOf("t1"));
  });
});

describe("updates on their way", () => {
  test("duplicates, gaps and overlaps are seen by their clocks", () => {
    const { store, own, updates, reader, reported } = pair();
    const feed = own.declareFeed(feedOf("t1"));
    for (let sequence = 1; sequence <= 3; sequence++) {
      own.writeFact(record(feed, sequence));
      own.commit();
    }
    const [first, second, third] = updates;
    expect(reader.apply(second!)).toBe("gap");
    expect(reader.list()).toHaveLength(1);
    expect(reader.apply(first!)).toBe("applied");
    expect(reader.apply(first!)).toBe("duplicate");
    expect(reader.apply(third!)).toBe("gap");
    const [all] = store.diff(own.name, Uint8Array.of(0), 1e6);
    expect(all).toMatchObject({ from: 0, to: 4 });
    expect(reader.apply(all!)).toBe("applied");
    expect(reader.apply(third!)).toBe("duplicate");
    expect(reported).toEqual([
      "alice feed 1 t1",
      "alice facts record 1.1",
      "alice facts record 1.2",
      "alice facts record 1.3",
    ]);
    expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
  });

  test("listeners are told of what was applied, as it came, and whose it is", () => {
    const { own, updates, reader } = pair();
    const heard: unknown[] = [];
    const cancel = reader.onUpdate((update, isOwn) => heard.push([update, isOwn]));
    own.claim(claimOf("t1"));
    own.commit();
    reader.apply(updates[0]!);
    reader.apply(updates[0]!);
    reader.own.claim(claimOf("t2"));
    reader.own.commit();
    expect(heard).toEqual([
      [updates[0], false],
      [expect.objectContaining({ name: "journal/default/bob/1" }), true],
    ]);
    cancel();
    reader.own.unclaim("t2");
    reader.own.commit();
    expect(heard).toHaveLength(2);
  });

  test("observers come and go, and an observer of its own journal hears nothing", () => {
    const { own, store, updates, reader } = pair();
    const { reported, observer } = recordingObserver();
    store.observe(observer);
    const cancel = reader.observe(observer);
    own.claim(claimOf("t1"));
    own.commit();
    reader.apply(updates[0]!);
    expect(reported).toEqual(["alice claim t1 1"]);
    cancel();
    own.claim(claimOf("t2"));
    own.commit();
    reader.apply(updates[1]!);
    expect(reported).toHaveLength(1);
  });

  test("others hold of the own journal what was written, and more of it is refused", () => {
    const { store, own, updates } = pair();
    own.claim(claimOf("t1"));
    own.commit();
    expect(store.apply(updates[0]!)).toBe("duplicate");
    expect(() => store.apply({ ...updates[0]!, to: 2 })).toThrow(EspalierError);
  });
});

describe("epochs of journals", () => {
  test("a dropped journal is refused, and so are earlier ones of its router, but not later ones", () => {
    const { own, updates, reader, reported } = pair();
    own.claim(claimOf("t1"));
    own.commit();
    reader.apply(updates[0]!);
    const later = storeOf("alice", {}, 7);
    later.store.own.claim(claimOf("t1"));
    later.store.own.commit();
    reader.apply(later.updates[0]!);
    expect(reader.origins()).toEqual([alice, originOf("alice", 7)]);
    expect(reader.highestEpoch("alice")).toBe(7);
    reported.length = 0;
    reader.drop(alice);
    expect(reported).toEqual(["alice dropped 1"]);
    expect(reader.apply(updates[0]!)).toBe("dropped");
    expect(reader.origins()).toEqual([originOf("alice", 7)]);
    reader.drop(originOf("alice", 7));
    expect(reader.highestEpoch("alice")).toBe(7);
    expect(reader.apply(later.updates[0]!)).toBe("dropped");
    expect(entriesOf(reader, alice)).toEqual([]);
    expect(claimsOf(reader, alice).size).toBe(0);
    expect(() => reader.drop(bob)).toThrow(RangeError);
  });

  test("a restart begins an empty journal of a later epoch", () => {
    const { store, own, updates, reader } = pair();
    own.claim(claimOf("t1"));
    own.commit();
    reader.apply(updates[0]!);
    expect(() => store.restart(1)).toThrow(RangeError);
    own.claim(claimOf("t9"));
    store.restart(9);
    store.own.commit();
    expect(updates).toHaveLength(1);
    expect(store.own.origin).toEqual(originOf("alice", 9));
    expect(store.own.claims.size).toBe(0);
    expect(store.highestEpoch("alice")).toBe(9);
    expect(store.apply(updates[0]!)).toBe("dropped");
    store.own.claim(claimOf("t2"));
    store.own.commit();
    expect(updates[1]).toMatchObject({ name: "journal/default/alice/9", from: 0, to: 1 });
    reader.apply(updates[1]!);
    expect(reader.origins()).toEqual([alice, originOf("alice", 9)]);
  });

  test("of routers with dropped journals the latest are remembered, up to a bound", () => {
    const { store } = storeOf("bob", { maxDroppedRouters: 2 });
    store.drop(originOf("r1", 4));
    store.drop(originOf("r2", 5));
    store.drop(originOf("r1", 3));
    expect([store.highestEpoch("r1"), store.highestEpoch("r2")]).toEqual([4, 5]);
    store.drop(originOf("r3", 6));
    expect([store.highestEpoch("r1"), store.highestEpoch("r2"), store.highestEpoch("r3")]).toEqual([4, 0, 6]);
  });

  test("an unknown router has no epoch, no claims, no entries, no declarations, no digest", () => {
    const { store } = storeOf("bob");
    expect(store.highestEpoch("nobody")).toBe(0);
    expect(claimsOf(store, alice).size).toBe(0);
    expect(entriesOf(store, alice)).toEqual([]);
    expect(declarationOf(store, alice, 1)).toBeUndefined();
    expect(journalContent(store, "journal/default/alice/1")).toBeUndefined();
    expect(store.state("journal/default/alice/1")).toBeUndefined();
    expect([...store.diff("journal/default/alice/1", Uint8Array.of(0), 100)]).toEqual([]);
    expect(store.stateVector("journal/default/alice/1")).toEqual(Uint8Array.of(0));
  });

  test("a router whose id makes no name is refused", () => {
    expect(() => storeOf("a/b")).toThrow(RangeError);
    expect(() => storeOf("x".repeat(300))).toThrow(RangeError);
    expect(() => storeOf("a", {}, 1.5)).toThrow(RangeError);
  });
});
