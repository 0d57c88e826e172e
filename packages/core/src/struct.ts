import { ByteReader, ByteWriter } from "./bytes.ts";

/**
 * How a value is written, read, and described in docs/reference/wire-layouts.md. Declare codecs once, at the top of a module: reading and
 * writing makes no codec.
 *
 * A reader throws a RangeError for what is beyond a bound, and where unexpected end of bytes. A writer checks no bound: who
 * calls it keeps to them.
 */
export interface Codec<Value> {
  /**
   * @param frame the struct around the value: the outermost one, or the innermost one that has `flags`
   * @param flags of the frame, or of the number that has some for this field
   */
  write(writer: ByteWriter, value: Value, frame?: Fields, flags?: number): void;
  /**
   * @param frame that struct with the fields read so far
   * @throws RangeError
   */
  read(reader: ByteReader, frame?: Fields, flags?: number): Value;
  /** The flags that a value sets. Structs, lists and conversions pass on those of what is in them. */
  flagsOf?(value: Value): number;
  /** Its type in the notation of docs/reference/wire-layouts.md. */
  readonly layout: string;
}

type Fields = Readonly<Record<string, unknown>>;

/** A field that a struct has only with a flag. */
export interface Flagged<Value> {
  readonly flag: number;
  readonly codec: Codec<Value>;
  /** Its value without the flag. */
  readonly without: Value;
}

/** The value that a codec or a field reads and writes. */
export type ValueOf<Of> = Of extends { read(reader: ByteReader): infer Value }
  ? Value
  : Of extends Flagged<infer Value>
    ? Value
    : never;

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
      if (value < min) throw new RangeError(`${value}, minimum ${min}`);
      return value;
    },
    layout: `v(${min === 0 ? "" : `${min}-`}${written(max)})`,
  };
}

/** A number from 0, written as the least whole number that is no less. */
export const roundedUp: Codec<number> = { ...anyVarint, write: (writer, value) => writer.varint(Math.ceil(value)) };

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
      if (!(value >= 0)) throw new RangeError(`${value} is not an amount`);
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

/**
 * A whole number that is written as its difference to an earlier field of the frame, which is no less. Without the flag it
 * equals that field.
 */
