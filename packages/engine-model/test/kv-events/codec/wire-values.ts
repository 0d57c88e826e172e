/** Bytes of msgpack values in a form that a test chooses, where a library would take the shortest one. */
export type Bytes = readonly number[];

const bigEndian = (value: bigint, sizeBytes: number): number[] =>
  Array.from({ length: sizeBytes }, (_, at) => Number((value >> BigInt(8 * (sizeBytes - 1 - at))) & 0xffn));

const unsignedHeads: Readonly<Record<number, number>> = { 1: 0xcc, 2: 0xcd, 4: 0xce, 8: 0xcf };
const signedHeads: Readonly<Record<number, number>> = { 1: 0xd0, 2: 0xd1, 4: 0xd2, 8: 0xd3 };

export const uint = (value: bigint | number, sizeBytes: 1 | 2 | 4 | 8): Bytes => [
  unsignedHeads[sizeBytes]!,
  ...bigEndian(BigInt(value), sizeBytes),
];

export const int = (value: bigint | number, sizeBytes: 1 | 2 | 4 | 8): Bytes => [
  signedHeads[sizeBytes]!,
  ...bigEndian(BigInt.asUintN(64, BigInt(value)), sizeBytes),
];

/** Every form that holds the integer, from the shortest on. */
export function integerForms(value: bigint | number): readonly { readonly form: string; readonly bytes: Bytes }[] {
  const given = BigInt(value);
  const forms: { form: string; bytes: Bytes }[] = [];
  if (given >= -32n && given < 128n) forms.push({ form: "fixint", bytes: [Number(given & 0xffn)] });
  for (const sizeBytes of [1, 2, 4, 8] as const) {
    const bits = BigInt(8 * sizeBytes);
    if (given >= 0n && given < 1n << bits) forms.push({ form: `uint${bits}`, bytes: uint(given, sizeBytes) });
    if (given >= -(1n << (bits - 1n)) && given < 1n << (bits - 1n)) {
      forms.push({ form: `int${bits}`, bytes: int(given, sizeBytes) });
    }
  }
  return forms;
}

const lengthForms = (length: number, heads: readonly (readonly [string, number, number])[]) =>
  heads
    .filter(([, , sizeBytes]) => length < 2 ** (8 * sizeBytes))
    .map(([form, head, sizeBytes]) => ({ form, head: [head, ...bigEndian(BigInt(length), sizeBytes)] }));

/** Every form of a text. */
export function textForms(text: string): readonly { readonly form: string; readonly bytes: Bytes }[] {
  const content = [...new TextEncoder().encode(text)];
  const heads = lengthForms(content.length, [
    ["str8", 0xd9, 1],
    ["str16", 0xda, 2],
    ["str32", 0xdb, 4],
  ]);
  if (content.length < 32) heads.unshift({ form: "fixstr", head: [0xa0 + content.length] });
  return heads.map(({ form, head }) => ({ form, bytes: [...head, ...content] }));
}

/** Every form of a byte string. */
export const binaryForms = (content: Bytes): readonly { readonly form: string; readonly bytes: Bytes }[] =>
  lengthForms(content.length, [
    ["bin8", 0xc4, 1],
    ["bin16", 0xc5, 2],
    ["bin32", 0xc6, 4],
  ]).map(({ form, head }) => ({ form, bytes: [...head, ...content] }));

/** Every form of an array or map, of the bytes of its values (of a map: keys and values in turn). */
function containerForms(kind: "array" | "map", values: readonly Bytes[]) {
  const count = kind === "map" ? values.length / 2 : values.length;
  const base = kind === "map" ? 0x80 : 0x90;
  const heads = lengthForms(count, [
    [`${kind}16`, kind === "map" ? 0xde : 0xdc, 2],
    [`${kind}32`, kind === "map" ? 0xdf : 0xdd, 4],
  ]);
  if (count < 16) heads.unshift({ form: `fix${kind}`, head: [base + count] });
  return heads.map(({ form, head }) => ({ form, bytes: [...head, ...values.flat()] as Bytes }));
}

export const arrayForms = (...values: readonly Bytes[]) => containerForms("array", values);
export const mapForms = (...keysAndValues: readonly Bytes[]) => containerForms("map", keysAndValues);

export const array = (...values: readonly Bytes[]): Bytes => arrayForms(...values)[0]!.bytes;
export const map = (...keysAndValues: readonly Bytes[]): Bytes => mapForms(...keysAndValues)[0]!.bytes;
export const text = (value: string): Bytes => textForms(value)[0]!.bytes;
export const integer = (value: bigint | number): Bytes => integerForms(value)[0]!.bytes;
export const nil: Bytes = [0xc0];

export function float32(value: number): Bytes {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  return [0xca, ...new Uint8Array(view.buffer)];
}

export function float64(value: number): Bytes {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  return [0xcb, ...new Uint8Array(view.buffer)];
}

/** One value of each kind that is neither nil, an integer, a text, a byte string, an array nor a map. */
export const otherValues: readonly { readonly what: string; readonly bytes: Bytes }[] = [
  { what: "false", bytes: [0xc2] },
  { what: "true", bytes: [0xc3] },
  { what: "float32", bytes: float32(1.5) },
  { what: "float64", bytes: float64(2) },
  { what: "fixext1", bytes: [0xd4, 1, 9] },
  { what: "fixext16", bytes: [0xd8, 1, ...Array<number>(16).fill(9)] },
  { what: "ext8", bytes: [0xc7, 3, 1, 9, 9, 9] },
  { what: "ext16 of nothing", bytes: [0xc8, 0, 0, 1] },
  { what: "ext32", bytes: [0xc9, 0, 0, 0, 1, 1, 9] },
];
