import { encode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { type PlainEvent, plainEvents } from "./plain-events.ts";

function decodeOne(fields: Readonly<Record<string, unknown>>): PlainEvent {
  const decoder = createEventDecoder();
  const event = { type: "BlockStored", block_hashes: [1, 2], token_ids: [5, 6], block_size: 1, ...fields };
  const report = decoder.decode(encode([1.5, [event], 0], { useBigInt64: true, ignoreUndefined: true }));
  expect(report).toMatchObject({ refused: undefined, events: 1 });
  return plainEvents(decoder.batch)[0]!;
}

test.each([
  { given: 0, hash: 0n },
  { given: 127, hash: 127n },
  { given: 200, hash: 200n },
  { given: 40_000, hash: 40_000n },
  { given: 4_000_000_000, hash: 4_000_000_000n },
  { given: 2n ** 53n + 1n, hash: 2n ** 53n + 1n },
  { given: 2n ** 64n - 1n, hash: 2n ** 64n - 1n },
  { given: -1, hash: 2n ** 64n - 1n },
  { given: -100, hash: 2n ** 64n - 100n },
  { given: -30_000, hash: 2n ** 64n - 30_000n },
  { given: -(2 ** 31), hash: 2n ** 64n - 2n ** 31n },
  { given: -(2n ** 63n), hash: 2n ** 63n },
  { given: -(2n ** 40n) - 3n, hash: 2n ** 64n - 2n ** 40n - 3n },
  { given: Uint8Array.of(5), hash: 5n },
  { given: Uint8Array.of(1, 2, 3), hash: 0x010203n },
  { given: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), hash: 0x0102030405060708n },
  { given: Uint8Array.from({ length: 32 }, (_, at) => 200 + at), hash: 0xe0e1e2e3e4e5e6e7n },
])("the hash $given is $hash, alone, as a parent and among others", ({ given, hash }) => {
  const event = decodeOne({ block_hashes: [2n ** 63n, given, 2n ** 63n + 1n, given], parent_block_hash: given });
  expect(event.hashes).toEqual([2n ** 63n, hash, 2n ** 63n + 1n, hash]);
  expect(event.parent).toBe(hash);
  expect(decodeOne({ type: "BlockRemoved", block_hashes: [given] }).hashes).toEqual([hash]);
});

test("tokens of every width, pairs of a token and the next, and none", () => {
  const tokens = [0, 127, 128, 255, 256, 65_535, 65_536, 2 ** 32 - 1, 1, 300];
  expect(decodeOne({ token_ids: tokens }).tokens).toEqual(tokens);
  expect(decodeOne({ token_ids: tokens.map((token, at) => [token, tokens[at + 1] ?? 0]) }).tokens).toEqual(tokens);
  expect(decodeOne({ token_ids: [[70_000], 5, [6, 7, "more"]] }).tokens).toEqual([70_000, 5, 6]);
  expect(decodeOne({ token_ids: [] }).tokens).toEqual([]);
  expect(decodeOne({ token_ids: null }).tokens).toEqual([]);
  expect(decodeOne({ token_ids: undefined }).tokens).toEqual([]);
  expect(decodeOne({ token_ids: [-1, -(2n ** 40n) + 7n, 2n ** 60n + 9n] }).tokens).toEqual([2 ** 32 - 1, 7, 9]);
});

test("fewer hashes than tokens, as sliding-window groups send, are handed through", () => {
  const event = decodeOne({ block_hashes: [1], token_ids: [1, 2, 3, 4, 5, 6], kv_cache_spec_kind: "sliding_window" });
  expect(event).toMatchObject({ hashes: [1n], tokens: [1, 2, 3, 4, 5, 6], attention: "window" });
  expect(decodeOne({ block_hashes: [], token_ids: [1, 2] })).toMatchObject({ hashes: [], tokens: [1, 2] });
});

