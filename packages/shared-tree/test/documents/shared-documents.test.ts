import { createSeededRandom, EspalierError } from "@espalier/core";
import type { DocumentUpdate } from "@espalier/mesh";
import { describe, expect, test } from "vitest";
import * as Y from "yjs";
import { claimStatement, feedStatement } from "../../src/documents/journal-log.ts";
import type { Journals } from "../../src/documents/journal-store.ts";
import { maxSharedDocuments } from "../../src/documents/shared-documents.ts";
import { claimOf, feedOf, record, storeOf, wholeUpdate } from "./journal-fixtures.ts";

const name = "registry/1";

/** A store with an attached document; its updates are gathered. */
function member(router: string, limits = {}) {
  const { store } = storeOf(router, limits);
  const doc = new Y.Doc();
  const cancel = store.attachShared(name, doc);
  const sent: DocumentUpdate[] = [];
  store.onUpdate((update, isOwn) => {
    if (isOwn) sent.push(update);
  });
  return { store, doc, sent, cancel };
}

const map = (doc: Y.Doc) => doc.getMap("engines");

describe("a document of many writers", () => {
  test("goes both ways, without clocks", () => {
    const [a, b] = [member("a"), member("b")];
    map(a.doc).set("e1", 1);
    map(b.doc).set("e2", 2);
    expect(a.sent).toMatchObject([{ name, from: 0, to: 0 }]);
    expect(b.store.apply(a.sent[0]!)).toBe("applied");
    expect(b.store.apply(a.sent[0]!)).toBe("duplicate");
    expect(a.store.apply(b.sent[0]!)).toBe("applied");
    expect([map(a.doc).toJSON(), map(b.doc).toJSON()]).toEqual([
      { e1: 1, e2: 2 },
      { e1: 1, e2: 2 },
    ]);
    expect([a.sent, b.sent].map(({ length }) => length)).toEqual([1, 1]);
  });

  test("what it lacks is seen, and a diff brings it", () => {
    const [a, b] = [member("a"), member("b")];
    map(a.doc).set("e1", 1);
    map(a.doc).set("e1", 2);
    expect(b.store.apply(a.sent[1]!)).toBe("gap");
    expect(b.doc.store.pendingStructs).toBeNull();
    for (const update of a.store.diff(name, b.store.stateVector(name), 1))
      expect(b.store.apply(update)).toBe("applied");
    expect(map(b.doc).toJSON()).toEqual({ e1: 2 });
    map(a.doc).delete("e1");
    expect(member("c").store.apply(a.sent[2]!)).toBe("gap");
    expect(b.store.apply(a.sent[2]!)).toBe("applied");
    expect(map(b.doc).toJSON()).toEqual({});
  });

  test("an item under one that is not there is a gap too", () => {
    const [a, b, c] = [member("a"), member("b"), member("c")];
    const list = new Y.Array();
    map(a.doc).set("list", list);
    b.store.apply(a.sent[0]!);
    (map(b.doc).get("list") as Y.Array<number>).push([5]);
    expect(c.store.apply(b.sent[0]!)).toBe("gap");
    c.store.apply(a.sent[0]!);
    expect(c.store.apply(b.sent[0]!)).toBe("applied");
    expect(map(c.doc).toJSON()).toEqual({ list: [5] });
  });

  test("garbage and documents in documents are refused, and nothing of them is applied", () => {
    const [a, b] = [member("a"), member("b")];
    map(a.doc).set("engine", { url: "http://e1", labels: ["x", "y"] });
    const [update] = a.sent;
    const random = createSeededRandom(3);
    for (let length = 0; length < update!.bytes.length; length++) {
      expect(() => b.store.apply({ ...update!, bytes: update!.bytes.slice(0, length) })).toThrow(EspalierError);
    }
    for (let round = 0; round < 500; round++) {
      const bytes = update!.bytes.slice();
      bytes[random.integer(bytes.length)] = random.integer(256);
      try {
        member("c").store.apply({ ...update!, bytes });
      } catch (error) {
        expect(error).toBeInstanceOf(EspalierError);
      }
    }
    expect(map(b.doc).size).toBe(0);
    map(a.doc).set("doc", new Y.Doc());
    b.store.apply(update!);
    expect(() => b.store.apply(a.sent[1]!)).toThrow(EspalierError);
    const tight = member("d", { maxUpdateBytes: update!.bytes.length - 1 });
    expect(() => tight.store.apply(update!)).toThrow("bytes");
  });

  test("states it as any document, its size as it is now", () => {
    const { store, doc } = member("a");
    const empty = store.state(name)!.byteLength;
    map(doc).set("e1", "x".repeat(500));
    expect(store.state(name)).toEqual({ name, origin: undefined, clock: 0, byteLength: expect.any(Number) });
    expect(store.state(name)!.byteLength).toBeGreaterThan(empty + 500);
    expect(store.list().map((state) => state.name)).toEqual(["journal/default/a/1", name]);
    expect(store.names()).toEqual(["journal/default/a/1", name]);
    expect([...store.diff(name, store.stateVector(name), 1)]).toEqual([]);
  });

  test("a detached one is gone, an unknown one can be attached when it comes", () => {
    const [a, b] = [member("a"), member("b")];
    map(a.doc).set("e1", 1);
    b.cancel();
    expect(b.store.apply(a.sent[0]!)).toBe("dropped");
    map(b.doc).set("e2", 1);
    expect(b.sent).toHaveLength(0);
    const late = new Y.Doc();
    const cancel = b.store.onUnknown((unknown) => void (unknown === name && b.store.attachShared(unknown, late)));
    expect(b.store.apply(a.sent[0]!)).toBe("applied");
    cancel();
    expect(map(late).toJSON()).toEqual({ e1: 1 });
    expect(b.store.apply({ ...a.sent[0]!, name: "other" })).toBe("dropped");
  });

  test("names of journals, names that are taken, and more than the bound are refused", () => {
    const { store } = storeOf("a");
    expect(() => store.attachShared("journal/default/b/1", new Y.Doc())).toThrow(RangeError);
    expect(() => store.attachShared("x".repeat(257), new Y.Doc())).toThrow(RangeError);
    for (let at = 0; at < maxSharedDocuments; at++) store.attachShared(`overview/${at}`, new Y.Doc());
    expect(() => store.attachShared("overview/0", new Y.Doc())).toThrow(RangeError);
    expect(() => store.attachShared("overview/64", new Y.Doc())).toThrow(RangeError);
  });
});

