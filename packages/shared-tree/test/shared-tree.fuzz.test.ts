import { asRouterId, EspalierError } from "@espalier/core";
import { type FuzzTarget, fuzzInFile, seedsInHex } from "@espalier/testing";
import { expect, test } from "vitest";
import * as Y from "yjs";
import { readStateVector } from "../src/documents/journal-document.ts";
import { journalClient } from "../src/documents/journal-log.ts";
import { readJournalUpdate } from "../src/documents/read-journal-update.ts";
import { FactItemWriter, readFactItem } from "../src/facts/fact-item.ts";
import { applyFactOps, countFactOps, type FactOpsSink } from "../src/facts/fact-ops.ts";
import { readSnapshotFrame } from "../src/facts/snapshot-codec.ts";
import { minSnapshotFrameBytes } from "../src/facts/snapshots.ts";
import { maxLoadFrameReports, readLoadFrame, writeLoadFrame } from "../src/load/load-frame.ts";
import { maxFrameNotes, readNoteFrame, writeNoteFrame } from "../src/notes/note-frame.ts";
import { PlacementItemWriter, readPlacementItem } from "../src/placements/placement-item.ts";
import { readRegistryEntry, readRegistryKey } from "../src/registry/registry-entry.ts";
import { maxUsageReports, readUsageFrame, writeUsageFrame } from "../src/usage/usage-frame.ts";
import { journalContent } from "./documents/journal-content.ts";
import { checkpoint, claimOf, feedOf, record, storeOf } from "./documents/journal-fixtures.ts";
import { a, createFoldHarness, storing } from "./facts/fold-harness.ts";

const origin = { router: asRouterId("r\u00e4uter"), epoch: 1_700_000_000_000 };
const isInvalidFrame = (thrown: unknown): boolean =>
  thrown instanceof EspalierError && thrown.code === "mesh_frame_invalid";
const isRefusedUpdate = (thrown: unknown): boolean =>
  thrown instanceof EspalierError && thrown.code === "mesh_update_refused";

const gauge = {
  inFlight: 3,
  pendingPrefillTokens: 900,
  decodeTokens: 5,
  pendingWorkMs: 9,
  activeTokens: 48,
  lendingTokens: 56,
  yieldingInFlight: 56,
  answers: 0,
  sentWorkMs: 2,
  computedMs: 1,
};
const loadFrame = writeLoadFrame({
  ...{ origin, counter: 300, sentWallMs: 1_700_000_000_500, relayedAgeMs: 40, covers: { from: 5, to: 70 } },
  reports: [{ number: 0, key: "engine-0", counter: 300, ...gauge }],
});
const seldom = { activeTokens: 0, lendingTokens: 0, yieldingInFlight: 0, answers: 0 };
const wholeLoadFrame = writeLoadFrame({
  ...{ origin, counter: 301, sentWallMs: 1_700_000_000_500, relayedAgeMs: undefined },
  covers: { from: 0, to: Number.POSITIVE_INFINITY },
  reports: [{ number: 200, key: undefined, counter: 301, ...gauge, ...seldom }],
});
const answeringFrame = writeLoadFrame({
  ...{ origin, counter: 302, sentWallMs: 1_700_000_000_500, relayedAgeMs: undefined, covers: undefined },
  reports: [{ number: 0, key: undefined, counter: 302, ...gauge, ...seldom, answers: 2 }],
});

/** A journal as one router writes it, and the updates that make it. */
const alice = storeOf("alice");
const feed = alice.store.own.declareFeed(feedOf("t1"));
alice.store.own.claim(claimOf("t1"));
alice.store.own.writePlacements(Uint8Array.of(5), 1_000);
alice.store.own.commit();
for (let sequence = 1; sequence < 6; sequence++) alice.store.own.writeFact(record(feed, sequence, 3));
alice.store.own.commit();
alice.store.own.writeFact(checkpoint(feed, 5));
alice.store.own.settle(feed, 5);
alice.store.own.commit();
const { updates } = alice;
const journal = "journal/default/alice/1";

const items = new FactItemWriter();
for (const entry of [record(1, 1), checkpoint(1, 1), { kind: "gap", feed: 1, from: 2, to: 9 } as const])
  items.add(entry);

function placementItem(): Uint8Array {
  const writer = new PlacementItemWriter();
  const words = Uint32Array.of(1, 2, 3, 4, 5, 6);
  const run = { parent: undefined, shared: 0, words, blockCount: 3 };
  writer.addRun({ kind: "place", feed: 3, stamp: 3_500_000_000_000_000, ttlMs: 5_000 }, run, 17);
  writer.addRun(
    { kind: "confirm", feed: 3, stamp: 3_500_000_000_000_009, ttlMs: 1 },
    { ...run, parent: 17, shared: 2 },
    18,
  );
  writer.addBinding({ kind: "bind", stamp: 3_500_000_000_000_010, ttlMs: 70, key: { low: 1, high: 2 }, value: "e" });
  return writer.take();
}

