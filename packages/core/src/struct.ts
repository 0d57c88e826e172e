import { ByteReader, ByteWriter } from "./bytes.ts";

/**
 * How a value is written, read, and described in PROTOCOL.md. Declare codecs once, at the top of a module: reading and
 * writing makes no codec.
 *
 * A reader throws a RangeError for what is beyond a bound, and where the bytes end too early. A writer checks no bound: who
 * calls it keeps to them.
 */
export interface Codec<Value> {
  /** @param frame the struct around the value: the outermost one, or the innermost one that has `flags` */
  write(writer: ByteWriter, value: Value, frame?: Fields): void;
  /**
   * @param frame that struct with the fields read so far
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

const anyVarint: Codec<number> = {
  write: (writer, value) => writer.varint(value),
  read: (reader) => reader.varint(),
  layout: "v",
};

/** A whole number from 0. @param min the least that a reader takes */
export function varint(max?: number, min = 0): Codec<number> {
  if (max === undefined) return anyVarint;
  return {
    write: (writer, value) => writer.varint(value),
    read(reader) {
      const value = atMost(reader.varint(), max);
      if (value < min) throw new RangeError(`${value} where ${min} is the least`);
      return value;
    },
    layout: `v(${min === 0 ? "" : `${min}-`}${written(max)})`,
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

/** A whole number that is written as its difference to an earlier field of the frame, which is no greater. */
export function after(earlier: string): Codec<number> {
  return {
    write: (writer, value, frame) => writer.varint(value - numberOf(frame, earlier)),
    read: (reader, frame) => atMost(numberOf(frame, earlier) + reader.varint(), Number.MAX_SAFE_INTEGER),
    layout: `v after ${earlier}`,
  };
}

const numberOf = (frame: Fields | undefined, name: string): number =>
  (frame as Readonly<Record<string, number>>)[name]!;

/** Two words of a hash, the low one first. */
export const hash: Codec<readonly [low: number, high: number]> = {
  write(writer, [low, high]) {
    writer.u32(low);
    writer.u32(high);
  },
  read: (reader) => [reader.u32(), reader.u32()],
  layout: "hash",
};

/** One of a few values, as the byte of its place. */
export function oneOf<const Value>(...values: readonly Value[]): Codec<Value> {
  return {
    write: (writer, value) => writer.u8(values.indexOf(value)),
    read(reader) {
      const place = reader.u8();
      if (place >= values.length) throw new RangeError(`${place} where there are ${values.join(", ")}`);
      return values[place]!;
    },
    layout: `u8(${values.map((value, place) => `${place} ${value}`).join(", ")})`,
  };
}

/** A byte of flags; others are refused. The field has to be called `flags`. */
export function flags(known: Readonly<Record<string, number>>): Codec<number> {
  const all = Object.values(known).reduce((flags, flag) => flags | flag, 0);
  return {
    write: (writer, value) => writer.u8(value),
    read(reader) {
      const value = reader.u8();
      if ((value & ~all) !== 0) throw new RangeError(`flags ${value} are not known`);
      return value;
    },
    layout: `u8(${Object.entries(known)
      .map(([name, flag]) => `${flag} ${name}`)
      .join(", ")})`,
  };
}

/** Something that is there only with a flag of the frame. */
export function flagged<Value>(flag: number, { write, read, layout }: Codec<Value>): Codec<Value | undefined> {
  const isSet = (frame: Fields | undefined): boolean => (numberOf(frame, "flags") & flag) !== 0;
  return {
    write(writer, value, frame) {
      if (isSet(frame)) write(writer, value as Value, frame);
    },
    read: (reader, frame) => (isSet(frame) ? read(reader, frame) : undefined),
    layout: `${layout}?${flag}`,
  };
}

/** Something that may be missing, behind a byte that says whether it is there. */
export function optional<Value>({ write, read, layout }: Codec<Value>): Codec<Value | undefined> {
  const isThere = oneOf(false, true);
  return {
    write(writer, value, frame) {
      isThere.write(writer, value !== undefined);
      if (value !== undefined) write(writer, value, frame);
    },
    read: (reader, frame) => (isThere.read(reader) ? read(reader, frame) : undefined),
    layout: `u8(0, 1) ${layout}?`,
  };
}

/** Another form of what a codec reads and writes. */
export function converted<Raw, Value>(
  { write, read, layout }: Codec<Raw>,
  { to, from }: { to(raw: Raw): Value; from(value: Value): Raw },
): Codec<Value> {
  return {
    write: (writer, value, frame) => write(writer, from(value), frame),
    read: (reader, frame) => to(read(reader, frame)),
    layout,
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

/** A text that is not empty. */
export function name<Name extends string = string>(maxBytes: number): Codec<Name> {
  return {
    write: (writer, value) => writer.text(value),
    read(reader) {
      const value = reader.text(maxBytes);
      if (value === "") throw new RangeError("there is no name");
      return value as Name;
    },
    layout: `t(1-${written(maxBytes)})`,
  };
}

/** All bytes that are left; what is read is a view. */
export function rest(maxBytes = Number.MAX_SAFE_INTEGER): Codec<Uint8Array> {
  return {
    write: (writer, value) => writer.raw(value),
    read: (reader) => reader.raw(atMost(reader.remaining, maxBytes)),
    layout: `rest${bound(maxBytes)}`,
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

/** Items after their number. @param maxBytes of them together, with their number */
export function list<Item>(item: Codec<Item>, max: number, maxBytes = Number.MAX_SAFE_INTEGER): Codec<readonly Item[]> {
  return {
    write(writer, items, frame) {
      writer.varint(items.length);
      for (const one of items) item.write(writer, one, frame);
    },
    read(reader, frame) {
      const { position } = reader;
      const items = readItems(reader, item, atMost(reader.varint(), max), frame);
      atMost(reader.position - position, maxBytes);
      return items;
    },
    layout: `[${bare(item.layout)}](${written(max)}${maxBytes < Number.MAX_SAFE_INTEGER ? `; ${written(maxBytes)} B` : ""})`,
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
  const keys = declared.map(([name]) => JSON.stringify(name));
  const frame = "flags" in fields ? "value" : "outer ?? value";
  const compile = (body: string) => new Function(...codecs, body)(...declared.map(([, codec]) => codec));
  return {
    write: compile(`return (writer, value, outer) => {
      const frame = ${frame};
      ${keys.map((key, at) => `c${at}.write(writer, value[${key}], frame);`).join("\n")}
    }`),
    read: compile(`return (reader, outer) => {
      const value = { ${keys.map((key) => `${key}: undefined`).join(", ")} };
      const frame = ${frame};
      ${keys.map((key, at) => `value[${key}] = c${at}.read(reader, frame);`).join("\n")}
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

type Bodies = Readonly<Record<string, readonly [code: number, body: Codec<object>]>>;

/** Any of some messages, with its kind. */
type MessageOf<Table extends Bodies> = {
  [Kind in keyof Table]: { readonly kind: Kind } & ValueOf<Table[Kind][1]>;
}[keyof Table];

/** Whole bytes that begin with their kind. */
export interface Messages<Message> {
  /** @param sizeBytes of the message, as far as that is known; more are taken as they are needed */
  encode(message: Message, sizeBytes?: number): Uint8Array<ArrayBuffer>;
  /** @throws RangeError for an unknown kind, for bytes behind the message, and as its codec does */
  decode(from: Uint8Array): Message;
  /** By code and kind. */
  readonly layouts: Readonly<Record<string, string>>;
}

/** Messages by kind: the byte that they begin with, and their fields. */
export function messages<const Table extends Bodies>(table: Table): Messages<MessageOf<Table>> {
  const kinds: (readonly [kind: string, body: Codec<object>])[] = [];
  for (const [kind, [code, body]] of Object.entries(table)) kinds[code] = [kind, body];
  return {
    encode(message, sizeBytes = 64) {
      const [code, body] = table[message.kind]!;
      const writer = new ByteWriter(sizeBytes);
      writer.u8(code);
      body.write(writer, message);
      return writer.copy();
    },
    decode(from) {
      const reader = new ByteReader(from);
      const code = reader.u8();
      const known = kinds[code];
      if (!known) throw new RangeError(`no message has the type ${code}`);
      const [kind, body] = known;
      const message = body.read(reader) as { kind?: string };
      reader.end();
      message.kind = kind;
      return message as MessageOf<Table>;
    },
    layouts: Object.fromEntries(
      Object.entries(table).map(([kind, [code, { layout }]]) => [`${code} ${kind}`, bare(layout)]),
    ),
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