describe("a client of stock Yjs", () => {
  test("gets a journal, reads its JSON, and follows it", () => {
    const { store, updates } = storeOf("a");
    const { own } = store;
    const feed = own.declareFeed(feedOf("t1"));
    own.writeFact(record(feed, 1));
    own.claim(claimOf("t1"));
    own.commit();
    const client = new Y.Doc();
    catchUp(client, store, own.name);
    const statements = () =>
      client
        .getArray("log")
        .toArray()
        .filter((value) => !(value instanceof Uint8Array));
    expect(statements()).toEqual([feedStatement(feed, feedOf("t1")), claimStatement(claimOf("t1"))]);
    own.claim(claimOf("t1", 2));
    own.commit();
    Y.applyUpdate(client, updates[1]!.bytes);
    expect(statements()).toEqual([feedStatement(feed, feedOf("t1")), claimStatement(claimOf("t1", 2))]);
    catchUp(client, store, own.name);
    expect(Y.encodeStateAsUpdate(client)).toEqual(wholeUpdate(store, own.name));
  });

  test("gets a large journal in several updates", () => {
    const { store } = storeOf("a");
    const { own } = store;
    const feed = own.declareFeed(feedOf("t1"));
    const client = new Y.Doc();
    expect(catchUp(client, store, own.name)).toEqual([]);
    for (let sequence = 0; sequence < 40; sequence++) {
      own.writeFact(record(feed, sequence, 50));
      own.commit();
    }
    const sizes = catchUp(client, store, own.name);
    expect(sizes.length).toBeGreaterThan(8);
    for (const sizeBytes of sizes) expect(sizeBytes).toBeLessThan(2_100);
    expect(Y.encodeStateAsUpdate(client)).toEqual(wholeUpdate(store, own.name));
    expect(catchUp(client, store, own.name)).toEqual([]);
    expect(catchUp(client, store, "unknown")).toEqual([]);
    expect(wholeUpdate(store, "unknown")).toEqual(Y.encodeStateAsUpdate(new Y.Doc()));
  });
});

/** Applies what a client lacks. @returns the sizes of the updates */
function catchUp(client: Y.Doc, store: Journals, name: string): number[] {
  const sizes: number[] = [];
  for (const { bytes } of store.diff(name, Y.encodeStateVector(client), 2_000)) {
    Y.applyUpdate(client, bytes);
    sizes.push(bytes.length);
  }
  return sizes;
}
