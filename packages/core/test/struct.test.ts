import { expect, test } from "vitest";
import {
  added,
  after,
  amount,
  before,
  bytes,
  capped,
  copied,
  createSeededRandom,
  ended,
  flag,
  flagged,
  flags,
  hash,
  list,
  messages,
  name,
  oneOf,
  optional,
  packed,
  raw,
  repeated,
  rest,
  roundedUp,
  scaledVarint,
  signedVarint,
  struct,
  text,
  u32,
  type ValueOf,
  varint,
  versioned,
  whole,
} from "../src/index.ts";

const item = struct({ word: u32, count: varint(1_000), offset: signedVarint(500), share: amount(2) });
const body = struct({ name: text(8), content: bytes(4), items: list(item, 3), total: varint() });
const note = versioned(1, body);

test("a declared value of any content is read as it was written; cut short or changed, it is read or refused with a RangeError", () => {
  const random = createSeededRandom(7);
  for (let round = 0; round < 300; round++) {
    const value: ValueOf<typeof body> = {
      name: "ä".repeat(random.integer(5)),
      content: Uint8Array.from({ length: random.integer(5) }, () => random.integer(256)),
      items: Array.from({ length: random.integer(4) }, () => ({
        word: random.integer(2 ** 32),
        count: random.integer(1_001),
        offset: random.integer(1_001) - 500,
        share: random.float() * 2,
      })),
      total: random.integer(2 ** 32) * 2 ** 20,
    };
    const encoded = note.encode(value);
    expect(note.decode(encoded)).toEqual(value);
    expect(note.decode(Uint8Array.of(...encoded, 1, 2))).toEqual(value);
    for (let length = 0; length < encoded.length; length++) {
      expect(() => note.decode(encoded.subarray(0, length))).toThrow(RangeError);
    }
    const changed = encoded.slice();
    changed[random.integer(changed.length)] = random.integer(256);
    try {
      note.decode(changed);
    } catch (error) {
      expect(error).toBeInstanceOf(RangeError);
    }
  }
});

const least = { name: "", content: new Uint8Array(), items: [], total: 0 };
const most = { word: 2 ** 32 - 1, count: 1_000, offset: -500, share: 2 };

test.each([
  ["a text", { ...least, name: "12345678" }, { ...least, name: "123456789" }],
  ["bytes", { ...least, content: new Uint8Array(4) }, { ...least, content: new Uint8Array(5) }],
  ["a list", { ...least, items: [most, most, most] }, { ...least, items: [most, most, most, most] }],
  ["a varint", { ...least, items: [most] }, { ...least, items: [{ ...most, count: 1_001 }] }],
  ["a negative varint", { ...least, items: [most] }, { ...least, items: [{ ...most, offset: -501 }] }],
  [
    "a positive varint",
    { ...least, items: [{ ...most, offset: 500 }] },
    { ...least, items: [{ ...most, offset: 501 }] },
  ],
  ["an amount", { ...least, items: [most] }, { ...least, items: [{ ...most, share: 2.001 }] }],
  ["no amount", { ...least, items: [most] }, { ...least, items: [{ ...most, share: -1 }] }],
  ["no number", { ...least, items: [most] }, { ...least, items: [{ ...most, share: Number.NaN }] }],
])("%s at its bound is read, and one past it is refused", (_, within, beyond) => {
  expect(note.decode(note.encode(within))).toEqual(within);
  expect(() => note.decode(note.encode(beyond))).toThrow(RangeError);
});

test("another version is refused", () => {
  expect(() => versioned(2, body).decode(note.encode(least))).toThrow("version 1 is not known");
});

test("the layout names fields, types and bounds in their order", () => {
  expect(note.layout).toBe(
    "name:t(8) content:b(4) items:[word:u32 count:v(1,000) offset:s(500) share:f64(2)](3) total:v",
  );
});

const later = versioned(
  1,
  struct({
    shares: list(capped(amount, 5), 2),
    tenths: scaledVarint(10, 9),
    more: added(
      struct({ offset: signedVarint(2, 100), ofShares: repeated("shares", u32), two: repeated(2, amount()) }),
    ),
  }),
);
const more = { offset: -1.25, ofShares: [7, 8], two: [0.5, 1e300] };

