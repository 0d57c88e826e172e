import { asRouterId, createSeededRandom } from "@espalier/common";
import { expect, test } from "vitest";
import { decodeStreamEntry, encodeStreamEntry } from "../../src/redis/blob.ts";
import { decodeLease, encodeLease } from "../../src/redis/lease.ts";
import {
  type ControlMessage,
  decodeControlMessage,
  decodeLoadEnvelope,
  encodeControlMessage,
  encodeLoadEnvelope,
} from "../../src/redis/message-channels.ts";

const from = { router: asRouterId("r\u00e4uter-1"), epoch: 1_700_000_000_000 };
const maxBytes = 100_000;
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

const messages: ControlMessage[] = [
  { kind: "hello", from },
  { kind: "goodbye", from },
  { kind: "streams", from },
  { kind: "republish", from, origin: { router: asRouterId("b"), epoch: 0 } },
  { kind: "snapshot", from, id: "1-2", targets: null, holder: null },
  { kind: "snapshot", from, id: "1-2", targets: ["e#0", "e#1"], holder: from },
  {
    kind: "statements",
    from,
    statements: [{ target: "e#0", life: "0.-1.ff", sequence: 7, isComplete: false, blocks: 3, digest: [1, -5] }],
  },
];

test.each(messages)("a $kind message comes out as it went in", (message) => {
  expect(decodeControlMessage(utf8(encodeControlMessage(message)), maxBytes)).toEqual(message);
});

test("stream entries, gauges and leases come out as they went in", () => {
  const update = { name: "journal/default/r1/5", from: 3, to: 9, bytes: Uint8Array.of(1, 2, 3) };
  expect(decodeStreamEntry(encodeStreamEntry({ update, sentMs: 12.7 }), maxBytes)).toEqual({ update, sentMs: 12 });
  const empty = { name: "registry", from: 0, to: 0, bytes: new Uint8Array(0) };
  expect(decodeStreamEntry(encodeStreamEntry({ update: empty, sentMs: -1 }), maxBytes).update).toEqual(empty);
  const frame = Uint8Array.of(9, 8);
  expect(decodeLoadEnvelope(encodeLoadEnvelope(from, frame), maxBytes)).toEqual({ origin: from, frame });
  const lease = { origin: from, beat: 4, isReady: false, isDraining: true, unreachable: ["e#0"] };
  expect(decodeLease(from.router, encodeLease(lease))).toEqual(lease);
});

test("one byte more than the bound is refused by each", () => {
  const update = { name: "n", from: 0, to: 1, bytes: new Uint8Array(100) };
  const entry = encodeStreamEntry({ update, sentMs: 0 });
  expect(decodeStreamEntry(entry, entry.length).update).toEqual(update);
  expect(() => decodeStreamEntry(entry, entry.length - 1)).toThrow(RangeError);
  const envelope = encodeLoadEnvelope(from, new Uint8Array(10));
  expect(() => decodeLoadEnvelope(envelope, envelope.length - 1)).toThrow(RangeError);
  const message = utf8(encodeControlMessage({ kind: "hello", from }));
  expect(() => decodeControlMessage(message, message.length - 1)).toThrow(RangeError);
});

test("a name, an id or a list that is longer than the bound is refused", () => {
  const long = (length: number): Uint8Array =>
    encodeStreamEntry({ update: { name: "n".repeat(length), from: 0, to: 0, bytes: new Uint8Array(0) }, sentMs: 0 });
  expect(decodeStreamEntry(long(512), maxBytes).update.name).toHaveLength(512);
  expect(() => decodeStreamEntry(long(513), maxBytes)).toThrow(RangeError);
  const snapshot = (id: string, targets: string[]): Uint8Array =>
    utf8(encodeControlMessage({ kind: "snapshot", from, id, targets, holder: null }));
  const muchBytes = 10_000_000;
  expect(decodeControlMessage(snapshot("i".repeat(512), []), muchBytes).kind).toBe("snapshot");
  expect(() => decodeControlMessage(snapshot("i".repeat(513), []), muchBytes)).toThrow(RangeError);
  expect(decodeControlMessage(snapshot("i", Array(65_536).fill("t")), muchBytes).kind).toBe("snapshot");
  expect(() => decodeControlMessage(snapshot("i", Array(65_537).fill("t")), muchBytes)).toThrow(RangeError);
  const lease = { origin: from, beat: 1, isReady: true, isDraining: false };
  expect(() => decodeLease("r", encodeLease({ ...lease, unreachable: Array(65_537).fill("t") }))).toThrow(RangeError);
});

test.each([
  "",
  "{}",
  "[]",
  "null",
  '{"version":2,"kind":"hello","from":{"router":"a","epoch":1}}',
  '{"version":1,"kind":"other","from":{"router":"a","epoch":1}}',
  '{"version":1,"kind":"hello","from":{"router":"","epoch":1}}',
  '{"version":1,"kind":"hello","from":{"router":"a","epoch":-1}}',
  '{"version":1,"kind":"hello","from":{"router":"a","epoch":1.5}}',
  '{"version":1,"kind":"snapshot","from":{"router":"a","epoch":1},"id":"x","targets":[1],"holder":null}',
  '{"version":1,"kind":"snapshot","from":{"router":"a","epoch":1},"id":"x","targets":null}',
  '{"version":1,"kind":"statements","from":{"router":"a","epoch":1},"statements":[{}]}',
])("the message %j is refused", (text) => {
  expect(() => decodeControlMessage(utf8(text), maxBytes)).toThrow(RangeError);
});

test.each([
  "",
  "boo",
  "1",
  "1 {}",
  "x {}",
  '1 {"beat":1,"isReady":true,"isDraining":false,"unreachable":[1]}',
  "1 {,}",
])("the lease %j is refused", (text) => {
  expect(() => decodeLease("r", text)).toThrow(RangeError);
});

test("any bytes are decoded or refused with a RangeError", () => {
  const random = createSeededRandom(11);
  const update = { name: "journal/default/r1/5", from: 3, to: 9, bytes: Uint8Array.of(1, 2, 3) };
  const seeds = [
    encodeStreamEntry({ update, sentMs: 1_700_000_000_000 }),
    encodeLoadEnvelope(from, Uint8Array.of(1, 2)),
    ...messages.map((message) => utf8(encodeControlMessage(message))),
    utf8(encodeLease({ origin: from, beat: 4, isReady: true, isDraining: true, unreachable: ["e#0"] })),
  ];
  const decoders: ((bytes: Uint8Array) => unknown)[] = [
    (bytes) => decodeStreamEntry(bytes, maxBytes),
    (bytes) => decodeLoadEnvelope(bytes, maxBytes),
    (bytes) => decodeControlMessage(bytes, maxBytes),
    (bytes) => decodeLease("r", Buffer.from(bytes).toString("utf8")),
  ];
  for (let round = 0; round < 8_000; round++) {
    const seed = seeds[random.integer(seeds.length)]!;
    const bytes = seed.slice(0, random.integer(seed.length + 1));
    for (let change = random.integer(4); change > 0 && bytes.length > 0; change--) {
      bytes[random.integer(bytes.length)] = random.integer(256);
    }
    for (const decode of decoders) {
      try {
        decode(bytes);
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }
  }
});
