import { expect, test } from "vitest";
import { ByteReader, ByteWriter, createSeededRandom, readOrUndefined } from "../src/index.ts";

test("what is written is read back, whatever it is", () => {
  const writer = new ByteWriter(1);
  writer.u8(255);
  writer.u32(0xdead_beef);
  writer.f64(-1.5e300);
  writer.text("Grüße, 世界");
  writer.bytes(Uint8Array.of(1, 2, 3));
  writer.raw(Uint8Array.of(9));
  writer.words(Uint32Array.of(7, 0xffff_ffff, 1, 8), 1, 3);
  const reader = new ByteReader(writer.copy());
  expect(reader.u8()).toBe(255);
  expect(reader.u32()).toBe(0xdead_beef);
  expect(reader.f64()).toBe(-1.5e300);
  expect(reader.text(100)).toBe("Grüße, 世界");
  expect([...reader.bytes(3)]).toEqual([1, 2, 3]);
  expect([...reader.raw(1)]).toEqual([9]);
  const words = new Uint32Array(3);
  reader.words(2, words, 1);
  expect([...words]).toEqual([0, 0xffff_ffff, 1]);
  expect([reader.remaining, reader.position]).toEqual([0, writer.length]);
  reader.end();
});

test.each([
  [0, 1],
  [127, 1],
  [128, 2],
  [2 ** 32 - 1, 5],
  [2 ** 32, 5],
  [2 ** 35 - 1, 5],
  [2 ** 35, 6],
  [Number.MAX_SAFE_INTEGER, 8],
])("the varint of %d takes %d bytes", (value, bytes) => {
  const writer = new ByteWriter();
  writer.varint(value);
  expect(writer.length).toBe(bytes);
  expect(new ByteReader(writer.copy()).varint()).toBe(value);
});

test("random numbers of every size and either sign come back", () => {
  const random = createSeededRandom(7);
  const values = Array.from({ length: 5_000 }, () => {
    const value = Math.floor(random.float() * 2 ** random.integer(53));
    return random.integer(2) === 0 ? value : -value;
  });
  const writer = new ByteWriter();
  for (const value of values) writer.signedVarint(value);
  const reader = new ByteReader(writer.copy());
  expect(values.map(() => reader.signedVarint())).toEqual(values.map((value) => value + 0));
  reader.end();
});

test("reset forgets what was written, and a copy is its own", () => {
  const writer = new ByteWriter();
  writer.u8(1);
  const first = writer.copy();
  writer.reset();
  writer.u8(2);
  expect([[...first], [...writer.copy()]]).toEqual([[1], [2]]);
});

test("a reader sees only its part of a larger buffer", () => {
  const writer = new ByteWriter();
  writer.u8(9);
  writer.f64(2.5);
  writer.u8(9);
  expect(new ByteReader(writer.copy().subarray(1, 9)).f64()).toBe(2.5);
  expect(() => new ByteReader(writer.copy().subarray(2, 9)).f64()).toThrow(RangeError);
});

test.each<[string, readonly number[], (reader: ByteReader) => unknown]>([
  ["a byte", [], (reader) => reader.u8()],
  ["a word", [1, 2, 3], (reader) => reader.u32()],
  ["a float", [1, 2, 3, 4, 5, 6, 7], (reader) => reader.f64()],
  ["a varint", [128], (reader) => reader.varint()],
  ["bytes", [2, 1], (reader) => reader.bytes(10)],
  ["words", [1, 2, 3, 4, 5, 6, 7], (reader) => reader.words(2, new Uint32Array(2), 0)],
  ["one byte more than allowed", [3, 1, 2, 3], (reader) => reader.bytes(2)],
  ["a text that is no UTF-8", [2, 0xc3, 0x28], (reader) => reader.text(10)],
  ["a varint beyond safe integers", [255, 255, 255, 255, 255, 255, 255, 31], (reader) => reader.varint()],
  ["a varint without end", [128, 128, 128, 128, 128, 128, 128, 128, 128, 128], (reader) => reader.varint()],
  ["what is left over", [1], (reader) => reader.end()],
])("%s is refused where the bytes do not hold it", (_, bytes, read) => {
  expect(() => read(new ByteReader(Uint8Array.from(bytes)))).toThrow(RangeError);
});

test("behind its version stands the rest, and another version is refused", () => {
  expect(ByteReader.ofVersion(3, Uint8Array.of(3, 7)).u8()).toBe(7);
  expect(() => ByteReader.ofVersion(3, Uint8Array.of(4, 7))).toThrow(new RangeError("version 4 is not known"));
});

test("what cannot be read is nothing, and a fault of the reader is none of the bytes'", () => {
  const read = (bytes: readonly number[]) => readOrUndefined(() => new ByteReader(Uint8Array.from(bytes)).u8());
  expect([read([5]), read([])]).toEqual([5, undefined]);
  expect(() => readOrUndefined(() => JSON.parse("{"))).toThrow(SyntaxError);
});
