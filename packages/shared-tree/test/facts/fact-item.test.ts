import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import {
  type CheckpointEntry,
  type FactEntry,
  FactItemWriter,
  type FactRecord,
  maxRecordOpsBytes,
  readFactItem,
} from "../../src/facts/fact-item.ts";

const record = (over: Partial<FactRecord> = {}): FactRecord => ({
  ...{ kind: "record", feed: 3, sequence: 70, timestampUs: 1_800_000_000_000_000, checksum: 0xdead_beef },
  ...{ isComplete: true, ops: Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7, 8) },
  ...over,
});
const checkpoint = (over: Partial<CheckpointEntry> = {}): CheckpointEntry => ({
  ...{ kind: "checkpoint", feed: 3, sequence: 70, timestampUs: 1_800_000_000_000_000, checksum: 0xdead_beef },
  ...{ isComplete: true, blocks: 32_768, digest: [1, 0xffff_ffff] },
  ...over,
});

function write(entries: readonly FactEntry[]): Uint8Array {
  const writer = new FactItemWriter();
  for (const entry of entries) writer.add(entry);
  return writer.finish();
}

function randomEntry(random: Random): FactEntry {
  const feed = random.integer(3) * 100;
  const sequence = random.integer(2) === 0 ? random.integer(50) : 2 ** 52 - 1 - random.integer(50);
  const timestampUs = random.integer(4) === 0 ? -1 : 1_800_000_000_000_000 + random.integer(1_000_000) - 500_000;
  const checksum = random.integer(2 ** 32);
  const isComplete = random.integer(2) === 0;
  switch (random.integer(4)) {
    case 0:
      return { kind: "gap", feed, from: random.integer(20), to: 20 + random.integer(100) };
    case 1: {
      const digest = [random.integer(2 ** 32), random.integer(2 ** 32)] as const;
      return checkpoint({ feed, sequence, timestampUs, checksum, isComplete, blocks: random.integer(2 ** 32), digest });
    }
    default: {
      const ops = Uint8Array.from({ length: random.integer(3) * 5 }, (_, at) =>
        at % 5 === 0 ? 2 : random.integer(256),
      );
      return record({ feed, sequence, timestampUs, checksum, isComplete, ops });
    }
  }
}

test.each([1, 2, 3, 4, 5, 6])("entries come back as they were, seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const writer = new FactItemWriter();
  for (let item = 0; item < 40; item++) {
    const entries = Array.from({ length: 1 + random.integer(30) }, () => randomEntry(random));
    for (const entry of entries) writer.add(entry);
    expect(writer.entryCount).toBe(entries.length);
    const bytes = writer.finish();
    expect(writer.entryCount).toBe(0);
    expect(readFactItem(bytes)).toEqual(entries);
  }
});

test("ops are views of the item", () => {
  const bytes = write([record()]);
  const [entry] = readFactItem(bytes);
  expect((entry as FactRecord).ops.buffer).toBe(bytes.buffer);
});

test("a record that goes on in its feed takes little besides its ops", () => {
  const first = record();
  const next = record({ sequence: 71, timestampUs: first.timestampUs + 20_000 });
  const alone = write([first]).length;
  // Flags, three bytes of time, the checksum, the length of the ops.
  expect(write([first, next]).length - alone - next.ops.length).toBe(1 + 3 + 4 + 1);
  const other = record({ feed: 4, sequence: 1_000_000, timestampUs: first.timestampUs + 1_000 });
  expect(write([first, other]).length - alone - other.ops.length).toBe(1 + 1 + 3 + 2 + 4 + 1);
});

describe("what is not written", () => {
  test.each<[string, FactEntry]>([
    ["a negative sequence", record({ sequence: -1 })],
    ["a broken feed number", record({ feed: 0.5 })],
    ["a sequence of 53 bits", record({ sequence: 2 ** 52 })],
    ["a timestamp before time", record({ timestampUs: -2 })],
    ["a gap that ends before it begins", { kind: "gap", feed: 1, from: 5, to: 4 }],
    ["a count of blocks that is no number", checkpoint({ blocks: Number.NaN })],
    ["a record of more bytes than others take", record({ ops: new Uint8Array(maxRecordOpsBytes + 1) })],
  ])("%s", (_what, entry) => {
    const writer = new FactItemWriter();
    writer.add(record());
    expect(() => writer.add(entry)).toThrow(RangeError);
    expect(writer.entryCount).toBe(1);
    expect(readFactItem(writer.finish())).toEqual([record()]);
  });

  test("the largest record is taken", () => {
    const clearings = new Uint8Array(maxRecordOpsBytes).fill(5);
    expect(readFactItem(write([record({ ops: clearings })]))).toHaveLength(1);
  });
});

describe("bytes that are no item", () => {
  const good = write([record()]);

  test.each<[string, Uint8Array]>([
    ["nothing", new Uint8Array()],
    ["a version and nothing else", Uint8Array.of(1)],
    ["another version", Uint8Array.of(2, ...good.subarray(1))],
    ["an unknown kind", Uint8Array.of(1, 3)],
    ["an unknown flag", Uint8Array.of(1, 64, ...good.subarray(2))],
    ["the feed of an entry that is not there", Uint8Array.of(1, 8, ...good.subarray(3))],
    ["the next sequence of another feed", Uint8Array.of(1, 16, ...good.subarray(2))],
    ["a gap that is complete", Uint8Array.of(1, 1 + 4, 3, 10, 5)],
    ["ops that are no ops", write([record({ ops: Uint8Array.of(7) })])],
    ["a sequence that falls below nothing", Uint8Array.of(1, 1, 3, 10, 5, 1 + 8, 99, 0)],
  ])("%s", (_what, bytes) => {
    expect(() => readFactItem(bytes)).toThrow(RangeError);
  });

  test("every shorter item is refused or holds fewer entries, and changed bytes never do anything else", () => {
    const random = createSeededRandom(5);
    const bytes = write(Array.from({ length: 12 }, () => randomEntry(random)));
    for (let length = 0; length < bytes.length; length++) {
      try {
        expect(readFactItem(bytes.subarray(0, length)).length).toBeLessThan(12);
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }
    for (let round = 0; round < 5_000; round++) {
      const changed = bytes.slice();
      for (let change = random.integer(4); change >= 0; change--) {
        changed[random.integer(changed.length)] = random.integer(256);
      }
      try {
        readFactItem(changed);
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }
  });
});
