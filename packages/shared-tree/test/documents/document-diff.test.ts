import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import * as Y from "yjs";
import type { Journals } from "../../src/documents/journal-store.ts";

import { journalContent } from "./journal-content.ts";
import { checkpoint, claimOf, claimsOf, feedOf, record, storeOf, sync, wholeUpdate } from "./journal-fixtures.ts";

/** A journal of `commits` items, of which some are settled. */
function longJournal(commits: number, blocks = 20) {
  const { store, time } = storeOf("alice");
  const { own } = store;
  const feeds = Array.from({ length: 5 }, (_, at) => own.declareFeed(feedOf(`t${at}`)));
  for (let tick = 1; tick <= commits; tick++) {
    const feed = feeds[tick % 5]!;
    own.writeFact(record(feed, tick, blocks));
    if (tick % 11 === 0) {
      own.writeFact(checkpoint(feed, tick));
      own.settle(feed, tick);
    }
    own.claim(claimOf(`t${tick % 5}`, tick));
    own.commit();
  }
  return { store, own, time };
}

const live = (doc: Y.Doc) => doc.getArray("log").toArray();

/** What a y-protocols client that takes these updates has. */
function clientOf(updates: readonly { readonly bytes: Uint8Array }[]): unknown[] {
  const doc = new Y.Doc();
  for (const { bytes } of updates) Y.applyUpdate(doc, bytes);
  expect(doc.store.pendingStructs).toBeNull();
  expect(doc.store.pendingDs).toBeNull();
  return live(doc);
}

