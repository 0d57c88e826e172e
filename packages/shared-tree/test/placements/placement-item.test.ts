import { ByteWriter, createSeededRandom } from "@espalier/core";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  maxBindingTtlMs,
  maxBindingValueBytes,
  maxPlacementItemBytes,
  maxPlacementTtlMs,
  maxRunBlocks,
  PlacementItemWriter,
  readPlacementItem,
} from "../../src/placements/placement-item.ts";
import { chainOf, createLogRouter } from "./placement-rig.ts";

const words = chainOf(createSeededRandom(1), 4);
const stamp = 3_500_000_000_000_000;

function sample(): Uint8Array {
  const writer = new PlacementItemWriter();
  writer.addRun(
    { kind: "place", feed: 3, stamp, ttlMs: 5_000 },
    { parent: undefined, shared: 0, words, blockCount: 3 },
    17,
  );
  writer.addRun(
    { kind: "confirm", feed: 4, stamp: stamp + 9, ttlMs: 1 },
    { parent: 17, shared: 3, words, blockCount: 3 },
    18,
  );
  writer.addRun(
    { kind: "refute", feed: 3, stamp: stamp + 8, ttlMs: 60 },
    { parent: 12, shared: 2, words, blockCount: 4 },
    18,
  );
  writer.addBinding({ kind: "bind", stamp, ttlMs: 70, key: { low: 1, high: 0xffff_ffff }, value: "engine-ä" });
  writer.addBinding({ kind: "unbind", stamp, ttlMs: 80, key: { low: 2, high: 3 }, value: "" });
  expect(writer.records).toBe(5);
  const bytes = writer.take();
  expect(writer.records).toBe(0);
  return bytes;
}

test("what is written is read again", () => {
  expect(readPlacementItem(sample())).toEqual([
    {
      kind: "place",
      feed: 3,
      stamp,
      ttlMs: 5_000,
      run: { number: 17, parent: undefined, shared: 0, words: words.slice(0, 6) },
    },
    {
      kind: "confirm",
      feed: 4,
      stamp: stamp + 9,
      ttlMs: 1,
      run: { number: undefined, parent: 17, shared: 3, words: new Uint32Array(0) },
    },
    {
      kind: "refute",
      feed: 3,
      stamp: stamp + 8,
      ttlMs: 60,
      run: { number: 18, parent: 12, shared: 2, words: words.slice(4) },
    },
    { kind: "bind", stamp, ttlMs: 70, key: { low: 1, high: 0xffff_ffff }, value: "engine-ä" },
    { kind: "unbind", stamp, ttlMs: 80, key: { low: 2, high: 3 }, value: "" },
  ]);
});

test("times to live are cut to what anybody believes", () => {
  const writer = new PlacementItemWriter();
  const run = { parent: undefined, shared: 0, words, blockCount: 1 };
  writer.addRun({ kind: "place", feed: 0, stamp, ttlMs: maxPlacementTtlMs + 1 }, run, 1);
  writer.addBinding({ kind: "unbind", stamp, ttlMs: maxBindingTtlMs + 1, key: { low: 0, high: 0 }, value: "" });
  expect(readPlacementItem(writer.take()).map(({ ttlMs }) => ttlMs)).toEqual([maxPlacementTtlMs, maxBindingTtlMs]);
});

/** An item with one record, made by hand. */
function itemOf(write: (writer: ByteWriter) => void): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(1);
  writer.varint(5);
  writer.varint(stamp);
  write(writer);
  return writer.copy();
}

const placed = (distance: number, shared: number, count: number, blocks = count): Uint8Array =>
  itemOf((writer) => {
    writer.u8(0);
    writer.signedVarint(0);
    for (const value of [0, 1_000, distance]) writer.varint(value);
    if (distance > 0) writer.varint(shared);
    writer.varint(count);
    writer.raw(new Uint8Array(blocks * 8));
  });

const bound = (valueBytes: number): Uint8Array =>
  itemOf((writer) => {
    writer.u8(3);
    writer.signedVarint(0);
    writer.varint(1_000);
    writer.u32(1);
    writer.u32(2);
    writer.text("x".repeat(valueBytes));
  });

test("one past every bound is refused, the bound itself is not", () => {
  expect(readPlacementItem(placed(0, 0, maxRunBlocks))).toHaveLength(1);
  expect(readPlacementItem(placed(5, maxRunBlocks - 1, 1))).toHaveLength(1);
  expect(readPlacementItem(bound(maxBindingValueBytes))).toHaveLength(1);
  const refused = [
    placed(0, 0, maxRunBlocks + 1),
    placed(5, maxRunBlocks, 1),
    placed(6, 1, 1),
    placed(0, 0, 0),
    placed(0, 0, 5, 4),
    placed(0, 0, 2 ** 40, 4),
    bound(maxBindingValueBytes + 1),
    new Uint8Array(maxPlacementItemBytes + 1).fill(1),
    Uint8Array.of(2, 0, 0),
    itemOf((writer) => writer.raw(Uint8Array.of(5, 0))),
    itemOf((writer) => {
      writer.u8(0);
      writer.signedVarint(-stamp - 1);
    }),
    new Uint8Array(0),
  ];
  for (const bytes of refused) expect(() => readPlacementItem(bytes)).toThrow(RangeError);
});

test("an item that ends in the middle of a record is refused whole", () => {
  const bytes = sample();
  let whole = 0;
  for (let length = 0; length < bytes.length; length++) {
    try {
      readPlacementItem(bytes.subarray(0, length));
      whole += 1;
    } catch (error) {
      expect(error).toBeInstanceOf(RangeError);
    }
  }
  // Only where a record ends, and after the head.
  expect(whole).toBe(5);
});

test("arbitrary bytes, and items with bytes changed, are read or counted, and what is refused changes nothing", () => {
  const random = createSeededRandom(21);
  const b = createLogRouter("b");
  const a = createLogRouter("a");
  const declaration = { target: "e/0", epoch: null };
  const outcomes = ["applied", "older-epoch", "unresolved", "no-slot", "ahead"];
  const knownTo = ({ index, slots, bindings, meter }: typeof b): readonly number[] => [
    ...outcomes.map((outcome) => meter.value("espalier_placements_received_total", outcome)),
    index.placements.blockCount(slots.find("e/0")),
    bindings.size,
  ];
  const receive = (bytes: Uint8Array): void => {
    const before = b.meter.value("espalier_placements_invalid_items_total");
    const known = knownTo(b);
    b.log.receive(a.origin, bytes, (feed) => (feed < 5 ? declaration : undefined));
    if (b.meter.value("espalier_placements_invalid_items_total") > before) {
      expect(knownTo(b)).toEqual(known);
    }
  };
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 120 }), (bytes) => receive(bytes)),
    { seed: 22, numRuns: randomRuns(500) },
  );
  const whole = sample();
  for (let round = 0; round < 4_000; round++) {
    const bytes = whole.slice();
    for (let change = 0; change <= random.integer(3); change++)
      bytes[random.integer(bytes.length)] = random.integer(256);
    receive(bytes);
  }
  expect(b.meter.value("espalier_placements_invalid_items_total")).toBeGreaterThan(500);
  expect(b.meter.value("espalier_placements_received_total", "applied")).toBeGreaterThan(500);
});
