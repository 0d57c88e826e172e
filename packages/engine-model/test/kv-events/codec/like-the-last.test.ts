import { createSeededRandom, type Random } from "@espalier/core";
import { encode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { plainEvents } from "./plain-events.ts";
import { array, type Bytes, float64, int, integer, map, nil, text, uint } from "./wire-values.ts";

const message = (...events: readonly Bytes[]): Uint8Array =>
  Uint8Array.from(array(float64(1.5), array(...events), nil));

const wide = (value: number): Bytes => uint(2n ** 63n + BigInt(value), 8);

/** A removal of one block as vLLM sends it, by one or the other of its releases. */
const removals = [
  { form: "array", removed: (hash: Bytes): Bytes => array(text("BlockRemoved"), array(hash), text("GPU"), integer(0)) },
  {
    form: "map",
    removed: (hash: Bytes): Bytes =>
      map(...[text("type"), text("BlockRemoved"), text("block_hashes"), array(hash), text("medium"), text("GPU")]),
  },
];

/** Reads the event after one that resembles it, and with a decoder that has seen nothing: both must agree. */
function agree(before: Bytes, after: Bytes, where: string): void {
  const used = createEventDecoder();
  used.decode(message(before, before));
  const fresh = createEventDecoder();
  const report = { ...used.decode(message(after)) };
  expect(report, where).toEqual(fresh.decode(message(after)));
  expect(plainEvents(used.batch), where).toEqual(plainEvents(fresh.batch));
}

describe.each(removals)("a removal after one that resembles it: $form", ({ removed }) => {
  test("with any one byte changed it is read as it stands", () => {
    const before = removed(wide(5));
    for (let at = 0; at < before.length; at++) {
      for (const byte of [0x00, 0x41, 0x7f, 0x91, 0xa3, 0xc0, 0xc1, 0xcf, 0xd3, 0xff]) {
        agree(before, before.with(at, byte), `byte ${at} as ${byte}`);
      }
      for (const step of [1, 0xff])
        agree(before, before.with(at, (before[at]! + step) & 0xff), `byte ${at} by ${step}`);
    }
  });

  test("cut anywhere, or with something behind it, it is read as it stands", () => {
    const before = removed(wide(5));
    for (let length = 0; length < before.length; length++) agree(before, before.slice(0, length), `${length} bytes`);
    agree(before, [...before, 0xc0], "one more");
  });

  test.each([
    { hash: "small", bytes: integer(5), value: 5n },
    { hash: "of 32 bits", bytes: uint(2 ** 31, 4), value: 2n ** 31n },
    { hash: "of 64 bits, signed", bytes: int(-5, 8), value: 2n ** 64n - 5n },
    { hash: "of 64 bits, though small", bytes: uint(5, 8), value: 5n },
    { hash: "of 8 bytes", bytes: [0xc4, 8, 1, 2, 3, 4, 5, 6, 7, 8], value: 0x0102030405060708n },
  ])("its hash is $hash, between others", ({ bytes, value }) => {
    const decoder = createEventDecoder();
    decoder.decode(message(removed(wide(1)), removed(bytes), removed(wide(2)), removed(bytes), removed(bytes)));
    const hashes = plainEvents(decoder.batch).map((event) => event.hashes);
    expect(hashes).toEqual([[2n ** 63n + 1n], [value], [2n ** 63n + 2n], [value], [value]]);
  });

  test("several hashes in one removal neither use nor spoil what is remembered", () => {
    const decoder = createEventDecoder();
    const many = array(text("BlockRemoved"), array(wide(2), wide(3)), text("CPU"));
    const none = array(text("BlockRemoved"), array(), text("CPU"));
    decoder.decode(message(removed(wide(1)), many, removed(wide(4)), none, removed(wide(5))));
    expect(plainEvents(decoder.batch).map(({ hashes, tier }) => [hashes.length, tier])).toEqual([
      [1, "gpu"],
      [2, "cpu"],
      [1, "gpu"],
      [0, "cpu"],
      [1, "gpu"],
    ]);
  });
});

test("a removal that is refused is not what later ones are like", () => {
  const decoder = createEventDecoder();
  const wrong = array(text("BlockRemoved"), array(wide(1)), integer(7));
  expect(decoder.decode(message(wrong, wrong, wrong))).toMatchObject({ events: 0, malformedEvents: 3 });
});

test("unknown media are counted for every removal that is like the last, message by message", () => {
  const decoder = createEventDecoder();
  const odd = array(text("BlockRemoved"), array(wide(1)), text("MOON"));
  expect(decoder.decode(message(odd, odd, odd)).unknownMedia).toBe(3);
  expect(decoder.decode(message(odd)).unknownMedia).toBe(1);
  expect(decoder.decode(message(...removals.map(({ removed }) => removed(wide(1))))).unknownMedia).toBe(0);
});

// What is remembered is 128 bytes long at most.
test.each([126, 127, 128, 129, 130, 200])("removals of %i bytes", (length) => {
  const base = array(text("BlockRemoved"), array(wide(1)), nil, integer(3), text(""));
  const filler = "x".repeat(length - base.length - (length - base.length > 31 ? 1 : 0));
  const removed = (hash: number): Bytes =>
    array(text("BlockRemoved"), array(wide(hash)), nil, integer(3), text(filler));
  expect(removed(1)).toHaveLength(length);
  const decoder = createEventDecoder();
  const changed = [...removed(4).slice(0, -1), 0x79];
  decoder.decode(message(removed(1), removed(2), removed(3), changed, removed(5)));
  const read = plainEvents(decoder.batch).map(({ hashes, group }) => [hashes[0]! - 2n ** 63n, group]);
  expect(read).toEqual([1n, 2n, 3n, 4n, 5n].map((hash) => [hash, 3]));
});

test("random runs of removals, stores and clears are read as by a decoder that remembers nothing", () => {
  const random = createSeededRandom(71);
  const used = createEventDecoder();
  const one = <T>(...choices: readonly T[]): T => choices[random.integer(choices.length)]!;
  for (let round = 0; round < 400; round++) {
    const events = Array.from({ length: 1 + random.integer(12) }, () => randomEvent(random, one));
    const report = { ...used.decode(encode([1.5, events, 0], { useBigInt64: true })) };
    const read = plainEvents(used.batch);
    // One event to a message and a decoder for each: there is nothing that it could be like.
    const alone = events.map((event) => {
      const fresh = createEventDecoder();
      const { unknownMedia } = fresh.decode(encode([1.5, [event], 0], { useBigInt64: true }));
      return { unknownMedia, read: plainEvents(fresh.batch) };
    });
    expect(read).toEqual(alone.flatMap((each) => each.read));
    expect(report.unknownMedia).toBe(alone.reduce((sum, each) => sum + each.unknownMedia, 0));
  }
});

function randomEvent(random: Random, one: <T>(...choices: readonly T[]) => T): unknown {
  const hash = one<unknown>(2n ** 63n + BigInt(random.integer(4)), 2n ** 63n, random.integer(9), -(2n ** 62n));
  const kind = random.integer(10);
  if (kind === 0) return ["AllBlocksCleared"];
  if (kind === 1) return ["BlockStored", [hash], null, [1, 2], 2, null, one("GPU", "CPU")];
  const medium = one("GPU", "GPU", "CPU", "MOON");
  const group = one(0, 0, 1);
  return one<unknown>(
    ["BlockRemoved", [hash], medium, group],
    { type: "BlockRemoved", block_hashes: [hash], medium, group_idx: group },
    { type: "BlockRemoved", block_hashes: [hash], medium },
    { type: "BlockRemoved", medium, block_hashes: [hash] },
  );
}