export function before(earlier: string, flag: number): Codec<number> {
  return {
    write(writer, value, frame, flags) {
      if (flags! & flag) writer.varint(numberOf(frame, earlier) - value);
    },
    read(reader, frame, flags) {
      const most = numberOf(frame, earlier);
      return flags! & flag ? most - atMost(reader.varint(), most) : most;
    },
    layout: `v before ${earlier}?${flag}`,
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

/**
 * A byte of flags, which the values of the struct's other fields set. The field has to be called `flags`, and no value has
 * it.
 *
 * @param others what a reader does with unknown ones
 */
export function flags(
  known: Readonly<Record<string, number>>,
  others: "refused" | "ignored" = "refused",
): Codec<number> {
  const all = Object.values(known).reduce((flags, flag) => flags | flag, 0);
  return {
    write: (writer, _, __, flags) => writer.u8(flags!),
    read(reader) {
      const value = reader.u8();
      if ((value & ~all) !== 0 && others === "refused") throw new RangeError(`flags ${value} are not known`);
      return value;
    },
    layout: `u8(${flagNames(Object.entries(known))}${others === "ignored" ? ", others ignored" : ""})`,
  };
}

const flagNames = (flags: readonly (readonly [name: string, flag: number])[]): string =>
  flags.map(([name, flag]) => `${flag} ${name}`).join(", ");

/** A whole number from 0 with flags in its lowest bits. */
interface Packed extends Codec<number> {
  readonly packs: readonly string[];
}

/**
 * A field with a whole number from 0 and flags, which are no flags of the frame.
 *
 * @param flagged names of the later fields that set them, from that with the flag 1 on
 */
export function packed(flagged: readonly string[], max = Number.MAX_SAFE_INTEGER): Packed {
  const parts = 2 ** flagged.length;
  return {
    packs: flagged,
    write: (writer, value, _, flags) => writer.varint(value * parts + flags!),
    // With the flags: the struct takes them off.
    read(reader) {
      const value = reader.varint();
      atMost(Math.floor(value / parts), max);
      return value;
    },
    layout: `${parts}v${bound(max)}+flags(${flagNames(flagged.map((name, at) => [name, 2 ** at]))})`,
  };
}

/** A field that says whether a flag is set. */
export function flag(flag: number): Flagged<boolean> {
  return { flag, codec: { write() {}, read: () => true, layout: "" }, without: false };
}

/** A field that is there only with a flag. @param without its value without the flag */
export function flagged<Value>(flag: number, codec: Codec<Value>): Flagged<Value | undefined>;
export function flagged<Value>(flag: number, codec: Codec<Value>, without: Value): Flagged<Value>;
export function flagged<Value>(flag: number, codec: Codec<Value>, without?: Value): Flagged<Value | undefined> {
  return { flag, codec, without };
}

/** Something that may be missing, behind a byte that says whether it is there. */
export function optional<Value>({ write, read, layout }: Codec<Value>): Codec<Value | undefined> {
  const isThere = oneOf(false, true);
  return {
    write(writer, value, frame, flags) {
      isThere.write(writer, value !== undefined);
      if (value !== undefined) write(writer, value, frame, flags);
    },
    read: (reader, frame, flags) => (isThere.read(reader) ? read(reader, frame, flags) : undefined),
    layout: `u8(0, 1) ${layout}?`,
  };
}

/** Another form of what a codec reads and writes. */
export function converted<Raw, Value>(
  { write, read, flagsOf, layout }: Codec<Raw>,
  { to, from }: { to(raw: Raw): Value; from(value: Value): Raw },
): Codec<Value> {
  return {
    write: (writer, value, frame, flags) => write(writer, from(value), frame, flags),
    read: (reader, frame, flags) => to(read(reader, frame, flags)),
    ...(flagsOf && { flagsOf: (value: Value) => flagsOf(from(value)) }),
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
      if (value === "") throw new RangeError("empty name");
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

/** So many bytes without their number; what is read is a view. */
export function raw(length: number): Codec<Uint8Array> {
  return {
    write: (writer, value) => writer.raw(value),
    read: (reader) => reader.raw(length),
    layout: `${length}B`,
  };
}

/** A copy of bytes, which does not hold on to the whole frame. */
export function copied({ write, read, layout }: Codec<Uint8Array>): Codec<Uint8Array> {
  return { write, read: (reader) => new Uint8Array(read(reader)), layout };
}

/** Items after their number. @param maxBytes of them together, with their number */
export function list<Item>(item: Codec<Item>, max: number, maxBytes = Number.MAX_SAFE_INTEGER): Codec<readonly Item[]> {
  return {
    write(writer, items, frame, flags) {
      writer.varint(items.length);
      for (const one of items) item.write(writer, one, frame, flags);
    },
    read(reader, frame, flags) {
      const { position } = reader;
      const items = readItems(reader, item, atMost(reader.varint(), max), frame, flags);
      atMost(reader.position - position, maxBytes);
      return items;
    },
    ...(item.flagsOf && {
      flagsOf(items: readonly Item[]) {
        let flags = 0;
        for (const one of items) flags |= item.flagsOf!(one);
        return flags;
      },
    }),
    layout: `[${bare(item.layout)}](${written(max)}${maxBytes < Number.MAX_SAFE_INTEGER ? `; ${written(maxBytes)} B` : ""})`,
  };
}

/** Items without their number. @param count theirs, or the name of an earlier list of the frame with as many */
export function repeated<Item>(count: number | string, item: Codec<Item>): Codec<readonly Item[]> {
  return {
    write(writer, items, frame, flags) {
      for (const one of items) item.write(writer, one, frame, flags);
    },
    read(reader, frame, flags) {
      const items =
        typeof count === "number" ? count : (frame as Readonly<Record<string, readonly unknown[]>>)[count]!.length;
      return readItems(reader, item, items, frame, flags);
    },
    layout: `${count} x ${item.layout}`,
  };
}

function readItems<Item>(
  reader: ByteReader,
  item: Codec<Item>,
  count: number,
  frame: Fields | undefined,
  flags: number | undefined,
): Item[] {
  const items: Item[] = [];
  while (items.length < count) items.push(item.read(reader, frame, flags));
  return items;
}

/** What a later version has added: the bytes of an earlier one end before it. */
export function added<Value>({ write, read, layout }: Codec<Value>): Codec<Value | undefined> {
  return {
    write(writer, value, frame, flags) {
      if (value !== undefined) write(writer, value, frame, flags);
    },
    read: (reader, frame, flags) => (reader.remaining > 0 ? read(reader, frame, flags) : undefined),
    layout: `${layout}?`,
  };
}

/** What nothing may follow. */
export function ended<Value>({ write, read, layout }: Codec<Value>): Codec<Value> {
  return {
    write,
    read(reader) {
      const value = read(reader);
      reader.end();
      return value;
    },
    layout,
  };
}

type Field = Codec<unknown> | Packed | Flagged<unknown>;

type StructOf<Fields> = { readonly [Name in keyof Fields as Exclude<Name, "flags">]: ValueOf<Fields[Name]> };

/**
 * Fields, one after the other in the order of their declaration. Their reader and writer are compiled: a loop over names
 * takes half as long again, because no engine can tell what shape its objects have. Only declarations get into that code.
 */
export function struct<Fields extends Readonly<Record<string, Field>>>(fields: Fields): Codec<StructOf<Fields>> {
  const packing = Object.values(fields).find((field) => "packs" in field)?.packs ?? [];
  const declared = Object.entries(fields).map(([name, field], at) => codeOf(name, field, at, packing));
  const hasFlags = "flags" in fields;
  const frame = hasFlags ? "value" : "outer ?? value";
  const setting = (flags: string): string =>
    declared.flatMap((field) => (field.sets && field.flags === flags ? [field.sets] : [])).join(" | ");
  const compile = (body: string) =>
    new Function(...declared.flatMap(({ at }) => [`codec${at}`, `without${at}`]), `return ${body}`)(
      ...declared.flatMap(({ codec, without }) => [codec, without]),
    );
  return {
    write: compile(`(writer, value, outer, flags) => {
      const frame = ${frame};
      ${hasFlags ? `flags = ${setting("flags") || 0};` : ""}
      ${packing.length > 0 ? `const packed = ${setting("packed")};` : ""}
      ${declared.map(({ write }) => write).join("\n")}
    }`),
    read: compile(`(reader, outer, flags) => {
      const value = { ${declared.flatMap(({ name }) => (name === "flags" ? [] : [`${JSON.stringify(name)}: undefined`])).join(", ")} };
      const frame = ${frame};
      let packed;
      ${declared.map(({ read }) => read).join("\n")}
      return value;
    }`),
    ...(setting("flags") && !hasFlags && { flagsOf: compile(`(value) => ${setting("flags")}`) }),
    layout: `{${declared.flatMap(({ layout }) => layout || []).join(" ")}}`,
  };
}

/** The statements for one field of a struct. */
function codeOf(name: string, field: Field, at: number, packing: readonly string[]) {
  const own = `value[${JSON.stringify(name)}]`;
  const flags = "packs" in field || packing.includes(name) ? "packed" : "flags";
  const write = `codec${at}.write(writer, ${own}, frame, ${flags});`;
  const read = `codec${at}.read(reader, frame, ${flags})`;
  if ("without" in field) {
    const { codec, without, flag } = field;
    return {
      ...{ name, at, flags, codec, without },
      sets: `(${own} === without${at} ? 0 : ${flag})`,
      write: `if (${flags} & ${flag}) ${write}`,
      read: `${own} = ${flags} & ${flag} ? ${read} : without${at};`,
      layout: codec.layout && `${name}:${codec.layout}?${flag}`,
    };
  }
  const parts = 2 ** packing.length;
  return {
    ...{ name, at, flags, codec: field, without: undefined, layout: `${name}:${field.layout}` },
    sets: field.flagsOf && `codec${at}.flagsOf(${own})`,
    write,
    read:
      "packs" in field
        ? `packed = ${read}; ${own} = Math.floor(packed / ${parts}); packed %= ${parts};`
        : `${name === "flags" ? "flags" : own} = ${read};`,
  };
}

/** Whole bytes. */
export interface Whole<Value> {
  /** @param sizeBytes of the value, as far as that is known; more are taken as they are needed */
  encode(value: Value, sizeBytes?: number): Uint8Array<ArrayBuffer>;
  /** @throws RangeError as its codec does, and for another version */
  decode(from: Uint8Array): Value;
  readonly layout: string;
}

/**
 * A value from the first byte on. Bytes behind it are ignored, so that a later version may add to it.
 *
 * @param version a byte before it; none by default
 */
export function whole<Value>({ write, read, layout }: Codec<Value>, version?: number): Whole<Value> {
  return {
    encode(value, sizeBytes) {
      const writer = new ByteWriter(sizeBytes);
      if (version !== undefined) writer.u8(version);
      write(writer, value);
      return writer.copy();
    },
    decode: (from) => read(version === undefined ? new ByteReader(from) : ByteReader.ofVersion(version, from)),
    layout: bare(layout),
  };
}

/** A value behind a byte with its version. */
export function versioned<Value>(version: number, codec: Codec<Value>): Whole<Value> {
  return whole(codec, version);
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
  if (value > max) throw new RangeError(`${value}, maximum ${max}`);
  return value;
}

/** Fields without their braces. */
const bare = (layout: string): string => (/^{.*}$/.test(layout) ? layout.slice(1, -1) : layout);

const written = (max: number): string => max.toLocaleString("en-US");

/** Nothing where no varint is larger. */
const bound = (max: number): string => (max === Number.MAX_SAFE_INTEGER ? "" : `(${written(max)})`);
const over = (parts: number): string => (parts === 1 ? "" : `/${written(parts)}`);
