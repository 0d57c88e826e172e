import { describe, expect, test } from "vitest";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { type PlainEvent, plainEvent, plainEvents } from "./plain-events.ts";
import {
  array,
  arrayForms,
  type Bytes,
  binaryForms,
  float32,
  float64,
  integer,
  integerForms,
  map,
  mapForms,
  nil,
  otherValues,
  text,
  textForms,
} from "./wire-values.ts";

const decoder = createEventDecoder();

function decodeOne(event: Bytes): PlainEvent | string {
  const report = decoder.decode(Uint8Array.from(array(float64(1.5), array(event), nil)));
  if (report.refused !== undefined) return report.refused;
  return plainEvents(decoder.batch)[0] ?? (report.unknownEvents === 1 ? "unknown" : "malformed");
}

/** A `BlockStored` as a map, with some of its fields in a form of the test's choice. */
function stored(fields: Readonly<Record<string, Bytes>> = {}): Bytes {
  const whole = {
    type: text("BlockStored"),
    block_hashes: array(integer(7)),
    parent_block_hash: nil,
    token_ids: array(integer(1), integer(2)),
    block_size: integer(2),
    ...fields,
  };
  return map(...Object.entries(whole).flatMap(([name, value]) => [text(name), value]));
}

const plain = (given: Partial<PlainEvent> = {}): PlainEvent =>
  plainEvent({ hashes: [7n], tokens: [1, 2], blockSize: 2, ...given });

const edges = [0, 1, 127, 128, 255, 256, 2 ** 15 - 1, 2 ** 15, 2 ** 16 - 1, 2 ** 16, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1];
const wide = [2n ** 32n, 2n ** 53n + 1n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 1n];
const negative = [-1, -32, -33, -128, -129, -(2 ** 15), -(2 ** 15) - 1, -(2 ** 31), -(2n ** 31n) - 1n, -(2n ** 63n)];

describe("integers of every width", () => {
  test.each([...edges, ...wide, ...negative].map(BigInt))(
    "%i is one hash and one token in each of its forms",
    (value) => {
      const forms = integerForms(value);
      expect(forms.length).toBeGreaterThan(0);
      for (const { form, bytes } of forms) {
        const hash = BigInt.asUintN(64, value);
        const expected = plain({ hashes: [hash, 7n], parent: hash, tokens: [9, Number(BigInt.asUintN(32, value)), 9] });
        const event = stored({
          block_hashes: array(bytes, integer(7)),
          parent_block_hash: bytes,
          token_ids: array(integer(9), bytes, integer(9)),
        });
        expect(decodeOne(event), form).toEqual(expected);
      }
    },
  );

  test.each([0, 1, 127, 128, 2 ** 16, 2 ** 31 - 1])("a block size and a group of %i in each of its forms", (value) => {
    for (const { form, bytes } of integerForms(value)) {
      const expected = plain({ blockSize: value, group: value });
      expect(decodeOne(stored({ block_size: bytes, group_idx: bytes })), form).toEqual(expected);
    }
  });

  test.each([-1, -(2n ** 31n), 2 ** 31, 2n ** 32n, 2n ** 64n - 1n])(
    "no block size and no group is %i, in any form",
    (value) => {
      for (const { form, bytes } of integerForms(value)) {
        expect(decodeOne(stored({ block_size: bytes })), form).toBe("malformed");
        expect(decodeOne(stored({ group_idx: bytes })), form).toBe("malformed");
      }
    },
  );

  test.each([
    { rank: 0, refused: undefined },
    { rank: 65_535, refused: undefined },
    { rank: 65_536, refused: "envelope" },
    { rank: -1, refused: "envelope" },
    { rank: 2n ** 64n - 1n, refused: "envelope" },
  ])("rank $rank in each of its forms: refused as $refused", ({ rank, refused }) => {
    for (const { form, bytes } of integerForms(rank)) {
      const report = decoder.decode(Uint8Array.from(array(float64(1.5), array(), bytes)));
      expect([report.refused, decoder.batch.rank], form).toEqual([refused, refused ? -1 : rank]);
    }
  });
});

describe("the time", () => {
  test.each([
    { form: "float64", bytes: float64(1_795_226_916.25), timestampS: 1_795_226_916.25 },
    { form: "float32", bytes: float32(1.25), timestampS: 1.25 },
    { form: "a negative float", bytes: float64(-2.5), timestampS: -2.5 },
    { form: "infinity", bytes: float64(Number.POSITIVE_INFINITY), timestampS: Number.POSITIVE_INFINITY },
    { form: "float32 that is no number", bytes: float32(Number.NaN), timestampS: Number.NaN },
    ...integerForms(200).map(({ form, bytes }) => ({ form, bytes, timestampS: 200 })),
    ...integerForms(-5).map(({ form, bytes }) => ({ form, bytes, timestampS: -5 })),
  ])("as $form", ({ bytes, timestampS }) => {
    expect(decoder.decode(Uint8Array.from(array(bytes, array()))).refused).toBeUndefined();
    expect(decoder.batch.timestampS).toBe(timestampS);
  });
});

