import { createSeededRandom } from "@espalier/core";
import type { DocumentUpdate } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { JournalDocument } from "../../src/documents/journal-document.ts";
import { journalName, maxStatementLength } from "../../src/documents/journal-log.ts";
import { defaultJournalLimits } from "../../src/documents/journal-store.ts";
import { maxCommitBytes, maxPlacementItemBytes, OwnJournal } from "../../src/documents/own-journal.ts";
import { readJournalUpdate } from "../../src/documents/read-journal-update.ts";
import { maxRunBlocks } from "../../src/placements/placement-item.ts";
import { checkpoint, claimOf, feedOf, originOf, record, storeOf } from "./journal-fixtures.ts";

const origin = originOf("alice");

/** A journal by itself at the real bounds, and the updates that it makes. */
function journalOf() {
  const time = createVirtualTime();
  const updates: DocumentUpdate[] = [];
  const name = journalName("default", origin);
  const journal = new OwnJournal({
    ...{ document: new JournalDocument(name, origin, true), clock: time.clock, ...defaultJournalLimits },
    onCommit: (update) => updates.push(update),
  });
  return { journal, time, updates, name };
}

/** What the last update adds and deletes, as a reader sees it. */
function lastOf({ journal, updates }: ReturnType<typeof journalOf>) {
  const { bytes, from } = updates.at(-1)!;
  const { items, deletions } = readJournalUpdate(bytes, journal.document.client, from);
  return { kinds: items.map(({ content }) => content.kind), deletions };
}

describe("one commit", () => {
  test("is one update with feeds, one item of facts, an item for every placement, and claims", () => {
    const rig = journalOf();
    const { journal, updates } = rig;
    journal.claim(claimOf("engine"));
    journal.writePlacements(Uint8Array.of(1), 1_000);
    const feed = journal.declareFeed(feedOf("engine"));
    for (let sequence = 0; sequence < 3; sequence++) journal.writeFact(record(feed, sequence));
    journal.writePlacements(Uint8Array.of(2), 1_000);
    journal.commit();
    expect(lastOf(rig).kinds).toEqual(["feed", "facts", "placements", "placements", "claim"]);
    expect(updates).toHaveLength(1);
    expect([updates[0]!.from, updates[0]!.to, journal.document.clock]).toEqual([0, 5, 5]);
  });

  test("has nothing of what came and went before it", () => {
    const rig = journalOf();
    const { journal, updates, time } = rig;
    journal.claim(claimOf("engine"));
    journal.unclaim("engine");
    journal.retireFeed(journal.declareFeed(feedOf("engine")));
    journal.writePlacements(Uint8Array.of(1), 10);
    time.advance(10);
    journal.commit();
    expect(updates).toEqual([]);
    expect([journal.document.clock, journal.placementItems, journal.factItems]).toEqual([0, 0, 0]);
  });

  test("with a claim that ends deletes it at once, with nothing else to say too", () => {
    const rig = journalOf();
    rig.journal.claim(claimOf("engine"));
    rig.journal.commit();
    rig.journal.unclaim("engine");
    expect(rig.journal.hasPending).toBe(true);
    rig.journal.commit();
    expect(lastOf(rig)).toEqual({ kinds: ["empty"], deletions: [{ from: 0, to: 1 }] });
    rig.journal.claim(claimOf("engine", 2));
    rig.journal.commit();
    expect(lastOf(rig)).toEqual({ kinds: ["claim"], deletions: [{ from: 1, to: 2 }] });
  });

  test("of a claim that ended and came back is a replacement", () => {
    const rig = journalOf();
    rig.journal.claim(claimOf("engine"));
    rig.journal.commit();
    rig.journal.unclaim("engine");
    rig.journal.claim(claimOf("engine", 2));
    rig.journal.commit();
    expect(lastOf(rig)).toEqual({ kinds: ["claim"], deletions: [{ from: 0, to: 1 }] });
  });

  test("after a later epoch has begun tells nothing of the one before, and numbers begin anew", () => {
    const { journal, updates } = journalOf();
    const write = (): void => {
      const feed = journal.placingFeed(feedOf("engine", 1));
      journal.declareFeed(feedOf("engine", 1));
      journal.claim(claimOf("engine"));
      journal.writeFact(record(feed, 1));
      journal.writePlacements(Uint8Array.of(1), 1_000);
    };
    write();
    journal.commit();
    const first = updates.splice(0);
    journal.declareFeed(feedOf("other", 1));
    journal.unclaim("engine");
    journal.claim(claimOf("other"));
    journal.writeFact(record(1, 2));
    journal.writePlacements(Uint8Array.of(2), 1_000);
    const later = originOf("alice", origin.epoch + 1);
    journal.restart(new JournalDocument(journalName("default", later), later, true));
    expect([journal.origin, journal.claims.size, [...journal.feeds()], journal.hasPending]).toEqual([
      later,
      0,
      [],
      false,
    ]);
    journal.commit();
    expect([updates, journal.factItems, journal.placementItems, journal.document.clock]).toEqual([[], 0, 0, 0]);
    write();
    journal.commit();
    expect(updates.map(({ bytes, ...rest }) => ({ ...rest, size: bytes.length }))).toEqual(
      first.map(({ bytes, ...rest }) => ({ ...rest, name: journal.name, size: bytes.length })),
    );
  });
});

