import { encode } from "@msgpack/msgpack";
import { expect, test } from "vitest";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { plainEvent, plainEvents } from "./plain-events.ts";

const many = (count: number, value: unknown): unknown[] => Array.from({ length: count }, () => value);
const message = (...events: unknown[]): Uint8Array => encode([1.5, events, 0]);
const stored = (hashes: number, tokens: number): unknown => ["BlockStored", many(hashes, 5), null, many(tokens, 9), 16];
const removed = (hashes: number): unknown => ["BlockRemoved", many(hashes, 5)];

test.each([
  { limit: { maxEvents: 10 }, fits: message(...many(10, removed(1))), beyond: message(...many(11, removed(1))) },
  { limit: { maxHashes: 10 }, fits: message(removed(4), stored(6, 0)), beyond: message(removed(4), stored(7, 0)) },
  { limit: { maxTokens: 10 }, fits: message(stored(1, 4), stored(1, 6)), beyond: message(stored(1, 4), stored(1, 7)) },
])("$limit: one more is refused, and the next message is read as ever", ({ limit, fits, beyond }) => {
  const decoder = createEventDecoder(limit);
  expect(decoder.decode(fits).refused).toBeUndefined();
  const [name] = Object.keys(limit);
  const reason = { maxEvents: "too-many-events", maxHashes: "too-many-hashes", maxTokens: "too-many-tokens" }[name!];
  expect(decoder.decode(beyond)).toMatchObject({ refused: reason, events: 0, unknownEvents: 0, malformedEvents: 0 });
  expect(decoder.batch.count).toBe(0);
  expect(decoder.decode(fits).refused).toBeUndefined();
});

test("removals that resemble one another count towards the limit of hashes too", () => {
  const big = 2n ** 63n;
  const events = (count: number): Uint8Array =>
    encode([1.5, many(count, ["BlockRemoved", [big], "GPU", 0]), 0], { useBigInt64: true });
  const decoder = createEventDecoder({ maxHashes: 10 });
  expect(decoder.decode(events(10))).toMatchObject({ refused: undefined, events: 10 });
  expect(decoder.decode(events(11))).toMatchObject({ refused: "too-many-hashes", events: 0 });
});

test("a message of more bytes than allowed is refused unread", () => {
  const payload = message(removed(3));
  expect(createEventDecoder({ maxMessageBytes: payload.length }).decode(payload).refused).toBeUndefined();
  expect(createEventDecoder({ maxMessageBytes: payload.length - 1 }).decode(payload).refused).toBe("too-many-bytes");
});

test.each([0, -1, 1.5, Number.NaN, 2 ** 29 + 1])("a limit of %d is refused", (limit) => {
  expect(() => createEventDecoder({ maxTokens: limit })).toThrow(RangeError);
});

test("what a message announces is not reserved before it is there", () => {
  const decoder = createEventDecoder();
  const before = [decoder.batch.tokens.length, decoder.batch.hashes.length, decoder.batch.kind.length];
  const announced = Uint8Array.of(0xdd, 0x00, 0x3f, 0xff, 0xff);
  const head = [0x93, 0xc0];
  const tag = [0xab, ...Buffer.from("BlockStored")];
  for (const bytes of [
    [...head, ...announced],
    [...head, 0x91, 0x95, ...tag, ...announced],
    [...head, 0x91, 0x95, ...tag, 0x90, 0xc0, ...announced],
  ]) {
    expect(decoder.decode(Uint8Array.from(bytes)).refused).toBe("truncated");
  }
  expect([decoder.batch.tokens.length, decoder.batch.hashes.length, decoder.batch.kind.length]).toEqual(before);
});

test("the batch grows to the largest message and keeps what it held of the same message", () => {
  const decoder = createEventDecoder();
  const events = Array.from({ length: 3_000 }, (_, event) => [
    "BlockStored",
    [event, event + 1],
    event,
    many(32, event),
    16,
  ]);
  decoder.decode(message(...events));
  expect(plainEvents(decoder.batch)).toEqual(
    events.map((_, event) =>
      plainEvent({
        hashes: [BigInt(event), BigInt(event + 1)],
        parent: BigInt(event),
        tokens: many(32, event) as number[],
        blockSize: 16,
      }),
    ),
  );
});
