import { ExtData, encode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import { MsgpackCursor } from "../../../src/kv-events/codec/msgpack-cursor.ts";

function cursorAt(bytes: Uint8Array): MsgpackCursor {
  const cursor = new MsgpackCursor();
  cursor.reset(bytes);
  return cursor;
}

const packed = (value: unknown): MsgpackCursor => cursorAt(encode(value, { useBigInt64: true }));

/** One value of every kind and width, with how many bytes it takes. */
const values: readonly { readonly what: string; readonly bytes: Uint8Array }[] = [
  ...[null, true, false, 0, 127, 128, 255, 256, 65_535, 65_536, 2 ** 32 - 1, -1, -32, -33, -129, -32_769].map(
    (value) => ({
      what: String(value),
      bytes: encode(value),
    }),
  ),
  { what: "uint64", bytes: encode(2n ** 63n, { useBigInt64: true }) },
  { what: "int64", bytes: encode(-(2n ** 62n), { useBigInt64: true }) },
  { what: "float32", bytes: encode(1.5, { forceFloat32: true }) },
  { what: "float64", bytes: encode(1.5) },
  ...[0, 31, 32, 255, 256, 65_535, 65_536].map((length) => ({
    what: `text of ${length}`,
    bytes: encode("t".repeat(length)),
  })),
  ...[0, 255, 256, 65_535, 65_536].map((length) => ({
    what: `bytes of ${length}`,
    bytes: encode(new Uint8Array(length)),
  })),
  ...[0, 15, 16, 65_535, 65_536].map((length) => ({
    what: `array of ${length}`,
    bytes: encode(Array.from({ length }, () => "x")),
  })),
  ...[0, 15, 16, 65_536].map((length) => ({
    what: `map of ${length}`,
    bytes: encode(Object.fromEntries(Array.from({ length }, (_, key) => [`k${key}`, [key]]))),
  })),
  ...[1, 2, 4, 8, 16, 3, 255, 256, 65_536].map((length) => ({
    what: `extension of ${length}`,
    bytes: encode(new ExtData(7, new Uint8Array(length))),
  })),
];

describe("skip", () => {
  test.each(values)("steps over $what exactly", ({ bytes }) => {
    const cursor = new MsgpackCursor();
    const followed = new Uint8Array(bytes.length + 1);
    followed.set(bytes);
    followed[bytes.length] = 0x2a;
    cursor.reset(followed);
    expect(cursor.skip()).toBe(true);
    expect(cursor.at).toBe(bytes.length);
    expect(cursor.readInteger()).toBe(0x2a);
  });

  test.each(values)("finds $what truncated when a byte is missing", ({ bytes }) => {
    const cursor = cursorAt(bytes.subarray(0, bytes.length - 1));
    expect(cursor.skip()).toBe(false);
    expect(cursor.failure).toBe("truncated");
  });

  test("finds the byte that is not msgpack, at any depth", () => {
    for (const bytes of [[0xc1], [0x91, 0xc1], [0x81, 0xa1, 0x61, 0xc1], [0x92, 0xc0, 0x91, 0xc1]]) {
      const cursor = cursorAt(Uint8Array.from(bytes));
      expect(cursor.skip()).toBe(false);
      expect(cursor.failure).toBe("invalid");
    }
  });
});

describe("reading", () => {
  test("numbers of every width", () => {
    for (const value of [
      0,
      127,
      128,
      255,
      256,
      65_535,
      65_536,
      2 ** 32 - 1,
      -1,
      -32,
      -33,
      -128,
      -129,
      -32_769,
      -(2 ** 31),
    ]) {
      expect(packed(value).readInteger()).toBe(value);
      expect(packed(value).readNumber()).toBe(value);
    }
    expect(packed(2n ** 52n).readInteger()).toBe(2 ** 52);
    expect(packed(-(2n ** 52n)).readInteger()).toBe(-(2 ** 52));
    expect(packed(1.25).readNumber()).toBe(1.25);
    expect(cursorAt(encode(1.25, { forceFloat32: true })).readNumber()).toBe(1.25);
    expect(packed(1.25).readInteger()).toBeNaN();
  });

  test("text and bytes, decoded and found", () => {
    const text = packed("größer \ufeff\u{1f600}");
    expect(text.readText()).toBe(true);
    expect(text.spanText()).toBe("größer \ufeff\u{1f600}");
    const bytes = packed(Uint8Array.of(9, 8, 7));
    expect(bytes.readBinary()).toBe(true);
    expect([...bytes.bytes.subarray(bytes.spanStart, bytes.spanEnd)]).toEqual([9, 8, 7]);
    const broken = cursorAt(Uint8Array.of(0xa2, 0xff, 0x61));
    expect(broken.readText()).toBe(true);
    expect(broken.spanText()).toBe("\ufffda");
  });

  test.each(values)("what fails on $what does not move", ({ bytes }) => {
    for (const cut of [bytes, bytes.subarray(0, bytes.length - 1), bytes.subarray(0, 1)]) {
      const cursor = cursorAt(cut);
      const attempts = [
        () => cursor.readNil(),
        () => cursor.readText(),
        () => cursor.readBinary(),
        () => cursor.readArrayHeader() >= 0,
        () => cursor.readMapHeader() >= 0,
        () => !Number.isNaN(cursor.readInteger()),
        () => !Number.isNaN(cursor.readNumber()),
      ];
      for (const attempt of attempts) {
        cursor.reset(cut);
        const isRead = attempt();
        expect(cursor.at > 0).toBe(isRead);
        expect(cursor.at).toBeLessThanOrEqual(cut.length);
      }
    }
  });

  test("a large message is read where it is, a small one is copied, and both are let go", () => {
    const cursor = new MsgpackCursor();
    const large = encode("t".repeat(100_000));
    const small = encode("small");
    cursor.reset(large);
    expect(cursor.bytes).toBe(large);
    cursor.release();
    expect(cursor.bytes).not.toBe(large);
    expect(cursor.peek()).toBe(-1);
    cursor.reset(small);
    small.fill(0);
    expect(cursor.readText()).toBe(true);
    expect(cursor.spanText()).toBe("small");
    cursor.release();
    expect(cursor.skip()).toBe(false);
  });

  test("at the end there is nothing of any kind", () => {
    const cursor = cursorAt(new Uint8Array(0));
    expect(cursor.peek()).toBe(-1);
    expect([cursor.readNil(), cursor.readText(), cursor.readBinary(), cursor.skip()]).toEqual([
      false,
      false,
      false,
      false,
    ]);
    expect([cursor.readArrayHeader(), cursor.readMapHeader()]).toEqual([-1, -1]);
    expect([cursor.readInteger(), cursor.readNumber()]).toEqual([Number.NaN, Number.NaN]);
  });
});