test("what a later version added is read where it is there, and bytes of an earlier version end before it", () => {
  const value = { shares: [1, 2], tenths: 0.3, more };
  const encoded = later.encode(value);
  expect(later.decode(encoded)).toEqual(value);
  const start = later.encode({ ...value, more: undefined });
  expect([...start]).toEqual([...encoded.subarray(0, start.length)]);
  expect(later.decode(start)).toEqual({ ...value, more: undefined });
  for (let length = start.length + 1; length < encoded.length; length++) {
    expect(() => later.decode(encoded.subarray(0, length)), `${length} bytes`).toThrow(RangeError);
  }
});

test("repeated items are as many as an earlier list has", () => {
  const value = { shares: [1], tenths: 0, more: { ...more, ofShares: [7] } };
  expect(later.decode(later.encode(value))).toEqual(value);
});

test("a capped or scaled number beyond its bound is written as the bound, and refused where a reader finds it", () => {
  const encoded = later.encode({ shares: [6], tenths: 9.1, more: undefined });
  expect(later.decode(encoded)).toEqual({ shares: [5], tenths: 9, more: undefined });
  expect(() => later.decode(Uint8Array.of(...encoded.subarray(0, -1), 91))).toThrow("9.1, maximum 9");
  expect(() => later.decode(versioned(1, list(amount(6), 2)).encode([6]))).toThrow("6, maximum 5");
});

test("a layout tells parts of one, what may be missing, and numbers of items", () => {
  expect(later.layout).toBe(
    "shares:[f64(5)](2) tenths:v/10(9) more:{offset:s/100(2) ofShares:shares x u32 two:2 x f64(from 0)}?",
  );
});

const frames = messages({
  move: [
    1,
    struct({
      from: varint(9, 2),
      to: after("from"),
      how: oneOf<"slow" | "fast">("slow", "fast"),
      parts: list(
        struct({ flags: flags({ left: 1, named: 4 }), left: flag(1), who: flagged(4, name(3)), at: optional(hash) }),
        2,
        24,
      ),
    }),
  ],
  raw: [7, struct({ bytes: rest(4) })],
});
type Frame = Parameters<typeof frames.encode>[0];
const part = { left: true, who: "abc", at: [2 ** 32 - 1, 7] } as const;
const move = {
  kind: "move",
  from: 2,
  to: 300,
  how: "fast",
  parts: [part, { left: true, who: undefined, at: undefined }],
};

test("a message of any kind is read as it was written, and refused when something is missing or follows it", () => {
  const whole = frames.encode(move as Frame);
  expect(frames.decode(whole)).toEqual(move);
  for (let length = 0; length < whole.length; length++) {
    expect(() => frames.decode(whole.subarray(0, length)), `${length} bytes`).toThrow(RangeError);
  }
  expect(() => frames.decode(Uint8Array.of(...whole, 0))).toThrow("1 bytes too many");
  const raw = { kind: "raw", bytes: Uint8Array.of(1, 2, 3, 4) } as const;
  expect([...frames.encode(raw)]).toEqual([7, 1, 2, 3, 4]);
  expect(frames.decode(frames.encode(raw))).toEqual(raw);
});

test.each([
  ["an unknown kind", [2, 0]],
  ["less than the least", [1, 1, 0, 0, 0]],
  ["a difference beyond all numbers", [1, 2, 255, 255, 255, 255, 255, 255, 255, 15, 0, 0]],
  ["none of the values", [1, 2, 0, 2, 0]],
  ["an unknown flag", [1, 2, 0, 0, 1, 2, 0]],
  ["an empty name", [1, 2, 0, 0, 1, 4, 0, 0]],
  ["a name that is too long", [1, 2, 0, 0, 1, 4, 4, 97, 97, 97, 97, 0]],
  ["neither there nor missing", [1, 2, 0, 0, 1, 0, 2]],
  ["more than may be left", [7, 1, 2, 3, 4, 5]],
])("a message is refused: %s", (_, bytes) => {
  expect(() => frames.decode(Uint8Array.from(bytes))).toThrow(RangeError);
});