test.each([
  { medium: undefined, tier: "gpu", unknown: 0 },
  { medium: null, tier: "gpu", unknown: 0 },
  { medium: "GPU", tier: "gpu", unknown: 0 },
  { medium: "CPU", tier: "cpu", unknown: 0 },
  { medium: "CPU_PINNED", tier: "cpu", unknown: 0 },
  { medium: "CPU_TIER1", tier: "cpu", unknown: 0 },
  { medium: "DISK", tier: "disk", unknown: 0 },
  { medium: "STORAGE", tier: "disk", unknown: 0 },
  { medium: "SHARED_STORAGE", tier: "external", unknown: 0 },
  { medium: "EXTERNAL", tier: "external", unknown: 0 },
  { medium: "HOLOGRAPHIC", tier: "external", unknown: 1 },
  { medium: "", tier: "external", unknown: 1 },
  { medium: "a name that is longer than any known name is", tier: "external", unknown: 1 },
])("the medium $medium is in the tier $tier", ({ medium, tier, unknown }) => {
  expect(decodeOne({ medium }).tier).toBe(tier);
  const removed = { type: "BlockRemoved", block_hashes: [2n ** 63n], medium };
  const decoder = createEventDecoder();
  const payload = encode([1.5, [removed, removed, removed]], { useBigInt64: true, ignoreUndefined: true });
  expect(decoder.decode(payload).unknownMedia).toBe(3 * unknown);
  expect(plainEvents(decoder.batch).map((event) => event.tier)).toEqual([tier, tier, tier]);
});

test.each([
  { kind: undefined, attention: "full" },
  { kind: null, attention: "full" },
  { kind: "full_attention", attention: "full" },
  { kind: "mla_attention", attention: "full" },
  { kind: "sink_full_attention", attention: "full" },
  { kind: "sliding_window", attention: "window" },
  { kind: "sliding_window_mla", attention: "window" },
  { kind: "chunked_local_attention", attention: "chunk" },
  { kind: "mamba", attention: "state" },
  { kind: "of the future", attention: "other" },
])("the kind $kind is $attention", ({ kind, attention }) => {
  expect(decodeOne({ kv_cache_spec_kind: kind }).attention).toBe(attention);
});

test("the window of a group, if it is given", () => {
  expect(decodeOne({ kv_cache_spec_kind: "sliding_window", kv_cache_spec_sliding_window: 128 }).window).toBe(128);
  expect(decodeOne({ kv_cache_spec_sliding_window: null }).window).toBe(0);
  expect(decodeOne({}).window).toBe(0);
});

