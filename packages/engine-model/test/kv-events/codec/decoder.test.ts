import { encode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { type PlainEvent, plainEvent, plainEvents } from "./plain-events.ts";

const pack = (value: unknown): Uint8Array => encode(value, { useBigInt64: true });
const message = (...events: unknown[]): Uint8Array => pack([1_795_226_916.5, events, 0]);

function decodeEvents(...events: unknown[]): PlainEvent[] {
  const decoder = createEventDecoder();
  const report = decoder.decode(message(...events));
  expect(report).toEqual({
    refused: undefined,
    events: events.length,
    unknownEvents: 0,
    malformedEvents: 0,
    unknownMedia: 0,
  });
  return plainEvents(decoder.batch);
}

describe("envelope", () => {
  const removed = ["BlockRemoved", [7]];
  test.each([
    { shape: "array of two", value: [12.5, [removed]], timestampS: 12.5, rank: -1 },
    { shape: "array of three", value: [12.5, [removed], 3], timestampS: 12.5, rank: 3 },
    { shape: "rank nil", value: [12.5, [removed], null], timestampS: 12.5, rank: -1 },
    { shape: "more elements", value: [12.5, [removed], 3, { a: 1 }, "b"], timestampS: 12.5, rank: 3 },
    { shape: "whole seconds", value: [12, [removed], 3], timestampS: 12, rank: 3 },
    { shape: "no time", value: [null, [removed], 3], timestampS: Number.NaN, rank: 3 },
    { shape: "time not a number", value: [Number.NaN, [removed], 3], timestampS: Number.NaN, rank: 3 },
    { shape: "map", value: { ts: 12.5, events: [removed], data_parallel_rank: 3 }, timestampS: 12.5, rank: 3 },
    { shape: "map without rank", value: { ts: 12.5, events: [removed] }, timestampS: 12.5, rank: -1 },
    { shape: "map, other order", value: { x: [{}], events: [removed], y: 1, ts: 12.5 }, timestampS: 12.5, rank: -1 },
  ])("$shape", ({ value, timestampS, rank }) => {
    const decoder = createEventDecoder();
    expect(decoder.decode(pack(value)).refused).toBeUndefined();
    expect(decoder.batch).toMatchObject({ timestampS, rank, count: 1 });
    expect(plainEvents(decoder.batch)).toEqual([plainEvent({ kind: "removed", hashes: [7n] })]);
  });

  test.each([
    { what: "nothing", payload: new Uint8Array(0), refused: "truncated" },
    { what: "nil", payload: pack(null), refused: "envelope" },
    { what: "text", payload: pack("BlockStored"), refused: "envelope" },
    { what: "an empty array", payload: pack([]), refused: "envelope" },
    { what: "no events", payload: pack([12.5]), refused: "envelope" },
    { what: "events that are no array", payload: pack([12.5, { a: 1 }]), refused: "envelope" },
    { what: "a time that is text", payload: pack(["now", []]), refused: "envelope" },
    { what: "a rank that is text", payload: pack([12.5, [], "0"]), refused: "envelope" },
    { what: "a negative rank", payload: pack([12.5, [], -1]), refused: "envelope" },
    { what: "a map without events", payload: pack({ ts: 12.5 }), refused: "envelope" },
    { what: "a map with a number as key", payload: Uint8Array.of(0x81, 1, 2), refused: "envelope" },
    { what: "events twice", payload: repeatedKey("events", [0x90]), refused: "envelope" },
    { what: "a byte that msgpack does not use", payload: Uint8Array.of(0x92, 0xc1, 0x90), refused: "invalid" },
    { what: "such a byte in an event", payload: Uint8Array.of(0x92, 0xc0, 0x91, 0xc1), refused: "invalid" },
    { what: "more after it", payload: Uint8Array.of(...pack([12.5, []]), 0xc0), refused: "trailing" },
  ])("$what: the message is refused as $refused", ({ payload, refused }) => {
    const decoder = createEventDecoder();
    const expected = { refused, events: 0, unknownEvents: 0, malformedEvents: 0, unknownMedia: 0 };
    expect(decoder.decode(payload)).toEqual(expected);
    expect(decoder.batch.count).toBe(0);
  });
});

function repeatedKey(key: string, value: readonly number[]): Uint8Array {
  const entry = [0xa0 + key.length, ...Buffer.from(key), ...value];
  return Uint8Array.of(0x82, ...entry, ...entry);
}

describe("generations of events", () => {
  const stored = ["BlockStored", [1, 2], 9, [10, 11, 12, 13], 2, 5, "CPU", "ada", [["ada"], ["ada"]], 1, "mamba", 64];
  const first = plainEvent({ hashes: [1n, 2n], parent: 9n, tokens: [10, 11, 12, 13], blockSize: 2 });
  const numbered = { adapter: "lora-5", cacheSalt: undefined, blockKeys: undefined };
  const detail = { ...numbered, adapter: "ada" };

  test.each([
    { elements: 5, expected: first },
    { elements: 6, expected: { ...first, detail: numbered } },
    { elements: 7, expected: { ...first, detail: numbered, tier: "cpu" } },
    { elements: 8, expected: { ...first, detail, tier: "cpu" } },
    { elements: 9, expected: { ...first, detail, tier: "cpu" } },
    { elements: 10, expected: { ...first, detail, tier: "cpu", group: 1 } },
    { elements: 11, expected: { ...first, detail, tier: "cpu", group: 1, attention: "state" } },
    { elements: 12, expected: { ...first, detail, tier: "cpu", group: 1, attention: "state", window: 64 } },
    { elements: 17, expected: { ...first, detail, tier: "cpu", group: 1, attention: "state", window: 64 } },
  ])("a stored array of $elements", ({ elements, expected }) => {
    const later = [...stored, "LOCAL", null, "session", { more: 1 }, [1]];
    expect(decodeEvents(later.slice(0, elements))).toEqual([expected]);
  });

  test.each([2, 3, 4, 5, 6])("a removed array of %i", (elements) => {
    const removed = ["BlockRemoved", [1, 2], "CPU", 3, "LOCAL", null].slice(0, elements);
    const tier = elements > 2 ? "cpu" : "gpu";
    const group = elements > 3 ? 3 : -1;
    expect(decodeEvents(removed)).toEqual([plainEvent({ kind: "removed", hashes: [1n, 2n], tier, group })]);
  });

  test("maps in any order, with unknown keys, without what has its default", () => {
    expect(
      decodeEvents(
        { block_hashes: [1], later: { a: [1] }, token_ids: [5], block_size: 1, type: "BlockStored" },
        { type: "BlockRemoved", medium: "DISK", session_id: "s", block_hashes: [1] },
        { later: 1, type: "AllBlocksCleared" },
      ),
    ).toEqual([
      plainEvent({ hashes: [1n], tokens: [5], blockSize: 1 }),
      plainEvent({ kind: "removed", hashes: [1n], tier: "disk" }),
      plainEvent({ kind: "cleared" }),
    ]);
  });

  test("keys and names that resemble known ones are not taken for them", () => {
    const event = {
      type: "BlockStored",
      block_hashes: [1],
      group_ids: 4,
      lora_nane: "a",
      block_sizes: 3,
      tokem_ids: [1],
    };
    expect(decodeEvents(event)).toEqual([plainEvent({ hashes: [1n] })]);
    const decoder = createEventDecoder();
    expect(decoder.decode(message(["BlockStoreD", [1], null, [], 1])).unknownEvents).toBe(1);
    expect(decoder.decode(message(["BlockStored", [1], null, [], 1, null, "GPX"])).unknownMedia).toBe(1);
  });

  test("SGLang's transitional array has a map of what is rare at place 7", () => {
    const metadata = { session_id: "s", cache_salt: "tenant" };
    expect(decodeEvents(["BlockStored", [1], null, [5], 1, null, "GPU", metadata])).toEqual([
      plainEvent({
        hashes: [1n],
        tokens: [5],
        blockSize: 1,
        detail: { adapter: undefined, cacheSalt: "tenant", blockKeys: undefined },
      }),
    ]);
  });

  test("removals, stores and clears keep their order, whether like the one before or not", () => {
    const hash = (value: number): bigint => 2n ** 63n + BigInt(value);
    const removed = (value: number, group = 0): unknown => ({
      type: "BlockRemoved",
      block_hashes: [hash(value)],
      medium: "GPU",
      group_idx: group,
    });
    const cleared = { type: "AllBlocksCleared" };
    const stored = { type: "BlockStored", block_hashes: [hash(9)], token_ids: [1], block_size: 1 };
    const events = decodeEvents(removed(1), removed(2), stored, removed(3), cleared, removed(4, 1), removed(5, 1));
    const gone = (value: number, group = 0): PlainEvent =>
      plainEvent({ kind: "removed", hashes: [hash(value)], group });
    expect(events).toEqual([
      gone(1),
      gone(2),
      plainEvent({ hashes: [hash(9)], tokens: [1], blockSize: 1 }),
      gone(3),
      plainEvent({ kind: "cleared" }),
      gone(4, 1),
      gone(5, 1),
    ]);
  });
});

describe("events that are left out", () => {
  const good = ["BlockRemoved", [1]];
  const stored = { type: "BlockStored", block_hashes: [1], parent_block_hash: null, token_ids: [5], block_size: 1 };
  test.each([
    { what: "a tag of the future", event: ["BlockPinned", [1]], kind: "unknown" },
    { what: "a type of the future", event: { type: "BlockPinned", block_hashes: 1 }, kind: "unknown" },
    { what: "no event", event: 17, kind: "malformed" },
    { what: "nil", event: null, kind: "malformed" },
    { what: "an empty array", event: [], kind: "malformed" },
    { what: "a tag that is a number", event: [1, [1]], kind: "malformed" },
    { what: "a map without type", event: { block_hashes: [1] }, kind: "malformed" },
    { what: "too short a store", event: ["BlockStored", [1], null, [5]], kind: "malformed" },
    { what: "too short a removal", event: ["BlockRemoved"], kind: "malformed" },
    { what: "no hashes", event: { type: "BlockRemoved", medium: "GPU" }, kind: "malformed" },
    { what: "a float among the hashes", event: ["BlockRemoved", [1, 1.5]], kind: "malformed" },
    { what: "an empty byte string as hash", event: ["BlockRemoved", [new Uint8Array(0)]], kind: "malformed" },
    { what: "text as parent", event: { ...stored, parent_block_hash: "x" }, kind: "malformed" },
    { what: "text among the tokens", event: { ...stored, token_ids: [1, "x"] }, kind: "malformed" },
    { what: "an empty pair", event: { ...stored, token_ids: [[]] }, kind: "malformed" },
    { what: "a negative block size", event: { ...stored, block_size: -1 }, kind: "malformed" },
    { what: "too large a block size", event: { ...stored, block_size: 2 ** 31 }, kind: "malformed" },
    { what: "a group that is text", event: { ...stored, group_idx: "0" }, kind: "malformed" },
    { what: "a medium that is a number", event: { ...stored, medium: 1 }, kind: "malformed" },
    { what: "a spec kind that is a number", event: { ...stored, kv_cache_spec_kind: 1 }, kind: "malformed" },
    { what: "extra keys that are a number", event: { ...stored, extra_keys: 1 }, kind: "malformed" },
    { what: "extra keys of a block that are text", event: { ...stored, extra_keys: ["a"] }, kind: "malformed" },
    { what: "an adapter that is a list", event: { ...stored, lora_name: ["a"] }, kind: "malformed" },
    { what: "an adapter's number that is a float", event: { ...stored, lora_id: 1.5 }, kind: "malformed" },
    { what: "a salt that is a number", event: { ...stored, cache_salt: 1 }, kind: "malformed" },
  ])("$what: the others stay", ({ event, kind }) => {
    const decoder = createEventDecoder();
    const { refused, events, unknownEvents, malformedEvents } = decoder.decode(message(good, event, good));
    expect({ refused, events, unknownEvents, malformedEvents }).toEqual({
      refused: undefined,
      events: 2,
      unknownEvents: kind === "unknown" ? 1 : 0,
      malformedEvents: kind === "malformed" ? 1 : 0,
    });
    const expected = plainEvent({ kind: "removed", hashes: [1n] });
    expect(plainEvents(decoder.batch)).toEqual([expected, expected]);
  });

  test("a field that comes twice makes an event malformed", () => {
    const twice = repeatedKey("block_hashes", [0x91, 0x01]);
    const event = [0x83, ...Buffer.from("\xa4type\xacBlockRemoved", "latin1"), ...twice.subarray(1)];
    const decoder = createEventDecoder();
    expect(decoder.decode(Uint8Array.of(0x92, 0xc0, 0x91, ...event)).malformedEvents).toBe(1);
  });
});