describe("texts, arrays and maps of every width", () => {
  test("a tag", () => {
    for (const { form, bytes } of textForms("AllBlocksCleared")) {
      expect(decodeOne(array(bytes)), form).toEqual(plainEvent({ kind: "cleared" }));
      expect(decodeOne(map(text("type"), bytes)), form).toEqual(plainEvent({ kind: "cleared" }));
    }
  });

  test.each(["type", "block_hashes"])("the key %s", (name) => {
    const values = { type: text("BlockRemoved"), block_hashes: array(integer(7)) };
    for (const { form, bytes } of textForms(name)) {
      const pairs = Object.entries(values).flatMap(([key, value]) => [key === name ? bytes : text(key), value]);
      expect(decodeOne(map(...pairs)), form).toEqual(plainEvent({ kind: "removed", hashes: [7n] }));
    }
  });

  test("a medium, a kind of attention, an adapter and a salt", () => {
    for (const [at] of textForms("x").entries()) {
      const form = (value: string): Bytes => textForms(value)[at]!.bytes;
      const event = stored({
        medium: form("DISK"),
        kv_cache_spec_kind: form("mamba"),
        lora_name: form("ada"),
        cache_salt: form("tenant"),
        extra_keys: array(array(form("ada"), form("img"), form("tenant"))),
      });
      const detail = { adapter: "ada", cacheSalt: "tenant", blockKeys: ["3:img"] };
      expect(decodeOne(event)).toEqual(plain({ tier: "disk", attention: "state", detail }));
    }
  });

  test("a hash of bytes, of which the last eight count", () => {
    for (const length of [1, 7, 8, 9, 16, 31, 32, 255]) {
      const content = Array.from({ length }, (_, at) => (at * 37 + 200) & 0xff);
      const hash = content.slice(-8).reduce((folded, byte) => (folded << 8n) | BigInt(byte), 0n);
      for (const { form, bytes } of binaryForms(content)) {
        const event = stored({ block_hashes: array(bytes, integer(7)), parent_block_hash: bytes });
        expect(decodeOne(event), `${form} of ${length}`).toEqual(plain({ hashes: [hash, 7n], parent: hash }));
      }
    }
  });

  test("a list of hashes, of tokens, of extra keys and of an event's fields", () => {
    const tokens = [1, 300, 70_000].map(integer);
    for (const [at, { form }] of arrayForms().entries()) {
      const list = (...values: readonly Bytes[]): Bytes => arrayForms(...values)[at]!.bytes;
      const keys = list(list(text("img")), nil);
      const event = list(
        ...[text("BlockStored"), list(integer(7), integer(8)), integer(9), list(...tokens), integer(1)],
        ...[nil, nil, nil, keys],
      );
      const detail = { adapter: undefined, cacheSalt: undefined, blockKeys: ["3:img", undefined] };
      const expected = { hashes: [7n, 8n], parent: 9n, tokens: [1, 300, 70_000], blockSize: 1, detail };
      expect(decodeOne(event), form).toEqual(plainEvent(expected));
    }
  });

  test("a message and an event as a map", () => {
    const event = [text("type"), text("BlockRemoved"), text("block_hashes"), array(integer(7))];
    for (const [at, { form }] of mapForms().entries()) {
      const table = (...values: readonly Bytes[]): Bytes => mapForms(...values)[at]!.bytes;
      const message = table(text("ts"), float64(2), text("events"), array(table(...event)));
      expect(decoder.decode(Uint8Array.from(message)), form).toMatchObject({ refused: undefined, events: 1 });
      expect(plainEvents(decoder.batch)).toEqual([plainEvent({ kind: "removed", hashes: [7n] })]);
    }
  });
});

const fields = [
  ...["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"],
  ...["extra_keys", "group_idx", "kv_cache_spec_kind", "cache_salt"],
];

describe.each(fields)("the field %s", (name) => {
  test.each(otherValues)("is not $what: the event is left out, the one after it is read", ({ bytes }) => {
    const payload = array(float64(1.5), array(stored({ [name]: bytes }), stored()), nil);
    expect(decoder.decode(Uint8Array.from(payload))).toMatchObject({
      refused: undefined,
      events: 1,
      malformedEvents: 1,
    });
    expect(plainEvents(decoder.batch)).toEqual([plain()]);
  });

  test("comes once: twice the same makes the event malformed", () => {
    const value = name === "type" ? text("BlockStored") : nil;
    const pairs = ["block_hashes", "token_ids"].includes(name) ? array(integer(7)) : value;
    const one = stored(name === "type" || name === "block_hashes" ? {} : { [name]: pairs });
    expect(decodeOne(one)).toMatchObject({ kind: "stored" });
    const twice = [one[0]! + 1, ...one.slice(1), ...text(name), ...pairs];
    expect(decodeOne(twice)).toBe("malformed");
  });
});

test("unknown keys may come as often as they like, with any value, anywhere", () => {
  const values = [
    ...otherValues.map(({ bytes }) => bytes),
    nil,
    array(map(text("a"), nil)),
    ...binaryForms([1]).map(({ bytes }) => bytes),
  ];
  const known = [text("block_hashes"), array(integer(7)), text("type"), text("BlockRemoved")];
  for (const value of values) {
    const event = map(text("later"), value, ...known, text("later"), value, text(""), value);
    expect(decodeOne(event)).toEqual(plainEvent({ kind: "removed", hashes: [7n] }));
  }
});

test.each(["ts", "events", "data_parallel_rank"])("a message with %s twice is refused", (name) => {
  const value = { ts: float64(1), events: array(), data_parallel_rank: integer(1) }[name]!;
  const others = name === "events" ? [] : [text("events"), array()];
  expect(decoder.decode(Uint8Array.from(map(...others, text(name), value))).refused).toBeUndefined();
  expect(decoder.decode(Uint8Array.from(map(...others, text(name), value, text(name), value))).refused).toBe(
    "envelope",
  );
});

test.each(otherValues)("no message is $what, and none has it for its events", ({ bytes }) => {
  expect(decoder.decode(Uint8Array.from(bytes)).refused).toBe("envelope");
  expect(decoder.decode(Uint8Array.from(array(float64(1), bytes))).refused).toBe("envelope");
});