const source = createFoldHarness();
source.fold.apply(a, storing(0, 20));
const snapshot = [...source.fold.exportFrames(minSnapshotFrameBytes)];
const shared = new Y.Doc();
shared.clientID = 1;
shared.getMap("engines").set("engine/a/b", { url: "http://127.0.0.1:1", at: 5 });

const nothing: FactOpsSink = {
  ...{ stored() {}, removed() {}, removedLow() {}, orphaned() {}, holeGone() {}, cleared() {} },
};

const targets: readonly FuzzTarget[] = [
  {
    name: "load frame",
    seeds: [loadFrame, wholeLoadFrame, answeringFrame],
    refuses: isInvalidFrame,
    read: (bytes) => expect(readLoadFrame(bytes).reports.length).toBeLessThanOrEqual(maxLoadFrameReports),
  },
  {
    name: "note frame",
    seeds: [writeNoteFrame({ origin, notes: [{ key: "times/m", counter: 3, ageMs: 20, bytes: Uint8Array.of(1, 2) }] })],
    refuses: isInvalidFrame,
    read: (bytes) => expect(readNoteFrame(bytes).notes.length).toBeLessThanOrEqual(maxFrameNotes),
  },
  {
    name: "usage frame",
    seeds: [
      writeUsageFrame({
        ...{ origin, counter: 7, relayedAgeMs: undefined },
        reports: [{ key: 0x1234, counter: 7, tokens: 123_456, lift: 0, firstAgeMs: -4_000 }],
      }),
      writeUsageFrame({
        ...{ origin, counter: 8, relayedAgeMs: 40 },
        reports: [{ key: 2 ** 52, counter: 7, tokens: 1, lift: 9, firstAgeMs: undefined }],
      }),
    ],
    refuses: isInvalidFrame,
    read: (bytes) => expect(readUsageFrame(bytes).reports.length).toBeLessThanOrEqual(maxUsageReports),
  },
  {
    name: "facts of a journal",
    seeds: [items.finish()],
    read(bytes) {
      for (const entry of readFactItem(bytes)) if (entry.kind === "record") countFactOps(entry.ops);
    },
  },
  {
    name: "ops of a record",
    seeds: [record(1, 1, 9).ops, Uint8Array.of(5, 1, 2, 3, 4, 5, 6, 7, 8, 9)],
    read: (bytes) => expect(applyFactOps(bytes, nothing)).toBe(countFactOps(bytes)),
  },
  { name: "placements of a journal", seeds: [placementItem()], read: readPlacementItem },
  { name: "frame of a snapshot", seeds: snapshot, read: readSnapshotFrame },
  {
    name: "snapshot taken in",
    seeds: snapshot,
    read(bytes) {
      const taken = createFoldHarness().fold.beginImport();
      taken.frame(bytes);
      taken.end();
    },
  },
  {
    name: "state vector",
    seeds: [Y.encodeStateVector(shared)],
    read: readStateVector,
  },
  {
    name: "update of a journal, read",
    seeds: updates.map(({ bytes }) => bytes),
    // Whoever calls it turns any error into a refusal; an endless loop it could not.
    refuses: (thrown) => thrown instanceof Error,
    read: (bytes) => readJournalUpdate(bytes, journalClient(journal), 0),
  },
  {
    name: "update of a journal, taken in",
    seeds: updates.map(({ bytes }) => bytes),
    refuses: isRefusedUpdate,
    read(bytes, random) {
      const { store } = storeOf("bob");
      const at = random.integer(updates.length);
      for (const update of updates.slice(0, at)) store.apply(update);
      store.apply({ ...updates[at]!, bytes });
      journalContent(store, journal);
    },
  },
  {
    name: "update of a shared document, taken in",
    seeds: [Y.encodeStateAsUpdate(shared)],
    refuses: isRefusedUpdate,
    read(bytes) {
      const { store } = storeOf("bob");
      const doc = new Y.Doc();
      store.attachShared("registry/1", doc);
      store.apply({ name: "registry/1", from: 0, to: 0, bytes });
      for (const [key, value] of doc.getMap("engines")) {
        readRegistryKey(key);
        readRegistryEntry(value);
      }
    },
  },
];

fuzzInFile(test, "whatever comes is read, or refused as documented", targets);

test("encoders write the bytes that routers in the field read", async () => {
  await expect(seedsInHex(targets)).toMatchFileSnapshot("golden/frames.txt");
});