describe("feeds", () => {
  test("a number says what it was declared as until nothing in the log mentions it", () => {
    const { journal } = journalOf();
    const feed = journal.declareFeed(feedOf("engine", 3));
    expect(journal.declarationOf(feed)).toEqual(feedOf("engine", 3));
    journal.writeFact(record(feed, 1));
    journal.commit();
    journal.retireFeed(feed);
    expect(journal.declarationOf(feed)).toEqual(feedOf("engine", 3));
    journal.claim(claimOf("other"));
    journal.commit();
    journal.claim(claimOf("other", 2));
    journal.commit();
    expect([journal.declarationOf(feed), journal.declarationOf(feed + 1)]).toEqual([undefined, undefined]);
    expect(journal.document.liveItems).toBe(1);
  });

  test("a retired one takes no facts, and its target and epoch get another number", () => {
    const { journal } = journalOf();
    const feed = journal.declareFeed(feedOf("engine"));
    journal.retireFeed(feed);
    expect(() => journal.writeFact(record(feed, 1))).toThrow(RangeError);
    expect(journal.declareFeed(feedOf("engine"))).not.toBe(feed);
    journal.retireFeed(feed);
    journal.retireFeed(99);
  });

  test("that prompts are placed under is given up with its epoch, unless somebody reads under it", () => {
    const { journal } = journalOf();
    const read = journal.declareFeed(feedOf("engine", 1));
    expect(journal.placingFeed(feedOf("engine", 1))).toBe(read);
    const placed = journal.placingFeed(feedOf("engine", 2));
    expect(placed).not.toBe(read);
    expect(journal.placingFeed(feedOf("engine", 2))).toBe(placed);
    const later = journal.placingFeed(feedOf("engine", 3));
    expect(() => journal.writeFact(record(placed, 1))).toThrow(RangeError);
    journal.writeFact(record(read, 1));
    journal.retireFeed(later);
    expect(journal.placingFeed(feedOf("engine", 3))).not.toBe(later);
  });

  test("differ by every part of the epoch, and with no epoch at all", () => {
    const { journal } = journalOf();
    const { epoch } = feedOf("engine") as { epoch: NonNullable<ReturnType<typeof feedOf>["epoch"]> };
    const epochs = [
      epoch,
      null,
      { ...epoch, sequence: 1 },
      { ...epoch, timestampUs: -1 },
      { ...epoch, checksum: 1 },
      { ...epoch, predecessor: "1.1.1" },
    ];
    const declare = () => epochs.map((each) => journal.declareFeed({ target: "engine", epoch: each }));
    const numbers = declare();
    expect(new Set(numbers).size).toBe(epochs.length);
    expect(declare()).toEqual(numbers);
  });

  test.each<[string, Parameters<typeof feedOf>[0], string | null]>([
    ["a target", "x".repeat(maxStatementLength + 1), null],
    ["a target and the epoch before", "x".repeat(maxStatementLength - 2), "1.1"],
  ])("%s too long by a character takes no number", (_what, target, predecessor) => {
    const { journal, updates } = journalOf();
    expect(() => journal.declareFeed({ target, epoch: { ...feedOf("t").epoch!, predecessor } })).toThrow(RangeError);
    expect(journal.declareFeed({ target: target.slice(1), epoch: { ...feedOf("t").epoch!, predecessor } })).toBe(1);
    journal.commit();
    expect(updates).toHaveLength(1);
  });

  test("as many as may be are declared, one more is refused until one is gone from the log", () => {
    const { journal, updates } = journalOf();
    const { maxFeeds } = defaultJournalLimits;
    for (let number = 1; number <= maxFeeds; number++) journal.declareFeed({ target: `t${number}`, epoch: null });
    expect(() => journal.declareFeed(feedOf("more"))).toThrow("too many feeds");
    expect(journal.declareFeed({ target: "t7", epoch: null })).toBe(7);
    journal.commit();
    journal.retireFeed(7);
    expect(() => journal.declareFeed(feedOf("more"))).toThrow("too many feeds");
    journal.claim(claimOf("t"));
    journal.commit();
    expect(journal.declareFeed(feedOf("more"))).toBe(maxFeeds + 1);
    const { store } = storeOf("bob");
    for (const update of updates) expect(store.apply(update)).toBe("applied");
  });
});

