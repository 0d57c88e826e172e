import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { applyUpdate, Doc, encodeStateAsUpdate, encodeStateVector, type YArrayEvent } from "yjs";
import type { Journals } from "../../src/documents/journal-store.ts";

import { journalContent } from "./journal-content.ts";
import {
  checkpoint,
  claimOf,
  claimsOf,
  feedOf,
  originOf,
  record,
  storeOf,
  sync,
  wholeUpdate,
} from "./journal-fixtures.ts";

const alice = originOf("alice");

/** What the log of a plain Yjs document holds, as texts. */
function logOf(doc: Doc): string[] {
  return doc
    .getArray<unknown>("log")
    .toArray()
    .map((value) => (value instanceof Uint8Array ? value.join() : JSON.stringify(value)));
}

/** The store's journal as a plain Yjs document has it that takes everything at once. */
function wholeOf(store: Journals, name: string): string[] {
  const doc = new Doc();
  applyUpdate(doc, wholeUpdate(store, name));
  return logOf(doc);
}

/** A writer that does something random with its journal. */
function createWriter(store: Journals, random: Random): () => void {
  const feeds: number[] = [];
  let sequence = 0;
  return () => {
    const feed = feeds[random.integer(Math.max(1, feeds.length))];
    const choice = random.integer(9);
    if (choice === 0 || feed === undefined) {
      const declared = store.own.declareFeed(feedOf(`t${random.integer(4)}`, sequence));
      if (!feeds.includes(declared)) feeds.push(declared);
    } else if (choice === 1) store.own.claim(claimOf(`t${random.integer(4)}`, ++sequence));
    else if (choice === 2) store.own.unclaim(`t${random.integer(4)}`);
    else if (choice === 3) store.own.writePlacements(new Uint8Array(random.integer(40)), random.integer(5));
    else if (choice === 4) store.own.settle(feed, sequence - random.integer(6));
    else if (choice === 5 && feeds.length > 2) store.own.retireFeed(feeds.splice(random.integer(feeds.length), 1)[0]!);
    else
      store.own.writeFact(
        random.integer(4) === 0 ? checkpoint(feed, ++sequence) : record(feed, ++sequence, 1 + random.integer(9)),
      );
    if (random.integer(3) === 0) store.own.commit();
  };
}