describe("a diff", () => {
  test.each([1, 200, 1_000, 5_000, 1e9])(
    "in pieces of about %i bytes is the journal, for replicas and for clients",
    (max) => {
      const { store, own } = longJournal(120);
      const reader = storeOf("bob").store;
      const pieces = sync(store, reader, own.name, max);
      expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
      for (const [at, piece] of pieces.entries()) expect(piece.from).toBe(pieces[at - 1]?.to ?? 0);
      // No piece is longer than asked for, unless it is a single item; the longest one has the five declarations.
      const largestItem = 560;
      for (const { bytes } of pieces) expect(bytes.length).toBeLessThanOrEqual(Math.max(max, largestItem) + 40);
      if (max > 1e6) expect(pieces).toHaveLength(1);
      const whole = new Y.Doc();
      Y.applyUpdate(whole, wholeUpdate(store, own.name));
      expect(clientOf(pieces)).toEqual(live(whole));
    },
  );

  test("for whoever has everything is empty", () => {
    const { store, own } = longJournal(20);
    const reader = storeOf("bob").store;
    sync(store, reader, own.name);
    expect(sync(store, reader, own.name)).toEqual([]);
    expect([...store.diff(own.name, store.stateVector(own.name), 100)]).toEqual([]);
  });

  test("brings deletions that were missed", () => {
    const { store, own } = longJournal(50);
    const reader = storeOf("bob").store;
    sync(store, reader, own.name);
    for (let feed = 1; feed <= 5; feed++) own.settle(feed, 50);
    own.claim(claimOf("t0", 99));
    own.commit();
    own.claim(claimOf("t0", 100));
    own.commit();
    expect(sync(store, reader, own.name)).toHaveLength(1);
    expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
  });

  test("of a journal that changes between two pieces ends at what it is then", () => {
    const { store, own } = longJournal(100);
    const reader = storeOf("bob").store;
    let tick = 100;
    for (const piece of store.diff(own.name, Uint8Array.of(0), 2_000)) {
      reader.apply(piece);
      if (tick > 150) continue;
      own.writeFact(record(1, ++tick, 5));
      own.writeFact(checkpoint(1, tick));
      own.settle(1, tick);
      own.claim(claimOf("t1", tick));
      own.commit();
    }
    expect(tick).toBeGreaterThan(110);
    expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
    expect(claimsOf(reader, own.origin)).toEqual(own.claims);
  });

  test("that broke off goes on where it was, with what was deleted meanwhile", () => {
    const { store, own } = longJournal(100);
    const reader = storeOf("bob").store;
    const random = createSeededRandom(4);
    for (let tick = 101; reader.stateVector(own.name).length < 2 || tick < 140; tick++) {
      const pieces = store.diff(own.name, reader.stateVector(own.name), 1_500);
      for (let taken = random.integer(4); taken > 0; taken--) {
        const next = pieces.next();
        if (next.done) break;
        reader.apply(next.value);
      }
      own.writeFact(record(2, tick, 5));
      own.settle(1 + random.integer(5), random.integer(tick));
      own.commit();
    }
    sync(store, reader, own.name, 1_500);
    expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
  });

  test("can be made by a replica, from within an item too", () => {
    const { store, own } = longJournal(60);
    const [relay, reader]: [Journals, Journals] = [storeOf("bob").store, storeOf("carol").store];
    sync(store, relay, own.name, 3_000);
    // Claims that stand together are one struct, and deleted items are: clocks are everywhere within them.
    for (let clock = 0; clock < store.state(own.name)!.clock; clock++) {
      const client = new Y.Doc();
      Y.applyUpdate(client, wholeUpdate(store, own.name));
      const id = [...client.store.clients.keys()][0]!;
      const encoded = Uint8Array.of(1, ...varint(id), ...varint(clock));
      const pieces = [...relay.diff(own.name, encoded, 1e9)];
      expect(pieces).toMatchObject([{ from: clock, to: store.state(own.name)!.clock }]);
      if (clock % 10 === 0) reader.apply(pieces[0]!);
      else expect(Y.decodeUpdate(pieces[0]!.bytes).structs[0]!.id.clock).toBe(clock);
    }
    expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
  });

  test("ends when the journal goes", () => {
    const { store, own } = longJournal(60);
    const reader = storeOf("bob").store;
    sync(store, reader, own.name);
    const pieces = reader.diff(own.name, Uint8Array.of(0), 500);
    expect(pieces.next().done).toBe(false);
    reader.drop(own.origin);
    expect(pieces.next().done).toBe(true);
  });

  test.each([[[]], [[255]], [[1, 5]], [[200, 1, 1]]])(
    "for a state vector that cannot be read is refused: %j",
    (bytes) => {
      const { store, own } = longJournal(5);
      expect(() => store.diff(own.name, Uint8Array.from(bytes), 500)).toThrow(RangeError);
      store.attachShared("registry/1", new Y.Doc());
      expect(() => store.diff("registry/1", Uint8Array.from(bytes), 500)).toThrow(RangeError);
    },
  );
});

function varint(value: number): number[] {
  return value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))];
}

/**
 * A replica asked for a diff, came by the first of it another way meanwhile, and skipped those structs when the diff
 * came. That they had been deleted since stood in the structs only, so it kept them for ever, at an equal clock.
 */
test.each([1, 300, 1e9])(
  "a diff brings deletions of what came another way since it was asked for, by pieces of %i bytes",
  (max) => {
    const { store } = storeOf("alice");
    const reader = storeOf("bob").store;
    const { own } = store;
    const feed = own.declareFeed(feedOf("t"));
    const live: { name: string; from: number; to: number; bytes: Uint8Array }[] = [];
    store.onUpdate((update) => live.push({ ...update, bytes: update.bytes.slice() }));
    for (let tick = 1; tick <= 6; tick++) {
      own.writeFact(record(feed, tick, 20));
      own.commit();
    }
    const asked = reader.stateVector(own.name);
    for (const update of live.slice(0, 4)) expect(reader.apply(update)).toBe("applied");
    own.writeFact(checkpoint(feed, 6));
    own.settle(feed, 6);
    own.commit();
    for (const piece of [...store.diff(own.name, asked, max)]) reader.apply(piece);
    expect(reader.state(own.name)?.clock).toBe(store.state(own.name)?.clock);
    expect(journalContent(reader, own.name)).toEqual(journalContent(store, own.name));
  },
);
