import { decode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import {
  type EncodeOptions,
  type EventDialect,
  encodeEventMessage,
  eventDialects,
  type StoredEvent,
  type WireEvent,
} from "../../../src/kv-events/codec/encode-events.ts";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { plainEvents } from "./plain-events.ts";

const plainOptions: EncodeOptions = { timestampS: 1.5, rank: 0 };

const encode = (events: readonly WireEvent[], dialect: EventDialect, options: Partial<EncodeOptions> = {}) =>
  encodeEventMessage(events, dialect, { ...plainOptions, ...options });

/** The events of a message as a library reads them, small integers as numbers. */
function eventsOf(
  events: readonly WireEvent[],
  dialect: EventDialect,
  options: Partial<EncodeOptions> = {},
): unknown[] {
  const [, list] = decode(encode(events, dialect, options), { useBigInt64: true }) as [number, unknown[]];
  return list;
}

const least: StoredEvent = {
  type: "stored",
  hashes: [1n, 2n],
  parentHash: undefined,
  tokens: Uint32Array.of(5, 6, 7, 8),
  blockSize: 2,
  adapter: undefined,
  cacheSalt: undefined,
};

const full: StoredEvent = {
  ...least,
  parentHash: 9n,
  adapter: "ada",
  adapterNumber: 4,
  cacheSalt: "salt",
  inputs: [[["img", 3]], undefined],
  medium: "CPU",
  group: 2,
  specKind: "sliding_window",
  slidingWindow: 128,
  sessionId: "session",
};

const base = { block_hashes: [1, 2], token_ids: [5, 6, 7, 8], block_size: 2 };
const leastBase = { type: "BlockStored", ...base, parent_block_hash: null, lora_id: null, medium: "GPU" };
const fullBase = { type: "BlockStored", ...base, parent_block_hash: 9, lora_id: 4, medium: "CPU" };
const leastArray = ["BlockStored", [1, 2], null, [5, 6, 7, 8], 2, null, "GPU"];
const fullArray = ["BlockStored", [1, 2], 9, [5, 6, 7, 8], 2, 4, "CPU"];
const fullKeys = [["ada", ["img", 3]], ["ada"]];
const vllm = { lora_name: null, extra_keys: [null, null], group_idx: 0, kv_cache_spec_kind: "full_attention" };
const vllmFull = {
  lora_name: "ada",
  extra_keys: fullKeys,
  group_idx: 2,
  kv_cache_spec_kind: "sliding_window",
  kv_cache_spec_sliding_window: 128,
  session_id: "session",
};

describe("stored events field by field", () => {
  test.each<{ dialect: EventDialect; leastSent: unknown; fullSent: unknown }>([
    {
      dialect: "vllm-0.23",
      leastSent: [...leastArray, null, [null, null], 0, "full_attention", null],
      fullSent: [...fullArray, "ada", fullKeys, 2, "sliding_window", 128],
    },
    { dialect: "vllm-0.32", leastSent: { ...leastBase, ...vllm }, fullSent: { ...fullBase, ...vllmFull } },
    {
      dialect: "sglang-0.5.23",
      leastSent: leastBase,
      fullSent: { ...fullBase, cache_salt: "salt", session_id: "session" },
    },
    { dialect: "sglang-array", leastSent: leastArray, fullSent: fullArray },
    { dialect: "trtllm", leastSent: leastArray, fullSent: fullArray },
  ])("$dialect", ({ dialect, leastSent, fullSent }) => {
    expect(eventsOf([least, full], dialect)).toEqual([leastSent, fullSent]);
  });

  test.each(["vllm-0.23", "vllm-0.32"] as const)("%s: a salt is in the first block of a prompt only", (dialect) => {
    const salted = { ...least, cacheSalt: "salt" };
    const keysOf = (event: StoredEvent): unknown => {
      const [sent] = eventsOf([event], dialect);
      return Array.isArray(sent) ? sent[8] : (sent as { extra_keys: unknown }).extra_keys;
    };
    expect(keysOf(salted)).toEqual([["salt"], null]);
    expect(keysOf({ ...salted, adapter: "ada" })).toEqual([["ada", "salt"], ["ada"]]);
    expect(keysOf({ ...salted, inputs: [[["img", 0]]] })).toEqual([[["img", 0], "salt"], null]);
    expect(keysOf({ ...salted, parentHash: 0n })).toEqual([null, null]);
  });

  test("vLLM's map leaves out extra keys, and its array sends nil, where there are no blocks", () => {
    const empty = { ...least, hashes: [], tokens: Uint32Array.of(1, 2) };
    expect(eventsOf([empty], "vllm-0.32")[0]).not.toHaveProperty("extra_keys");
    expect((eventsOf([empty], "vllm-0.23")[0] as unknown[])[8]).toBeNull();
  });
});

describe("removals and clears", () => {
  const removed: WireEvent = { type: "removed", hashes: [1n, 2n], medium: "DISK", group: 3 };
  const one = (hash: number, group: number) => ({ block_hashes: [hash], medium: "DISK", group_idx: group });
  test.each<{ dialect: EventDialect; sent: unknown[] }>([
    {
      dialect: "vllm-0.23",
      sent: [["BlockRemoved", [1], "DISK", 3], ["BlockRemoved", [2], "DISK", 3], ["AllBlocksCleared"]],
    },
    {
      dialect: "vllm-0.32",
      sent: [
        { type: "BlockRemoved", ...one(1, 3) },
        { type: "BlockRemoved", ...one(2, 3) },
        { type: "AllBlocksCleared" },
      ],
    },
    {
      dialect: "sglang-0.5.23",
      sent: [{ type: "BlockRemoved", block_hashes: [1, 2], medium: "DISK" }, { type: "AllBlocksCleared" }],
    },
    { dialect: "sglang-array", sent: [["BlockRemoved", [1, 2], "DISK"], ["AllBlocksCleared"]] },
    { dialect: "trtllm", sent: [["BlockRemoved", [1, 2], "DISK"], ["AllBlocksCleared"]] },
  ])("$dialect", ({ dialect, sent }) => {
    expect(eventsOf([removed, { type: "cleared" }], dialect)).toEqual(sent);
  });

  test.each(eventDialects)("%s: what leaves no message of its own leaves the others", (dialect) => {
    const nothing: WireEvent = { type: "removed", hashes: [] };
    const decoder = createEventDecoder();
    decoder.decode(encode([nothing, { type: "removed", hashes: [7n] }], dialect));
    expect(plainEvents(decoder.batch).flatMap(({ hashes }) => hashes)).toEqual([7n]);
  });
});

describe("hashes", () => {
  const bytesOf = (value: bigint, dialect: EventDialect): number => {
    const removed = (hash: bigint): number => encode([{ type: "removed", hashes: [hash] }], dialect).length;
    return removed(value) - removed(0n) + 1;
  };
  test.each([
    { value: 127n, unsigned: 1, signed: 1 },
    { value: 128n, unsigned: 2, signed: 2 },
    { value: 255n, unsigned: 2, signed: 2 },
    { value: 256n, unsigned: 3, signed: 3 },
    { value: 65_536n, unsigned: 5, signed: 5 },
    { value: 2n ** 32n - 1n, unsigned: 5, signed: 5 },
    { value: 2n ** 32n, unsigned: 9, signed: 9 },
    { value: 2n ** 63n, unsigned: 9, signed: 9 },
    { value: 2n ** 64n - 1n, unsigned: 9, signed: 1 },
    { value: 2n ** 64n - 32n, unsigned: 9, signed: 1 },
    { value: 2n ** 64n - 33n, unsigned: 9, signed: 2 },
    { value: 2n ** 64n - 2n ** 31n, unsigned: 9, signed: 5 },
    { value: 2n ** 64n - 2n ** 31n - 1n, unsigned: 9, signed: 9 },
  ])(
    "$value takes as few bytes as hold it: $unsigned, or $signed as SGLang sends it",
    ({ value, unsigned, signed }) => {
      expect(bytesOf(value, "trtllm")).toBe(unsigned);
      expect(bytesOf(value, "sglang-array")).toBe(signed);
    },
  );

  test.each(eventDialects)("%s: as bytes they are 32, of which the last eight are the integer", (dialect) => {
    const value = 2n ** 63n + 0x0102030405n;
    const [sent] = eventsOf([{ type: "removed", hashes: [value] }], dialect, { hashes: "bytes" });
    const [hash] = (Array.isArray(sent) ? sent[1] : (sent as { block_hashes: unknown[] }).block_hashes) as Uint8Array[];
    expect(hash).toHaveLength(32);
    expect(Buffer.from(hash!).readBigUInt64BE(24)).toBe(value);
  });

  test.each(eventDialects)("%s: hashes that are bytes already are sent as they are, in any form", (dialect) => {
    const digest = Uint8Array.from({ length: 16 }, (_, at) => 0xf0 - at);
    const low = Buffer.from(digest).readBigUInt64BE(8);
    for (const hashes of ["integer", "bytes"] as const) {
      const event: StoredEvent = { ...least, hashes: [digest, 2n], parentHash: digest };
      const decoder = createEventDecoder();
      decoder.decode(encode([event], dialect, { hashes }));
      expect(plainEvents(decoder.batch)).toMatchObject([{ hashes: [low, 2n], parent: low }]);
    }
  });
});

describe("the envelope", () => {
  test.each([0, 1, 1.5, 2 ** 31, 1_795_226_916, -1, Number.NaN])(
    "time %d is a float of 64 bits, whole or not",
    (timestampS) => {
      const payload = encode([], "trtllm", { timestampS });
      expect([payload[0], payload[1]]).toEqual([0x93, 0xcb]);
      expect(new DataView(payload.buffer, payload.byteOffset).getFloat64(2)).toBe(timestampS);
    },
  );

  test.each([undefined, 0, 127, 128, 65_535])("rank %s, in both envelopes", (rank) => {
    const sent = rank ?? null;
    expect(decode(encode([], "vllm-0.32", { rank }))).toEqual([1.5, [], sent]);
    expect(decode(encode([], "vllm-0.32", { rank, envelope: "map" }))).toEqual({
      ts: 1.5,
      events: [],
      data_parallel_rank: sent,
    });
  });

  test.each([15, 16, 65_536])("%i events in one message", (count) => {
    const events = Array.from({ length: count }, (): WireEvent => ({ type: "cleared" }));
    const decoder = createEventDecoder();
    expect(decoder.decode(encode(events, "trtllm"))).toMatchObject({ refused: undefined, events: count });
    expect(decoder.decode(encode([...events, { type: "cleared" }], "trtllm")).refused).toBe(
      count === 65_536 ? "too-many-events" : undefined,
    );
  });

  test("what is encoded is a copy: later messages and changes to tokens leave it alone", () => {
    const tokens = Uint32Array.of(5, 6, 7, 8);
    const first = encode([{ ...least, tokens }], "vllm-0.32");
    const kept = [...first];
    tokens.fill(0);
    encode([{ ...full, tokens }], "vllm-0.32");
    expect([...first]).toEqual(kept);
  });
});
