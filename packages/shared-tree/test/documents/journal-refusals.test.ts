import { createSeededRandom, EspalierError } from "@espalier/core";
import { DocumentFullError } from "@espalier/mesh";
import { describe, expect, test } from "vitest";
import * as Y from "yjs";
import { claimStatement, journalClient, maxStatementLength, statementFields } from "../../src/documents/journal-log.ts";
import { FactItemWriter } from "../../src/facts/fact-item.ts";
import { journalContent } from "./journal-content.ts";
import {
  checkpoint,
  claimOf,
  entriesOf,
  feedOf,
  originOf,
  record,
  recordingObserver,
  storeOf,
  sync,
  wholeUpdate,
} from "./journal-fixtures.ts";

const name = "journal/default/alice/1";
const client = journalClient(name);

/** What some Yjs client would send as alice's journal. */
function forged(build: (doc: Y.Doc) => void, clientID = client): Uint8Array {
  const doc = new Y.Doc();
  doc.clientID = clientID;
  build(doc);
  return Y.encodeStateAsUpdate(doc);
}

const push =
  (...values: unknown[]) =>
  (doc: Y.Doc) =>
    doc.getArray("log").push(values);

function factItem(...feeds: number[]): Uint8Array {
  const writer = new FactItemWriter();
  for (const feed of feeds) writer.add(record(feed, 1));
  return Uint8Array.of(1, ...writer.finish());
}

function insertedBefore(doc: Y.Doc): void {
  push(factItem(1))(doc);
  doc.getArray("log").insert(0, [factItem(2)]);
}

/** A reader that has taken two updates of alice, and her third one. */
function setUp(limits = {}) {
  const writer = storeOf("alice");
  const reader = storeOf("bob", limits).store;
  const { own } = writer.store;
  const feed = own.declareFeed(feedOf("t1"));
  own.claim(claimOf("t1"));
  own.writePlacements(Uint8Array.of(5), 1_000);
  own.commit();
  own.writeFact(record(feed, 1, 30));
  own.commit();
  for (const update of writer.updates) reader.apply(update);
  own.writeFact(checkpoint(feed, 1));
  own.settle(feed, 1);
  own.claim(claimOf("t1", 2));
  own.commit();
  own.writeFact(record(feed, 2));
  own.commit();
  return { writer: writer.store, reader, third: writer.updates[2]!, fourth: writer.updates[3]! };
}

type World = ReturnType<typeof setUp>;

/** Nothing of it is applied. */
function expectRefused({ reader }: World, bytes: Uint8Array, from: number, to: number): void {
  const { reported, observer } = recordingObserver();
  reader.observe(observer);
  const before = [journalContent(reader, name), reader.list(), wholeUpdate(reader, name)];
  expect(() => reader.apply({ name, from, to, bytes })).toThrow(EspalierError);
  expect([journalContent(reader, name), reader.list(), wholeUpdate(reader, name)]).toEqual(before);
  expect(reported).toEqual([]);
}

function expectGoesOn({ writer, reader }: World): void {
  sync(writer, reader, name);
  expect(journalContent(reader, name)).toEqual(journalContent(writer, name));
}

