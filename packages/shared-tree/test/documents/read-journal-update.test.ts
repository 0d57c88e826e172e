import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import * as Y from "yjs";
import {
  itemKind,
  journalClient,
  journalName,
  maxDocumentNameLength,
  parseJournalName,
  statementFields,
} from "../../src/documents/journal-log.ts";
import { DroppedJournals } from "../../src/documents/journal-store.ts";
import { readJournalUpdate } from "../../src/documents/read-journal-update.ts";
import { originOf } from "./journal-fixtures.ts";

const client = 0xdead_beef;

/** Placement items, feeds, and deletions at random, as Yjs itself writes them. */
function randomDoc(seed: number): { readonly doc: Y.Doc; readonly updates: Uint8Array[] } {
  const random = createSeededRandom(seed);
  const doc = new Y.Doc();
  doc.clientID = client;
  const updates: Uint8Array[] = [];
  doc.on("update", (update: Uint8Array) => updates.push(update));
  const log = doc.getArray<unknown>("log");
  for (let step = 0; step < 60; step++) {
    doc.transact(() => {
      const values = Array.from({ length: 1 + random.integer(4) }, (_, at) =>
        random.integer(2) === 0
          ? { feed: 10 * step + at, target: `t${at}`, [statementFields.epoch]: null }
          : Uint8Array.of(itemKind.placements, step),
      );
      log.push(values);
      for (let more = random.integer(4); more > 0 && log.length > 3; more--) log.delete(random.integer(log.length - 3));
    });
  }
  return { doc, updates };
}

/** Live clocks of an update, and ranges of deletions, as Yjs reads it. */
function asYjsReadsIt(update: Uint8Array) {
  const { structs, ds } = Y.decodeUpdate(update);
  const clocks = structs.flatMap((struct) => {
    const isLive = struct instanceof Y.Item && !(struct.content instanceof Y.ContentDeleted);
    return isLive ? Array.from({ length: struct.length }, (_, at) => struct.id.clock + at) : [];
  });
  const deletions = (ds.clients.get(client) ?? []).map(({ clock, len }) => ({ from: clock, to: clock + len }));
  const last = structs.at(-1)!;
  return { from: structs[0]!.id.clock, to: last.id.clock + last.length, clocks, deletions };
}

describe("an update", () => {
  test.each([1, 2, 3, 4, 5])("is read as Yjs reads it, seed %i", (seed) => {
    const { doc, updates } = randomDoc(seed);
    for (const update of [...updates, Y.encodeStateAsUpdate(doc)]) {
      const { clocks, ...expected } = asYjsReadsIt(update);
      const { items, ...read } = readJournalUpdate(update, client, expected.from);
      expect(read).toEqual(expected);
      expect(items.map(({ clock }) => clock)).toEqual(clocks);
    }
  });

  test("items before a known clock are skipped, those in the middle of a struct too", () => {
    const { doc } = randomDoc(6);
    const update = Y.encodeStateAsUpdate(doc);
    const { clocks, to } = asYjsReadsIt(update);
    for (let known = 0; known <= to; known++) {
      const { items } = readJournalUpdate(update, client, known);
      expect(items.map(({ clock }) => clock)).toEqual(clocks.filter((clock) => clock >= known));
    }
  });

  test("one that says nothing ends where it begins", () => {
    expect(readJournalUpdate(Uint8Array.of(0, 0), client, 7)).toEqual({ from: 7, to: 7, items: [], deletions: [] });
  });
});

describe("names", () => {
  test("of journals tell pool and origin", () => {
    const origin = originOf("router-1", 1_800_000_000_000);
    expect(journalName("default", origin)).toBe("journal/default/router-1/1800000000000");
    expect(parseJournalName("default", journalName("default", origin))).toEqual(origin);
    expect(parseJournalName("other", journalName("default", origin))).toBeUndefined();
  });

  test.each([
    "journal/default/a",
    "journal/default//1",
    "journal/default/a/",
    "journal/default/a/-1",
    "journal/default/a/1.5",
    "journal/default/a/01",
    "journal/default/a/b/1",
    "journal/default/a/9999999999999999",
    "registry/1",
    "xjournal/default/a/1",
    `journal/default/${"x".repeat(maxDocumentNameLength)}/1`,
  ])("%s is none", (name) => {
    expect(parseJournalName("default", name)).toBeUndefined();
  });

  test("the longest name is taken, one more character is not", () => {
    const router = "x".repeat(maxDocumentNameLength - "journal/default//1".length);
    expect(parseJournalName("default", `journal/default/${router}/1`)).toEqual(originOf(router));
    expect(parseJournalName("default", `journal/default/${router}x/1`)).toBeUndefined();
  });

  test("epochs of a router are written by different clients", () => {
    const clients = Array.from({ length: 1_000 }, (_, epoch) =>
      journalClient(journalName("default", originOf("a", epoch))),
    );
    expect(new Set(clients).size).toBe(1_000);
    for (const id of clients) expect(id).toBe(id >>> 0);
  });
});

test("dropped journals: the latest epoch of a router and all before it, of so many routers", () => {
  const dropped = new DroppedJournals(3);
  expect(dropped.has(originOf("a", 0))).toBe(false);
  dropped.add(originOf("a", 5));
  dropped.add(originOf("a", 2));
  expect([4, 5, 6].map((epoch) => dropped.has(originOf("a", epoch)))).toEqual([true, true, false]);
  for (const router of ["b", "c", "a", "d"]) dropped.add(originOf(router, 1));
  expect(["a", "b", "c", "d"].map((router) => dropped.epochOf(router))).toEqual([5, 0, 1, 1]);
});