describe("room", () => {
  test("what waits is committed before it is more than a mebibyte, and every part is taken by others", () => {
    const { journal, updates } = journalOf();
    const { store: reader } = storeOf("bob");
    const half = new Uint8Array(maxCommitBytes / 2);
    journal.writePlacements(half, 1_000);
    journal.writePlacements(half, 1_000);
    expect(updates).toHaveLength(0);
    journal.writePlacements(Uint8Array.of(1), 1_000);
    expect(updates).toHaveLength(1);
    journal.commit();
    for (const update of updates) {
      expect(update.bytes.length).toBeLessThan(maxCommitBytes + 1_024);
      expect(reader.apply(update)).toBe("applied");
    }
    expect(updates).toHaveLength(2);
  });

  test("the longest placement item holds the longest chain, a byte more is refused and nothing is committed for it", () => {
    const { journal, updates } = journalOf();
    expect(maxPlacementItemBytes).toBeGreaterThan(maxRunBlocks * 8 + 100);
    expect(maxPlacementItemBytes).toBeLessThan(defaultJournalLimits.maxUpdateBytes);
    journal.writePlacements(new Uint8Array(maxPlacementItemBytes), 1_000);
    expect(() => journal.writePlacements(new Uint8Array(maxPlacementItemBytes + 1), 1_000)).toThrow(RangeError);
    expect([updates.length, journal.placementItems]).toEqual([0, 1]);
  });

  test("placements take the room that is set for them, and the oldest give it back", () => {
    const { journal } = journalOf();
    const item = new Uint8Array(65_536);
    for (let count = 0; count < 1_000; count++) {
      journal.writePlacements(item, 1e9);
      if (count % 10 === 0) journal.commit();
    }
    journal.commit();
    journal.claim(claimOf("t"));
    journal.commit();
    const { maxPlacementBytes } = defaultJournalLimits;
    expect(journal.document.byteLength).toBeLessThanOrEqual(maxPlacementBytes + 1_024);
    expect(journal.document.byteLength).toBeGreaterThan(maxPlacementBytes - 2 * item.length);
    expect(journal.document.structs.length).toBeLessThan(2 * journal.placementItems);
  });

  test("entries that are refused cost nothing of the log", () => {
    const { journal, updates } = journalOf();
    const feed = journal.declareFeed(feedOf("engine"));
    journal.commit();
    expect(() => journal.writeFact({ ...record(feed, 1), sequence: -1 })).toThrow(RangeError);
    expect(() => journal.writeFact(record(feed + 1, 1))).toThrow("is not declared");
    expect(journal.hasPending).toBe(false);
    journal.commit();
    expect(updates).toHaveLength(1);
  });
});

test.each([1, 2, 3, 4])("half an hour of churn leaves a journal as small as what is live in it, seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const { journal, time } = journalOf();
  const feeds = [0, 1, 2, 3].map((number) => journal.declareFeed(feedOf(`t${number}`)));
  let sequence = 0;
  let largest = 0;
  for (let second = 0; second < 1_800; second++) {
    for (const feed of feeds) journal.writeFact(record(feed, ++sequence, 1 + random.integer(20)));
    journal.writePlacements(new Uint8Array(random.integer(300)), time.clock.nowMs() + 10_000);
    if (random.integer(10) === 0) {
      const at = random.integer(feeds.length);
      journal.writeFact(checkpoint(feeds[at]!, sequence));
      journal.settle(feeds[at]!, sequence);
    }
    if (random.integer(60) === 0) {
      const at = random.integer(feeds.length);
      journal.retireFeed(feeds[at]!);
      feeds[at] = journal.declareFeed(feedOf(`t${at}`, ++sequence));
    }
    journal.claim(claimOf(`t${random.integer(4)}`, second));
    time.advance(1_000);
    journal.commit();
    if (second === 600) largest = journal.document.byteLength;
    if (second > 600) expect(journal.document.byteLength).toBeLessThan(6 * largest + 500_000);
  }
  expect(journal.document.structs.length).toBeLessThan(2 * journal.document.liveItems + 2);
  for (const feed of feeds) journal.retireFeed(feed);
  for (let number = 0; number < 4; number++) journal.unclaim(`t${number}`);
  time.advance(10_000);
  journal.commit();
  journal.claim(claimOf("end"));
  journal.commit();
  journal.claim(claimOf("end", 2));
  journal.commit();
  expect([journal.document.liveItems, journal.factItems, journal.placementItems]).toEqual([1, 0, 0]);
  expect(journal.document.structs.length).toBeLessThanOrEqual(2);
});