describe("a plain Yjs document", () => {
  test.each(fixedSeeds(8))(
    "that takes diffs of any size in their order has what the store has, and nothing waits in it, seed %i",
    (seed) => {
      const random = createSeededRandom(seed);
      const { store, time } = storeOf("alice");
      const { name } = store.own;
      const write = createWriter(store, random);
      const stock = new Doc();
      for (let round = 0; round < 12; round++) {
        for (let step = random.integer(25); step >= 0; step--) write();
        time.advance(random.integer(3));
        for (const { bytes } of store.diff(name, encodeStateVector(stock), 1 + random.integer(600))) {
          applyUpdate(stock, bytes);
          expect([stock.store.pendingStructs, stock.store.pendingDs]).toEqual([null, null]);
        }
      }
      store.own.claim(claimOf("end", 1_000));
      store.own.commit();
      for (const { bytes } of store.diff(name, encodeStateVector(stock), 300)) applyUpdate(stock, bytes);
      expect(logOf(stock)).toEqual(wholeOf(store, name));
    },
  );

  test.each(fixedSeeds(6, 100))(
    "that takes live updates in their order never differs from the store, seed %i",
    (seed) => {
      const random = createSeededRandom(seed);
      const { store } = storeOf("alice");
      const stock = new Doc();
      let commits = 0;
      store.onUpdate(({ bytes, from, to }) => {
        commits += 1;
        expect(to).toBeGreaterThan(from);
        applyUpdate(stock, bytes);
        expect(logOf(stock)).toEqual(wholeOf(store, store.own.name));
      });
      const write = createWriter(store, random);
      for (let step = 0; step < 150; step++) write();
      expect(commits).toBeGreaterThan(10);
    },
  );

  test("goes in between: what it took from one replica another takes from it as one update of the writer", () => {
    const random = createSeededRandom(3);
    const { store: writer } = storeOf("alice");
    const { store: reader } = storeOf("bob");
    const write = createWriter(writer, random);
    const stock = new Doc();
    for (let round = 0; round < 10; round++) {
      for (let step = 0; step < 20; step++) write();
      writer.own.claim(claimOf("t", round));
      writer.own.commit();
      for (const { bytes } of writer.diff(writer.own.name, encodeStateVector(stock), 500)) applyUpdate(stock, bytes);
      const from = reader.state(writer.own.name)?.clock ?? 0;
      const to = writer.state(writer.own.name)!.clock;
      const bytes = encodeStateAsUpdate(stock, reader.stateVector(writer.own.name));
      expect(reader.apply({ name: writer.own.name, from, to, bytes })).toBe("applied");
      expect(journalContent(reader, writer.own.name)).toEqual(journalContent(writer, writer.own.name));
    }
  });

  test("that follows sees additions at the end only, and the claims of now as JSON", () => {
    const { store } = storeOf("alice");
    const stock = new Doc();
    const inserted: number[] = [];
    stock.getArray("log").observe((event: YArrayEvent<unknown>) => {
      let at = 0;
      for (const { retain, insert } of event.delta) {
        at += retain ?? 0;
        if (insert === undefined) continue;
        at += (insert as unknown[]).length;
        inserted.push(stock.getArray("log").length - at);
      }
    });
    store.onUpdate(({ bytes }) => applyUpdate(stock, bytes));
    for (let stamp = 1; stamp <= 20; stamp++) {
      store.own.claim(claimOf(`t${stamp % 3}`, stamp));
      store.own.commit();
    }
    expect(inserted).toEqual(Array(20).fill(0));
    expect(logOf(stock)).toEqual(
      // The field of a feed's quality has another name on the wire.
      [18, 19, 20].map((stamp) =>
        JSON.stringify({ claim: claimOf(`t${stamp % 3}`, stamp) }).replace('"quality"', '"worth"'),
      ),
    );
  });

  test("of many writers goes both ways at once, and both end the same", () => {
    const random = createSeededRandom(5);
    const { store } = storeOf("alice");
    const [ours, theirs] = [new Doc(), new Doc()];
    store.attachShared("notes", ours);
    for (let round = 0; round < 60; round++) {
      const doc = random.integer(2) === 0 ? ours : theirs;
      const list = doc.getArray<number>("list");
      if (list.length > 0 && random.integer(3) === 0) list.delete(random.integer(list.length));
      else list.insert(random.integer(list.length + 1), [round]);
      if (random.integer(4) > 0) continue;
      const forThem = [...store.diff("notes", encodeStateVector(theirs), 10)];
      const forUs = encodeStateAsUpdate(theirs, store.stateVector("notes"));
      for (const { bytes } of forThem) applyUpdate(theirs, bytes);
      expect(["applied", "duplicate"]).toContain(store.apply({ name: "notes", from: 0, to: 0, bytes: forUs }));
      expect(ours.getArray("list").toJSON()).toEqual(theirs.getArray("list").toJSON());
    }
  });
});

test("two stores exchange journals both ways in small pieces while both write", () => {
  const random = createSeededRandom(11);
  const { store: a } = storeOf("alice");
  const { store: b } = storeOf("bob");
  const writers = [createWriter(a, random), createWriter(b, random)];
  for (let round = 0; round < 40; round++) {
    for (const write of writers) for (let step = random.integer(10); step > 0; step--) write();
    const pulls = [
      a.diff(b.own.name, b.stateVector(b.own.name), 64),
      b.diff(a.own.name, a.stateVector(a.own.name), 64),
    ];
    expect(pulls.map((pull) => [...pull])).toEqual([[], []]);
    const maxBytes = 1 + random.integer(200);
    for (const piece of a.diff(a.own.name, b.stateVector(a.own.name), maxBytes)) {
      expect(b.apply(piece)).toBe("applied");
      if (random.integer(4) === 0) writers[0]!();
      if (random.integer(4) === 0) writers[1]!();
    }
    sync(b, a, b.own.name, maxBytes);
  }
  a.own.claim(claimOf("end"));
  a.own.commit();
  sync(a, b, a.own.name);
  sync(b, a, b.own.name);
  for (const name of [a.own.name, b.own.name]) expect(journalContent(a, name)).toEqual(journalContent(b, name));
  expect(claimsOf(b, alice)).toEqual(a.own.claims);
});
