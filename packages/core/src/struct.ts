import { ByteReader, ByteWriter } from "./bytes.ts";

/**
 * How a value is written, read, and described in PROTOCOL.md. Declare codecs once, at the top of a module: reading and
 * writing makes no codec.
 *
 * A reader throws a RangeError for what is beyond a bound, and where the bytes end too early. A writer checks no bound: who
 * calls it keeps to them.
 */
export interface Codec<Value> {
  write(writer: ByteWriter, value: Value): void;
  /** @throws RangeError */
  read(reader: ByteReader): Value;
  /** Its type in the notation of PROTOCOL.md. */
  readonly layout: string;
}

/** The value that a codec reads and writes. */
export type ValueOf<Of> = Of extends { read(reader: ByteReader): infer Value } ? Value : never;

/** Four bytes, the lowest first. */
export const u32: Codec<number> = {
  write: (writer, value) => writer.u32(value),
  read: (reader) => reader.u32(),
  layout: "u32",
};

/** A whole number from 0. */
export function varint(max = Number.MAX_SAFE_INTEGER): Codec<number> {
  return {
    write: (writer, value) => writer.varint(value),
    read: (reader) => atMost(reader.varint(), max),
    layout: max === Number.MAX_SAFE_INTEGER ? "v" : `v(${written(max)})`,
  };
}

/** A whole number of either sign. */
export function signedVarint(maxOfEitherSign: number): Codec<number> {
  return {
    write: (writer, value) => writer.signedVarint(value),
    read(reader) {
      const value = reader.signedVarint();
      atMost(Math.abs(value), maxOfEitherSign);
      return value;
    },
    layout: `s(${written(maxOfEitherSign)})`,
  };
}

/** A double from 0. */
export function amount(max: number): Codec<number> {
  return {
    write: (writer, value) => writer.f64(value),
    read(reader) {
      const value = reader.f64();
      if (!(value >= 0)) throw new RangeError(`${value} is no amount`);
      return atMost(value, max);
    },
    layout: `f64(${written(max)})`,
  };
}

/** UTF-8 after its length. */
export function text(maxBytes: number): Codec<string> {
  return {
    write: (writer, value) => writer.text(value),
    read: (reader) => reader.text(maxBytes),
    layout: `t(${written(maxBytes)})`,
  };
}

/** Bytes after their length; what is read is a view. */
export function bytes(maxBytes: number): Codec<Uint8Array> {
  return {
    write: (writer, value) => writer.bytes(value),
    read: (reader) => reader.bytes(maxBytes),
    layout: `b(${written(maxBytes)})`,
  };
}

/** Items after their number. */
export function list<Item>(item: Codec<Item>, max: number): Codec<readonly Item[]> {
  return {
    write(writer, items) {
      writer.varint(items.length);
      for (const one of items) item.write(writer, one);
    },
    read(reader) {
      const count = atMost(reader.varint(), max);
      const items: Item[] = [];
      while (items.length < count) items.push(item.read(reader));
      return items;
    },
    layout: `[${item.layout}](${written(max)})`,
  };
}

/** Fields, one after the other in the order of their declaration. */
export function struct<Fields extends Readonly<Record<string, Codec<unknown>>>>(
  fields: Fields,
): Codec<{ readonly [Name in keyof Fields]: ValueOf<Fields[Name]> }> {
  const declared = Object.entries(fields);
  return {
    write(writer, value) {
      for (const [name, codec] of declared) codec.write(writer, value[name]);
    },
    read(reader) {
      const value: Record<string, unknown> = {};
      for (const [name, codec] of declared) value[name] = codec.read(reader);
      return value as { readonly [Name in keyof Fields]: ValueOf<Fields[Name]> };
    },
    layout: declared.map(([name, { layout }]) => `${name}:${within(layout)}`).join(" "),
  };
}

/** Whole bytes that begin with their version. */
export interface Versioned<Value> {
  encode(value: Value): Uint8Array<ArrayBuffer>;
  /**
   * Bytes behind the value are ignored, so that a later version may add to it.
   *
   * @throws RangeError for another version, and as its codec does
   */
  decode(from: Uint8Array): Value;
  readonly layout: string;
}

/** A value behind a byte with its version. */
export function versioned<Value>(version: number, { write, read, layout }: Codec<Value>): Versioned<Value> {
  return {
    encode(value) {
      const writer = new ByteWriter();
      writer.u8(version);
      write(writer, value);
      return writer.copy();
    },
    decode: (from) => read(ByteReader.ofVersion(version, from)),
    layout,
  };
}

function atMost(value: number, max: number): number {
  if (value > max) throw new RangeError(`${value} where ${max} is the most`);
  return value;
}

/** Several fields as one. */
const within = (layout: string): string => (/^[^[]* /.test(layout) ? `{${layout}}` : layout);

const written = (max: number): string => max.toLocaleString("en-US");
