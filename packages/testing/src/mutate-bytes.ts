import type { Random } from "@espalier/core";

/** Largest case; larger bounds of decoders have their own tests. */
export const maxCaseBytes = 65_536;
const maxChanges = 6;
const maxRunBytes = 4_096;

/**
 * Mutates one of the seeds: single bytes, numbers at the edges of their types, runs cut out, repeated or taken
 * from another seed, pieces of syntax; of JSON texts also values. One case in sixteen is random bytes alone.
 *
 * @returns new bytes, at most `maxCaseBytes`
 */
export function mutateBytes(random: Random, seeds: readonly Uint8Array[]): Uint8Array {
  if (random.integer(16) === 0) return randomBytes(random, random.integer(256));
  const pick = (): Uint8Array => seeds[random.integer(seeds.length)]!;
  const seed = pick();
  const structural = random.integer(2) === 0 ? mutateJson(random, seed) : undefined;
  if (structural && random.integer(4) > 0) return structural.subarray(0, maxCaseBytes);
  let bytes = structural ?? Uint8Array.from(seed.subarray(0, maxCaseBytes));
  // Mostly one change: decoders refuse an input at its first error.
  for (let change = 1 + random.integer(1 + random.integer(maxChanges)); change > 0; change--) {
    bytes = changes[random.integer(changes.length)]!(random, bytes, pick).subarray(0, maxCaseBytes);
  }
  return bytes;
}

type Change = (random: Random, bytes: Uint8Array<ArrayBuffer>, pick: () => Uint8Array) => Uint8Array<ArrayBuffer>;

const changes: readonly Change[] = [
  (random, bytes) => withByte(random, bytes, (byte) => byte ^ (1 << random.integer(8))),
  (random, bytes) => withByte(random, bytes, () => random.integer(256)),
  (random, bytes) => withByte(random, bytes, (byte) => byte + (random.integer(2) === 0 ? 1 : -1)),
  (random, bytes) => bytes.slice(0, random.integer(bytes.length + 1)),
  (random, bytes) => withNumber(random, bytes),
  (random, bytes) => {
    const [from, to] = someRun(random, bytes);
    return joined(bytes.subarray(0, from), bytes.subarray(to));
  },
  (random, bytes) => {
    const [from, to] = someRun(random, bytes);
    const times = 1 + random.integer(random.integer(8) === 0 ? 200 : 4);
    const run = bytes.subarray(from, Math.min(to, from + Math.floor(maxCaseBytes / times)));
    return joined(bytes.subarray(0, to), ...Array.from({ length: times }, () => run), bytes.subarray(to));
  },
  (random, bytes, pick) => {
    const other = pick();
    const [from, to] = someRun(random, other);
    return insert(random, bytes, other.subarray(from, to));
  },
  (random, bytes) => insert(random, bytes, pieces[random.integer(pieces.length)]!),
  (random, bytes) => insert(random, bytes, randomBytes(random, 1 + random.integer(8))),
];

/** Pieces of syntax and odd values that break text parsers. */
const pieces = [
  ..."{}[]\"'\\:,%#\n\r\t\0 ",
  ...["\r\n", "\r\n\r\n", "\n\n", "data:", "null", "true", "NaN", "1e999", "-0", "9007199254740993", "-1", "0x"],
  ...["__proto__", "constructor", "\\u0000", "\\ud800", "\ufeff", "\u2028", "\ud83d\ude00", "<<: *a", "&a", "{{", "{%"],
].map((text) => new TextEncoder().encode(text));

const wholeNumbers = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

function withByte(
  random: Random,
  bytes: Uint8Array<ArrayBuffer>,
  to: (byte: number) => number,
): Uint8Array<ArrayBuffer> {
  if (bytes.length === 0) return bytes;
  const at = random.integer(bytes.length);
  bytes[at] = to(bytes[at]!);
  return bytes;
}

/** Writes a number at the edge of a type, in either byte order. */
function withNumber(random: Random, bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const width = [1, 2, 4, 8][random.integer(4)]!;
  if (bytes.length < width) return bytes;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const at = random.integer(bytes.length - width + 1);
  const value = wholeNumbers[random.integer(wholeNumbers.length)]!;
  const isLittle = random.integer(2) === 0;
  if (width === 1) view.setUint8(at, value);
  else if (width === 2) view.setUint16(at, value, isLittle);
  else if (width === 4) view.setUint32(at, value, isLittle);
  else view.setBigUint64(at, (BigInt(value) << 32n) | BigInt(value), isLittle);
  return bytes;
}

function someRun(random: Random, bytes: Uint8Array): readonly [number, number] {
  const from = random.integer(bytes.length + 1);
  return [from, Math.min(bytes.length, from + random.integer(random.integer(4) === 0 ? maxRunBytes : 32))];
}

function insert(random: Random, bytes: Uint8Array, piece: Uint8Array): Uint8Array<ArrayBuffer> {
  const at = random.integer(bytes.length + 1);
  return joined(bytes.subarray(0, at), piece, bytes.subarray(at));
}

function joined(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const randomBytes = (random: Random, length: number): Uint8Array<ArrayBuffer> =>
  Uint8Array.from({ length }, () => random.integer(256));

/** Values that JSON readers mishandle. */
const oddValues: readonly unknown[] = [
  ...[
    null,
    true,
    false,
    0,
    -1,
    1.5,
    1e308,
    -1e-308,
    2 ** 53 + 2,
    "",
    "x",
    "\ud800",
    "\u0000\r\n",
    [],
    {},
    [[]],
    [null],
  ],
  ...[{ "": {} }, { constructor: 1 }, JSON.parse('{"__proto__":{"a":1}}'), "9".repeat(400), "a".repeat(2_000)],
  ...[Array.from({ length: 300 }, (_, at) => at)],
];

/**
 * Mutates values of a JSON text, which stays JSON: values are replaced, copied or removed.
 *
 * @returns undefined when the bytes are no JSON, or hold no object and no list
 */
function mutateJson(random: Random, bytes: Uint8Array): Uint8Array<ArrayBuffer> | undefined {
  const root = parsed(bytes);
  if (typeof root !== "object" || root === null) return undefined;
  for (let change = 1 + random.integer(3); change > 0; change--) changeOne(random, root);
  return new TextEncoder().encode(JSON.stringify(root));
}

function parsed(bytes: Uint8Array): unknown {
  if (bytes[0] !== 0x7b && bytes[0] !== 0x5b) return undefined;
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}

type Container = Record<string, unknown>;

function changeOne(random: Random, root: object): void {
  const path: Container[] = [root as Container];
  for (;;) {
    const container = path.at(-1)!;
    const keys = Object.keys(container);
    if (keys.length === 0) return;
    const key = keys[random.integer(keys.length)]!;
    const value = container[key];
    if (typeof value === "object" && value !== null && random.integer(4) > 0) {
      path.push(value as Container);
      continue;
    }
    const action = random.integer(6);
    if (action === 0) delete container[key];
    else if (action === 1) container[`${key}${random.integer(10)}`] = structuredClone(value);
    else container[key] = structuredClone(oddValues[random.integer(oddValues.length)]);
    return;
  }
}