describe("updates that the writer cannot have written", () => {
  const nested = new Y.Map();
  const good = push({ feed: 1, target: "t", [statementFields.epoch]: null }, factItem(1));

  test.each<[string, (doc: Y.Doc) => void, number]>([
    ["another array", (doc) => doc.getArray("facts").push([factItem(1)]), 1],
    ["a map", (doc) => doc.getMap("log").set("claim", claimStatement(claimOf("t"))), 1],
    ["a text", (doc) => doc.getText("log").insert(0, "text"), 4],
    ["a nested type", push(nested), 1],
    ["a document in it", push(new Y.Doc()), 1],
    ["a number", push(5), 1],
    ["an object that says nothing", push({}), 1],
    ["a declaration without a target", push({ feed: 1, [statementFields.epoch]: null }), 1],
    ["a declaration with a broken number", push({ feed: 1.5, target: "t", [statementFields.epoch]: null }), 1],
    ["a declaration with a broken epoch", push({ feed: 1, target: "t", [statementFields.epoch]: { sequence: 1 } }), 1],
    [
      "a claim of unknown quality",
      push({ claim: { ...claimStatement(claimOf("t")).claim, [statementFields.quality]: "gold" } }),
      1,
    ],
    ["a claim without a stamp", push({ claim: { ...claimOf("t"), stamp: "1" } }), 1],
    ["a claim that is too long", push({ claim: { ...claimOf("t"), reason: "x".repeat(maxStatementLength) } }), 1],
    ["bytes of an unknown kind", push(Uint8Array.of(9)), 1],
    ["no bytes", push(new Uint8Array()), 1],
    ["an empty item that is not empty", push(Uint8Array.of(0, 1)), 1],
    ["facts that cannot be read", push(factItem(1), Uint8Array.of(1, 1, 3)), 2],
    ["an item before another", insertedBefore, 2],
    ["a clock that the frame does not say", good, 3],
  ])("%s", (_what, build, to) => {
    const reader = storeOf("bob").store;
    expect(() => reader.apply({ name, from: 0, to, bytes: forged(build) })).toThrow(EspalierError);
    expect(reader.list()).toHaveLength(1);
    expect(reader.apply({ name, from: 0, to: 2, bytes: forged(good) })).toBe("applied");
  });

  test("another client, or two of them", () => {
    const reader = storeOf("bob").store;
    const other = forged(good, client + 1);
    expect(() => reader.apply({ name, from: 0, to: 2, bytes: other })).toThrow(EspalierError);
    const both = Y.mergeUpdates([forged(good), other]);
    expect(() => reader.apply({ name, from: 0, to: 2, bytes: both })).toThrow(EspalierError);
  });

  test("deletions of another client's structs, beyond the end, or out of order", () => {
    const structs = forged(good).subarray(0, -1);
    const reader = storeOf("bob").store;
    const withDeletions = (...numbers: number[]) => Uint8Array.from([...structs, ...numbers.flatMap(varint)]);
    for (const numbers of [
      [1, client + 1, 1, 0, 1],
      [1, client, 1, 1, 2],
      [1, client, 1, 0, 0],
      [1, client, 2, 1, 1, 0, 1],
      [2, client, 1, 0, 1, client + 1, 1, 0, 1],
      [0, 0],
    ]) {
      const bytes = withDeletions(...numbers);
      expect(() => reader.apply({ name, from: 0, to: 2, bytes })).toThrow(EspalierError);
    }
    expect(reader.apply({ name, from: 0, to: 2, bytes: withDeletions(1, client, 1, 1, 1) })).toBe("applied");
  });

  test("structs with a hole between them", () => {
    const world = setUp();
    const { third, fourth } = world;
    expectRefused(world, fourth.bytes, third.from, fourth.to);
    expectRefused(world, third.bytes, third.from - 1, third.to);
    expectGoesOn(world);
  });

  test("every shorter update, and bytes that were changed, are refused or are an update of the writer", () => {
    const world = setUp();
    const { third } = world;
    for (let length = 0; length < third.bytes.length; length++) {
      expectRefused(world, third.bytes.slice(0, length), third.from, third.to);
    }
    expectGoesOn(world);
    const random = createSeededRandom(17);
    let { reader } = setUp();
    for (let round = 0; round < 1_500; round++) {
      const bytes = third.bytes.slice();
      for (let change = random.integer(3); change >= 0; change--)
        bytes[random.integer(bytes.length)] = random.integer(256);
      try {
        if (reader.apply({ ...third, bytes }) === "applied") reader = setUp().reader;
      } catch (error) {
        expect(error).toMatchObject({ name: "EspalierError", code: "mesh_update_refused" });
      }
    }
  });
});

describe("bounds", () => {
  test("an update one byte over the bound is refused, one of just the bound is not", () => {
    const { third } = setUp();
    const { length } = third.bytes;
    expect(setUp({ maxUpdateBytes: Math.max(length, 400) }).reader.apply(third)).toBe("applied");
    const reader = storeOf("bob", { maxUpdateBytes: 400 }).store;
    const update = { name, from: 0, to: 2, bytes: forged(push(...largeStatement(400))) };
    expect(update.bytes).toHaveLength(400);
    expect(reader.apply(update)).toBe("applied");
    const larger = { ...update, name: "journal/default/alice/2", bytes: new Uint8Array(401) };
    expect(() => reader.apply(larger)).toThrow("401 bytes");
  });

  test("journals beyond the bound are refused until one is dropped", () => {
    const reader = storeOf("bob", { maxDocuments: 2 }).store;
    const first = ["r1", "r2", "r3"].map((router) => {
      const { store, updates } = storeOf(router);
      store.own.claim(claimOf("t"));
      store.own.commit();
      return updates[0]!;
    });
    expect(reader.apply(first[0]!)).toBe("applied");
    expect(reader.apply(first[1]!)).toBe("applied");
    expect(() => reader.apply(first[2]!)).toThrow("too many journals");
    expect(() => reader.apply(first[2]!)).toThrow(DocumentFullError);
    reader.drop(originOf("r1"));
    expect(reader.apply(first[2]!)).toBe("applied");
  });

  test("feeds and claims of a journal beyond the bound are refused", () => {
    const reader = storeOf("bob", { maxFeeds: 2 }).store;
    const feed = (number: number) => ({ feed: number, target: "t", [statementFields.epoch]: null });
    const three = forged(push(feed(1), feed(2), feed(3)));
    expect(() => reader.apply({ name, from: 0, to: 3, bytes: three })).toThrow("too many feeds");
    const claims = forged(
      push(claimStatement(claimOf("a")), claimStatement(claimOf("b")), claimStatement(claimOf("c"))),
    );
    expect(() => reader.apply({ name, from: 0, to: 3, bytes: claims })).toThrow("too many feeds");
    expect(() => reader.apply({ name, from: 0, to: 3, bytes: claims })).toThrow(DocumentFullError);
    const two = forged(push(feed(1), feed(2), claimStatement(claimOf("a")), claimStatement(claimOf("b"))));
    expect(reader.apply({ name, from: 0, to: 4, bytes: two })).toBe("applied");
  });

  // An item goes when the last feed in it has a checkpoint. One feed that hardly moves would keep all that others write along with it.
  test("an own journal over its bound is long until its feeds have checkpoints", () => {
    const { store } = storeOf("alice", { maxOwnBytes: 6_000 });
    const [busy, slow] = [store.own.declareFeed(feedOf("busy")), store.own.declareFeed(feedOf("slow"))];
    for (let sequence = 0; sequence < 8; sequence++) {
      expect(store.own.isLong).toBe(false);
      for (const feed of [busy, slow]) store.own.writeFact(record(feed, sequence, 40));
      store.own.commit();
      if (store.own.isLong) break;
    }
    expect(store.own.isLong).toBe(true);
    store.own.settle(busy, 100);
    store.own.claim(claimOf("busy"));
    store.own.commit();
    expect(store.own.isLong).toBe(true);
    store.own.settle(slow, 100);
    store.own.claim(claimOf("slow"));
    store.own.commit();
    expect(store.own.isLong).toBe(false);
  });

  test("a journal that would hold more than the bound is refused", () => {
    const reader = storeOf("bob", { maxDocumentBytes: 6_000 }).store;
    const { store, updates } = storeOf("alice");
    const feed = store.own.declareFeed(feedOf("t"));
    for (let sequence = 0; sequence < 3; sequence++) {
      store.own.writeFact(record(feed, sequence, 250));
      store.own.commit();
    }
    expect(reader.apply(updates[0]!)).toBe("applied");
    expect(reader.apply(updates[1]!)).toBe("applied");
    expect(() => reader.apply(updates[2]!)).toThrow("too large");
    expect(() => reader.apply(updates[2]!)).toThrow(DocumentFullError);
  });

  test("names that are no journal's are not taken", () => {
    const { fourth, reader } = setUp();
    for (const other of [
      "journal/other/alice/1",
      "journal/default/alice/01",
      "journal/default/alice/x",
      "x".repeat(300),
    ]) {
      expect(reader.apply({ ...fourth, name: other })).toBe("dropped");
    }
    expect(reader.names()).toEqual(["journal/default/bob/1", name]);
  });
});