describe("adapter, salt and extra keys", () => {
  const embeds = Uint8Array.of(0xab, 0x01);
  test.each([
    { given: { extra_keys: [null, null] }, detail: undefined },
    { given: { extra_keys: [[], []], lora_name: "", cache_salt: "" }, detail: undefined },
    { given: { lora_id: 3 }, detail: { adapter: "lora-3" } },
    { given: { lora_id: "uuid" }, detail: { adapter: "uuid" } },
    { given: { lora_id: 3, lora_name: "ada" }, detail: { adapter: "ada" } },
    { given: { lora_id: 3, lora_name: "ada", extra_keys: [["ada"], ["ada"]] }, detail: { adapter: "ada" } },
    { given: { lora_id: 3, extra_keys: [[3], [3]] }, detail: { adapter: "lora-3" } },
    { given: { cache_salt: "t", parent_block_hash: 9 }, detail: { cacheSalt: "t" } },
    { given: { extra_keys: [["t"], null] }, detail: { cacheSalt: "t" } },
    { given: { lora_name: "ada", extra_keys: [["ada", "t"], ["ada"]] }, detail: { adapter: "ada", cacheSalt: "t" } },
    // A salt that equals the adapter's name.
    {
      given: { lora_name: "ada", extra_keys: [["ada", "ada"], ["ada"]] },
      detail: { adapter: "ada", cacheSalt: "ada" },
    },
    // SGLang may send the salt both ways.
    { given: { cache_salt: "t", extra_keys: [["t"], null] }, detail: { cacheSalt: "t" } },
    // Under a parent there is no salt: a string is an image's identifier.
    { given: { parent_block_hash: 9, extra_keys: [["img"], null] }, detail: { blockKeys: ["3:img", undefined] } },
    { given: { extra_keys: [null, ["img"]] }, detail: { blockKeys: [undefined, "3:img"] } },
    { given: { extra_keys: [["img", "t"], null] }, detail: { cacheSalt: "t", blockKeys: ["3:img", undefined] } },
    {
      given: { extra_keys: [[["img", 4], ["b", 9], "t", embeds], [["b", 0]]] },
      detail: { cacheSalt: "t", blockKeys: ["5:img@43:b@94:ab01", "3:b@0"] },
    },
    { given: { parent_block_hash: 9, extra_keys: [[true, null, 1.5], [[]]] }, detail: undefined },
  ])("$given", ({ given, detail }) => {
    const whole = { adapter: undefined, cacheSalt: undefined, blockKeys: undefined, ...detail };
    expect(decodeOne(given).detail).toEqual(detail === undefined ? undefined : whole);
  });

  test("typed extra keys say themselves what they are, and mean the same as untyped ones", () => {
    const image = { type: "mm", modality: "image", hash: "img", block_offset: 4 };
    const typed = decodeOne({
      extra_keys: [
        [{ type: "lora", name: "ada" }, image, { type: "cache_salt", salt: "t" }],
        [
          { type: "lora", name: "ada" },
          { type: "prompt_embeds", hash: embeds },
        ],
      ],
    });
    const untyped = decodeOne({
      lora_name: "ada",
      extra_keys: [
        ["ada", ["img", 4], "t"],
        ["ada", embeds],
      ],
    });
    expect(typed.detail).toEqual({ adapter: "ada", cacheSalt: "t", blockKeys: ["5:img@4", "4:ab01"] });
    expect(untyped.detail).toEqual(typed.detail);
  });

  test("typed extra keys of other shapes", () => {
    const keysOf = (...keys: unknown[]): PlainEvent["detail"] =>
      decodeOne({ parent_block_hash: 9, extra_keys: [keys, null] }).detail;
    const only = (key: string): PlainEvent["detail"] => ({
      adapter: undefined,
      cacheSalt: undefined,
      blockKeys: [key, undefined],
    });
    expect(keysOf({ type: "legacy", value: "img" })).toEqual(only("3:img"));
    expect(keysOf({ type: "of the future", more: { a: [1] }, id: "x" })).toEqual(only("1:x"));
    expect(keysOf({ type: "mm", nothing: [1] })).toBeUndefined();
    expect(keysOf({})).toBeUndefined();
    expect(decodeOne({ extra_keys: [[{ type: "legacy", value: "t" }], null] }).detail?.cacheSalt).toBe("t");
  });

  test("identifiers cannot be made to look like several", () => {
    const one = decodeOne({ parent_block_hash: 9, extra_keys: [["a1:b"], null] }).detail?.blockKeys;
    const two = decodeOne({ parent_block_hash: 9, extra_keys: [["a", "b"], null] }).detail?.blockKeys;
    expect(one).not.toEqual(two);
  });
});

// LMCache in vLLM's process and vLLM's connector of Mooncake Store announce what they store so, and never its removal:
// what had left long ago was predicted.
test("what the medium cpu in small letters stores with tokens is left out, and what follows is read", () => {
  const decoder = createEventDecoder();
  const event = (hash: number, medium: string) => ({
    ...{ type: "BlockStored", block_hashes: [hash], parent_block_hash: null, token_ids: [1, 2], block_size: 2 },
    medium,
  });
  const report = decoder.decode(encode([1.5, [event(1, "cpu"), event(2, "CPU"), event(3, "cpu")], 0]));
  expect(report).toMatchObject({ events: 1, unknownEvents: 2, malformedEvents: 0, unknownMedia: 0 });
  expect(plainEvents(decoder.batch)).toMatchObject([{ hashes: [2n], tokens: [1, 2], tier: "cpu" }]);
});
