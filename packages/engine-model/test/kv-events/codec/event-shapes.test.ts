import { createSeededRandom, type Random } from "@espalier/core";
import { encode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { type PlainEvent, plainEvents } from "./plain-events.ts";

const decoder = createEventDecoder();
const pack = (value: unknown): Uint8Array => encode(value, { useBigInt64: true, ignoreUndefined: true });

function decodeOne(event: unknown): PlainEvent {
  const report = decoder.decode(pack([1.5, [event], 0]));
  expect(report).toMatchObject({ refused: undefined, events: 1, malformedEvents: 0 });
  return plainEvents(decoder.batch)[0]!;
}

/** Fields of `BlockStored` in the order of the array, with those that came after the attention's kind. */
const storedNames = [
  ...["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"],
  ...["extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership"],
];

function randomFields(random: Random): Record<string, unknown> {
  const one = <T>(...choices: readonly T[]): T => choices[random.integer(choices.length)]!;
  const hash = (): unknown => one<unknown>(random.integer(1_000), 2n ** 63n + BigInt(random.integer(2 ** 32)), -5n);
  const blocks = random.integer(4);
  const adapter = one(null, null, "ada");
  const keysOf = (block: number): unknown => {
    const keys: unknown[] = adapter === null ? [] : [adapter];
    if (random.integer(3) === 0) keys.push(["img", random.integer(9)]);
    if (block === 0 && random.integer(2) === 0) keys.push("salt");
    return keys.length > 0 ? keys : null;
  };
  return {
    type: "BlockStored",
    block_hashes: Array.from({ length: blocks }, hash),
    parent_block_hash: one(null, hash()),
    token_ids: Array.from({ length: 2 * blocks }, () => random.integer(2 ** 20)),
    block_size: 2,
    lora_id: one<unknown>(null, 4, "uuid"),
    medium: one(null, "GPU", "CPU_PINNED", "DISK", "EXTERNAL", "of the future"),
    lora_name: one<unknown>(adapter, adapter, ""),
    extra_keys: one<unknown>(
      null,
      Array.from({ length: blocks }, (_, block) => keysOf(block)),
    ),
    group_idx: one(null, 0, 3),
    kv_cache_spec_kind: one(null, "full_attention", "mamba"),
    kv_cache_spec_sliding_window: one(null, 128),
    locality: one(null, "LOCAL"),
    ownership: one<unknown>(null, { owner: 1 }),
  };
}

function shuffled<T>(random: Random, values: readonly T[]): T[] {
  const left = [...values];
  return Array.from(values, () => left.splice(random.integer(left.length), 1)[0]!);
}

describe("one event in all its shapes", () => {
  test("an array of 5 to 14 elements says what a map of as many fields says", () => {
    const random = createSeededRandom(61);
    for (let round = 0; round < 400; round++) {
      const fields = randomFields(random);
      for (let length = 5; length <= storedNames.length; length++) {
        const names = storedNames.slice(0, length);
        const asMap = decodeOne(Object.fromEntries(names.map((name) => [name, fields[name]])));
        expect(decodeOne(names.map((name) => fields[name])), JSON.stringify(names)).toEqual(asMap);
      }
    }
  });

  test("fields that are nil may as well be left out of a map", () => {
    const random = createSeededRandom(62);
    for (let round = 0; round < 1_000; round++) {
      const fields = randomFields(random);
      const present = Object.entries(fields).filter(([, value]) => value !== null);
      expect(decodeOne(Object.fromEntries(present))).toEqual(decodeOne(fields));
    }
  });

  // An empty adapter's name used to take away the name in `lora_id`, but only when it came after it.
  test("the fields of a map mean the same in every order", () => {
    const random = createSeededRandom(63);
    for (let round = 0; round < 1_000; round++) {
      const fields = { ...randomFields(random), cache_salt: [null, "salt", ""][random.integer(3)] };
      const turned = Object.fromEntries(shuffled(random, Object.entries(fields)));
      expect(decodeOne(turned), JSON.stringify(Object.keys(turned))).toEqual(decodeOne(fields));
    }
  });

  test("tokens in pairs with their successors are the tokens", () => {
    const random = createSeededRandom(64);
    for (let round = 0; round < 300; round++) {
      const fields = randomFields(random);
      const tokens = fields.token_ids as number[];
      const pairs = tokens.map((token, at) => [token, tokens[at + 1] ?? random.integer(2 ** 20)]);
      expect(decodeOne({ ...fields, token_ids: pairs })).toEqual(decodeOne(fields));
      const mixed = tokens.map((token, at) => (at % 2 === 0 ? token : [token]));
      expect(decodeOne({ ...fields, token_ids: mixed })).toEqual(decodeOne(fields));
    }
  });
});

describe("extra keys with their types", () => {
  interface Key {
    readonly typed: unknown;
    readonly untyped: unknown;
  }
  const image = (random: Random): Key => {
    const hash = `image-${random.integer(20)}`;
    const offset = random.integer(400);
    return { typed: { type: "mm", modality: "image", identifier: hash, offset }, untyped: [hash, offset] };
  };
  const embeds = (random: Random): Key => {
    const digest = Uint8Array.from({ length: 1 + random.integer(32) }, () => random.integer(256));
    return { typed: { type: "prompt_embeds", hash: digest }, untyped: digest };
  };

  test("say the same as those without, for any number of blocks, images and digests", () => {
    const random = createSeededRandom(65);
    for (let round = 0; round < 500; round++) {
      const adapter = random.integer(2) === 0 ? "ada" : undefined;
      const salt = random.integer(2) === 0 ? "salt" : undefined;
      const blocks = Array.from({ length: 1 + random.integer(4) }, (_, block): Key[] => [
        ...(adapter === undefined ? [] : [{ typed: { type: "lora", lora_name: adapter }, untyped: adapter }]),
        ...Array.from({ length: random.integer(3) }, () => image(random)),
        ...Array.from({ length: random.integer(2) }, () => embeds(random)),
        ...(block > 0 || salt === undefined ? [] : [{ typed: { type: "cache_salt", salt }, untyped: salt }]),
      ]);
      const event = { type: "BlockStored", block_hashes: blocks.map((_, at) => at), token_ids: [], block_size: 16 };
      const untyped = {
        ...event,
        lora_name: adapter,
        extra_keys: blocks.map((keys) => keys.map((key) => key.untyped)),
      };
      const typed = { ...event, extra_keys: blocks.map((keys) => keys.map((key) => key.typed)) };
      expect(decodeOne(typed)).toEqual(decodeOne(untyped));
    }
  });

  test.each([
    { what: "a salt under a parent is left out", keys: [{ type: "cache_salt", salt: "s" }], blockKeys: undefined },
    { what: "its keys in another order", keys: [{ offset: 4, hash: "x", type: "mm" }], blockKeys: ["3:x@4"] },
    { what: "the first offset counts", keys: [{ type: "mm", hash: "x", a: 1, b: 2 }], blockKeys: ["3:x@1"] },
    { what: "the first text counts", keys: [{ type: "mm", hash: "x", other: "y" }], blockKeys: ["1:x"] },
    { what: "a modality is no identifier", keys: [{ type: "mm", modality: "audio" }], blockKeys: undefined },
    { what: "a type that is a number", keys: [{ type: 3, hash: "x" }], blockKeys: ["1:x"] },
    { what: "a type that is nil", keys: [{ type: null, hash: "x" }], blockKeys: ["1:x"] },
    { what: "no type", keys: [{ hash: "x" }], blockKeys: ["1:x"] },
    {
      what: "values of other kinds are passed over",
      keys: [{ type: "mm", a: [1], b: { c: 2 }, hash: "x" }],
      blockKeys: ["1:x"],
    },
    { what: "an identifier of no length", keys: [""], blockKeys: ["0:"] },
    { what: "a tuple of three", keys: [["x", 4, "y"]], blockKeys: ["5:x@4@y"] },
    { what: "a tuple with something that identifies nothing", keys: [["x", null, 1.5, 4]], blockKeys: ["3:x@4"] },
    { what: "numbers without a type", keys: [7, 8], blockKeys: ["1:71:8"] },
  ])("$what", ({ keys, blockKeys }) => {
    const event = { type: "BlockStored", block_hashes: [1], parent_block_hash: 5, token_ids: [], block_size: 16 };
    expect(decodeOne({ ...event, extra_keys: [keys] }).detail?.blockKeys).toEqual(blockKeys);
  });

  test("a list for more blocks than there are, or fewer, is read as it is", () => {
    const event = { type: "BlockStored", block_hashes: [1, 2], parent_block_hash: 5, token_ids: [], block_size: 16 };
    expect(decodeOne({ ...event, extra_keys: [null, null, ["x"]] }).detail?.blockKeys).toEqual([
      undefined,
      undefined,
      "1:x",
    ]);
    expect(decodeOne({ ...event, extra_keys: [["x"]] }).detail?.blockKeys).toEqual(["1:x"]);
    expect(decodeOne({ ...event, extra_keys: [] }).detail).toBeUndefined();
  });
});

describe("SGLang's map of what is rare, where vLLM has the adapter's name", () => {
  const event = (metadata: unknown): unknown[] => ["BlockStored", [1], null, [5], 1, null, "GPU", metadata];

  test.each([
    { metadata: {}, detail: undefined },
    { metadata: { session_id: "s" }, detail: undefined },
    { metadata: { cache_salt: null }, detail: undefined },
    { metadata: { cache_salt: "" }, detail: undefined },
    { metadata: { cache_salt: "t", session_id: [1, { a: 2 }] }, detail: { cacheSalt: "t" } },
    { metadata: { lora_name: "ada", cache_salt: "t" }, detail: { cacheSalt: "t" } },
  ])("$metadata", ({ metadata, detail }) => {
    const whole = { adapter: undefined, blockKeys: undefined, ...detail };
    expect(decodeOne(event(metadata)).detail).toEqual(detail === undefined ? undefined : whole);
  });

  test.each([{ cache_salt: 5 }, { cache_salt: ["t"] }])("%j makes the event malformed", (metadata) => {
    const report = decoder.decode(pack([1.5, [event(metadata), ["AllBlocksCleared"]], 0]));
    expect(report).toMatchObject({ refused: undefined, events: 1, malformedEvents: 1 });
  });
});