// Symptom: a journal grew beyond what others keep of one, though all feeds were to get checkpoints. Mechanism: a feed whose state is on its
// way, or that this router reads no more, is without a checkpoint, and every item lives as long as the slowest feed in it.
test("an own journal holds no more than its bound whatever is without a checkpoint: the oldest goes, and what comes is held", () => {
  const maxHeldBytes = 20_000;
  const { store, updates } = storeOf("alice", { maxOwnBytes: 12_000, maxHeldBytes });
  const reader = storeOf("bob", { maxDocumentBytes: (maxHeldBytes * 4) / 3 }).store;
  const [busy, slow] = [store.own.declareFeed(feedOf("busy")), store.own.declareFeed(feedOf("slow"))];
  const sequences: number[][] = [];
  store.own.writeFact(checkpoint(slow, 0));
  for (let sequence = 1; sequence < 60; sequence++) {
    for (const feed of [busy, slow]) store.own.writeFact(record(feed, sequence, 40));
    store.own.commit();
    store.own.settle(busy, sequence);
    expect(store.stats().ownBytes).toBeLessThanOrEqual(maxHeldBytes);
    for (const update of updates.splice(0)) expect(reader.apply(update)).toBe("applied");
    const held = entriesOf(store, store.own.origin).filter(({ feed }) => feed === slow);
    sequences.push(held.flatMap((entry) => (entry.kind === "record" ? entry.sequence : [])));
    // Until it is full nothing goes; then what is left is the end of what was written.
    if (sequence < 12) expect(held).toHaveLength(sequence + 1);
  }
  const last = sequences.at(-1)!;
  expect(last).toEqual(Array.from({ length: last.length }, (_, at) => 59 - last.length + 1 + at));
  expect(last.length).toBeGreaterThan(10);
  expect(entriesOf(reader, store.own.origin)).toEqual(entriesOf(store, store.own.origin));
  store.own.writeFact(checkpoint(slow, 59));
  store.own.settle(slow, 59);
  store.own.claim(claimOf("slow"));
  store.own.commit();
  expect(entriesOf(store, store.own.origin).map(({ kind }) => kind)).toContain("checkpoint");
  expect(store.own.isLong).toBe(false);
  const late = storeOf("late", { maxDocumentBytes: (maxHeldBytes * 4) / 3 }).store;
  sync(store, late, name);
  expect(entriesOf(late, store.own.origin)).toEqual(entriesOf(store, store.own.origin));
});

/** Two values that make an update of so many bytes. */
function largeStatement(bytes: number): unknown[] {
  const values = (length: number) => [factItem(1), Uint8Array.of(2, ...new Uint8Array(length))];
  const least = forged(push(...values(200))).length;
  return values(200 + bytes - least);
}

function varint(value: number): number[] {
  return value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))];
}
