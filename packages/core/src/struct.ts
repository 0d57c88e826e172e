import { ByteReader, ByteWriter } from "./bytes.ts";

/**
 * How a value is written, read, and described in PROTOCOL.md. Declare codecs once, at the top of a module: reading and
 * writing makes no codec.
 *
 * A reader throws a RangeError for what is beyond a bound, and where the bytes end too early. A writer checks no bound: who
 * calls it keeps to them.
 */
export interface Codec<Value> {
  /** @param frame the outermost struct around the value */
  write(writer: ByteWriter, value: Value, frame?: Fields): void;
  /**
   * @param frame the outermost struct around the value, with the fields read so far
   * @throws RangeError
   */
  read(reader: ByteReader, frame?: Fields): Value;
  /** Its type in the notation of PROTOCOL.md. */
  readonly layout: string;
}

type Fields = Readonly<Record<string, unknown>>;

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
    layout: `v${bound(max)}`,
  };
}

/** A number from 0, written as the nearest whole number of parts, and as its bound beyond it. @param parts of one */
export function scaledVarint(parts: number, max = Number.MAX_SAFE_INTEGER): Codec<number> {
  return {
    write: (writer, value) => writer.varint(Math.round(parts * Math.min(max, value))),
    read: (reader) => atMost(reader.varint() / parts, max),
    layout: `v${over(parts)}${bound(max)}`,
  };
}

/** A number of either sign, written as the nearest whole number of parts. @param parts of one */
export function signedVarint(maxOfEitherSign = Number.MAX_SAFE_INTEGER, parts = 1): Codec<number> {
  const max = maxOfEitherSign;
  return {
    write: (writer, value) => writer.signedVarint(Math.round(parts * value)),
    read(reader) {
      const value = reader.signedVarint() / parts;
      atMost(Math.abs(value), max);
      return value;
    },
    layout: `s${over(parts)}${bound(max)}`,
  };
}

/** A double from 0, finite. */
export function amount(max = Number.MAX_VALUE): Codec<number> {
  return {
    write: (writer, value) => writer.f64(value),
    read(reader) {
      const value = reader.f64();
      if (!(value >= 0)) throw new RangeError(`${value} is no amount`);
      return atMost(value, max);
    },
    layout: max === Number.MAX_VALUE ? "f64(from 0)" : `f64(${written(max)})`,
  };
}

/** A number that is written as its bound beyond it. */
export function capped(kind: (max: number) => Codec<number>, max: number): Codec<number> {
  const { write, read, layout } = kind(max);
  return { write: (writer, value) => write(writer, Math.min(max, value)), read, layout };
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
    write(writer, items, frame) {
      writer.varint(items.length);
      for (const one of items) item.write(writer, one, frame);
    },
    read: (reader, frame) => readItems(reader, item, atMost(reader.varint(), max), frame),
    layout: `[${bare(item.layout)}](${written(max)})`,
  };
}

/** Items without their number. @param count theirs, or the name of an earlier list of the frame with as many */
export function repeated<Item>(count: number | string, item: Codec<Item>): Codec<readonly Item[]> {
  return {
    write(writer, items, frame) {
      for (const one of items) item.write(writer, one, frame);
    },
    read(reader, frame) {
      const items =
        typeof count === "number" ? count : (frame as Readonly<Record<string, readonly unknown[]>>)[count]!.length;
      return readItems(reader, item, items, frame);
    },
    layout: `${count} x ${item.layout}`,
  };
}

function readItems<Item>(reader: ByteReader, item: Codec<Item>, count: number, frame: Fields | undefined): Item[] {
  const items: Item[] = [];
  while (items.length < count) items.push(item.read(reader, frame));
  return items;
}

/** What a later version has added: the bytes of an earlier one end before it. */
export function added<Value>({ write, read, layout }: Codec<Value>): Codec<Value | undefined> {
  return {
    write(writer, value, frame) {
      if (value !== undefined) write(writer, value, frame);
    },
    read: (reader, frame) => (reader.remaining > 0 ? read(reader, frame) : undefined),
    layout: `${layout}?`,
  };
}

/**
 * Fields, one after the other in the order of their declaration. Their reader and writer are compiled: a loop over names
 * takes half as long again, because no engine can tell what shape its objects have. Only declarations get into that code.
 */
export function struct<Fields extends Readonly<Record<string, Codec<unknown>>>>(
  fields: Fields,
): Codec<{ readonly [Name in keyof Fields]: ValueOf<Fields[Name]> }> {
  const declared = Object.entries(fields);
  const codecs = declared.map((_, at) => `c${at}`);
  const keys = declared.map(([name]) => `value[${JSON.stringify(name)}]`);
  const compile = (body: string) => new Function(...codecs, body)(...declared.map(([, codec]) => codec));
  return {
    write: compile(`return (writer, value, frame = value) => {
      ${keys.map((key, at) => `c${at}.write(writer, ${key}, frame);`).join("\n")}
    }`),
    read: compile(`return (reader, frame) => {
      const value = {};
      const outer = frame ?? value;
      ${keys.map((key, at) => `${key} = c${at}.read(reader, outer);`).join("\n")}
      return value;
    }`),
    layout: `{${declared.map(([name, { layout }]) => `${name}:${layout}`).join(" ")}}`,
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
    layout: bare(layout),
  };
}

function atMost(value: number, max: number): number {
  if (value > max) throw new RangeError(`${value} where ${max} is the most`);
  return value;
}

/** Fields without their braces. */
const bare = (layout: string): string => (/^{.*}$/.test(layout) ? layout.slice(1, -1) : layout);

const written = (max: number): string => max.toLocaleString("en-US");

/** Nothing where no varint is larger. */
const bound = (max: number): string => (max === Number.MAX_SAFE_INTEGER ? "" : `(${written(max)})`);
const over = (parts: number): string => (parts === 1 ? "" : `/${written(parts)}`);