test("a list of more bytes than it may have is refused, of few items too", () => {
  const lists = messages({ all: [1, struct({ texts: list(text(8), 9, 10) })] });
  const both = { kind: "all", texts: ["1234", "123"] } as const;
  expect(lists.decode(lists.encode(both))).toEqual(both);
  expect(() => lists.decode(lists.encode({ kind: "all", texts: ["1234", "1234"] }))).toThrow("11, maximum 10");
});

test("layouts of messages tell values, flags and what depends on them", () => {
  expect(frames.layouts).toEqual({
    "1 move":
      "from:v(2-9) to:v after from how:u8(0 slow, 1 fast) parts:[flags:u8(1 left, 4 named) who:t(1-3)?4 at:u8(0, 1) hash?](2; 24 B)",
    "7 raw": "bytes:rest(4)",
  });
});

const relay = whole(
  ended(
    struct({
      flags: flags({ relayed: 1, rare: 4 }, "ignored"),
      counter: varint(),
      ageMs: flagged(1, roundedUp),
      digest: copied(raw(2)),
      reports: list(
        struct({
          number: packed(["isBusy", "key"], 2 ** 40),
          isBusy: flag(1),
          key: flagged(2, text(3)),
          counter: before("counter", 1),
          rare: flagged(4, varint(9), 0),
        }),
        4,
      ),
    }),
  ),
);
const report = { number: 2 ** 40, isBusy: true, key: "abc", counter: 7, rare: 0 };
const heard = { counter: 7, ageMs: undefined, digest: Uint8Array.of(1, 2), reports: [report] };

test("flags follow from values, those of a number from the fields that it names, and items set those of their frame", () => {
  const quiet = { ...report, isBusy: false, key: undefined };
  for (const [first, value] of [
    [0, heard],
    [1, { ...heard, ageMs: 3, reports: [report, { ...quiet, counter: 0 }] }],
    [4, { ...heard, reports: [quiet, { ...report, key: undefined, rare: 9 }] }],
    [5, { ...heard, ageMs: 0, reports: [{ ...report, isBusy: false, counter: 6, rare: 1 }] }],
  ] as const) {
    const encoded = relay.encode(value);
    expect(encoded[0]).toBe(first);
    expect(relay.decode(encoded)).toEqual(value);
    for (let length = 0; length < encoded.length; length++)
      expect(() => relay.decode(encoded.subarray(0, length)), `${length} bytes`).toThrow(RangeError);
    expect(() => relay.decode(Uint8Array.of(...encoded, 0))).toThrow("1 bytes too many");
  }
  expect(relay.layout).toBe(
    "flags:u8(1 relayed, 4 rare, others ignored) counter:v ageMs:v?1 digest:2B " +
      "reports:[number:4v(1,099,511,627,776)+flags(1 isBusy, 2 key) key:t(3)?2 counter:v before counter?1 rare:v(9)?4](4)",
  );
});

test("a number beyond its bound above its flags, and more than the field before which it is, are refused", () => {
  const decodes = (changes: Partial<typeof report>) => () =>
    relay.decode(relay.encode({ ...heard, ageMs: 0, reports: [{ ...report, ...changes }] }));
  expect(decodes({ number: 2 ** 40 + 1 })).toThrow("1099511627777, maximum 1099511627776");
  expect(decodes({ counter: -1 })).toThrow("8, maximum 7");
  expect(decodes({ rare: 10 })).toThrow("10, maximum 9");
});

test("unknown flags are refused, or ignored where that is declared", () => {
  const strict = whole(struct({ flags: flags({ set: 2 }), set: flag(2) }));
  expect(strict.decode(Uint8Array.of(2))).toEqual({ set: true });
  expect(() => strict.decode(Uint8Array.of(3))).toThrow("flags 3 are not known");
  expect(relay.decode(Uint8Array.of(2 + 128, 7, 1, 2, 0))).toEqual({ ...heard, reports: [] });
});

test("a number that is rounded up is never less when it is read; copied bytes do not change with the frame", () => {
  const encoded = relay.encode({ ...heard, ageMs: 1.01 });
  const read = relay.decode(encoded);
  expect(read.ageMs).toBe(2);
  encoded.fill(0);
  expect([...read.digest]).toEqual([1, 2]);
});
