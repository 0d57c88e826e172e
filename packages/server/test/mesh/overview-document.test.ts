import { asRouterId, createSeededRandom } from "@espalier/core";
import type { DocumentUpdate } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import * as Y from "yjs";
import {
  createOverviewDocument,
  maxOverviewSectionBytes,
  type OverviewDocument,
  overviewIntervalMs,
  overviewSections,
} from "../../src/mesh/overview-document.ts";

const emptyVector = Uint8Array.of(0);
const router = asRouterId("r1");
const epoch = 1_700_000_000_000;

function makeOverview(at = epoch) {
  const time = createVirtualTime();
  const overview = createOverviewDocument({ origin: { router, epoch: at }, ...time });
  const updates: DocumentUpdate[] = [];
  overview.onUpdate((update) => updates.push(update));
  return { time, overview, updates };
}

function follow(overview: OverviewDocument, reader = new Y.Doc()): Y.Doc {
  for (const { bytes } of overview.diff(overview.name, Y.encodeStateVector(reader), 65_536)) {
    Y.applyUpdate(reader, bytes);
  }
  overview.onUpdate(({ bytes }) => Y.applyUpdate(reader, bytes));
  return reader;
}

const shown = (reader: Y.Doc): unknown => reader.getMap("overview").toJSON();

test("a reader sees the sections as they are, and as they change", () => {
  const { time, overview } = makeOverview();
  overview.set({ engines: [{ id: "e1", isUp: true }] });
  const reader = follow(overview);
  expect(shown(reader)).toEqual({ engines: [{ id: "e1", isUp: true }] });
  time.advance(overviewIntervalMs);
  overview.set({ load: { e1: 3 } });
  expect(shown(reader)).toEqual({ engines: [{ id: "e1", isUp: true }], load: { e1: 3 } });
});

test("sections that are set together are written together", () => {
  const { time, overview } = makeOverview();
  const reader = follow(overview);
  overview.set({ engines: [], load: 1, queues: [] });
  expect(shown(reader)).toEqual({ engines: [], load: 1, queues: [] });
  overview.set({ load: 2, queues: [3] });
  expect(shown(reader)).toEqual({ engines: [], load: 1, queues: [] });
  time.advance(overviewIntervalMs);
  expect(shown(reader)).toEqual({ engines: [], load: 2, queues: [3] });
});

test("the first change is written at once, those after it once a second, the latest value only", () => {
  const { time, overview, updates } = makeOverview();
  const reader = follow(overview);
  for (let value = 0; value < 50; value++) overview.set({ load: value });
  expect(shown(reader)).toEqual({ load: 0 });
  time.advance(overviewIntervalMs - 1);
  expect(shown(reader)).toEqual({ load: 0 });
  time.advance(1);
  expect(shown(reader)).toEqual({ load: 49 });
  expect(updates).toHaveLength(2);
});

test("what has not changed is not written, and what changed back before it was written is not either", () => {
  const { time, overview, updates } = makeOverview();
  overview.set({ links: { r2: "up" } });
  overview.set({ links: { r2: "up" } });
  overview.set({ links: { r2: "down" } });
  overview.set({ links: { r2: "up" } });
  time.advance(10 * overviewIntervalMs);
  expect(updates).toHaveLength(1);
});

test("ten thousand changes leave the document as small as what it holds", () => {
  const { time, overview } = makeOverview();
  const random = createSeededRandom(1);
  const reader = follow(overview);
  const sizes: number[] = [];
  for (let round = 0; round < 10_000; round++) {
    const section = overviewSections[random.integer(overviewSections.length)]!;
    overview.set({ [section]: { round: 100_000 + round } });
    time.advance(overviewIntervalMs);
    if (round % 1_000 === 999) sizes.push(overview.state(overview.name)!.byteLength);
  }
  expect(Math.max(...sizes)).toBeLessThan(800);
  expect(sizes.at(-1)).toBeLessThan(sizes[0]! + 100);
  expect(Y.encodeStateAsUpdate(reader).length).toBeLessThan(800);
});

test("a section of exactly the bound is shown, one byte more is replaced by a note", () => {
  const { time, overview } = makeOverview();
  const reader = follow(overview);
  const fitting = "x".repeat(maxOverviewSectionBytes - 2);
  overview.set({ engines: fitting });
  expect(shown(reader)).toEqual({ engines: fitting });
  time.advance(overviewIntervalMs);
  overview.set({ engines: `${fitting}x` });
  expect(shown(reader)).toEqual({ engines: { tooLarge: true, sizeBytes: maxOverviewSectionBytes + 1 } });
});

test("a list of exactly the bound is whole, of one that is longer the first entries that fit are kept, and then it goes on", () => {
  const { time, overview } = makeOverview();
  const reader = follow(overview);
  const entries = Array.from({ length: 64 }, () => "x".repeat(1_021));
  // 64 entries of 1,023 bytes with 63 commas and two brackets are one byte more than fit.
  const fitting = [...entries.slice(1), "x".repeat(1_020)];
  overview.set({ engines: fitting });
  expect(shown(reader)).toEqual({ engines: fitting });
  time.advance(overviewIntervalMs);
  overview.set({ engines: entries });
  expect(shown(reader)).toEqual({ engines: entries.slice(1) });
  time.advance(overviewIntervalMs);
  overview.set({ engines: ["short"] });
  expect(shown(reader)).toEqual({ engines: ["short"] });
});

test("a reader of an earlier epoch takes over what the later one says, whatever it held", () => {
  const first = makeOverview(epoch);
  const reader = follow(first.overview);
  for (let round = 0; round < 100; round++) {
    for (const section of overviewSections) first.overview.set({ [section]: round });
    first.time.advance(overviewIntervalMs);
  }
  first.overview.stop();
  const second = makeOverview(epoch + 1);
  for (const section of overviewSections) {
    second.overview.set({ [section]: `new ${section}` });
    second.time.advance(overviewIntervalMs);
  }
  follow(second.overview, reader);
  expect(shown(reader)).toEqual(Object.fromEntries(overviewSections.map((section) => [section, `new ${section}`])));
});

test("it knows its own name only, and says so of a state vector it cannot read", () => {
  const { overview } = makeOverview();
  overview.set({ links: [] });
  expect(overview.name).toBe("overview/r1");
  expect(overview.state("overview/r1")).toMatchObject({ name: "overview/r1", clock: 0 });
  expect(overview.state("overview/r2")).toBeUndefined();
  expect([...overview.diff("overview/r2", emptyVector, 65_536)]).toEqual([]);
  expect(() => [...overview.diff("overview/r1", Uint8Array.of(200), 65_536)]).toThrow(RangeError);
});

test("nothing is written after the stop, and no timer is left", () => {
  const { time, overview, updates } = makeOverview();
  overview.set({ load: 1 });
  overview.set({ load: 2 });
  overview.stop();
  expect(time.pendingCount).toBe(0);
  time.advance(10 * overviewIntervalMs);
  expect(updates).toHaveLength(1);
});
