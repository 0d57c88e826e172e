import { floatText, intText, smallest } from "./numbers.ts";
import { limitError, maxTextChars, maxValueDepth, valueError } from "./template-error.ts";
import {
  checkLength,
  compareValues,
  type Dict,
  dictEntries,
  floatValue,
  isDict,
  isFloat,
  isInt,
  Markup,
  toDouble,
  typeName,
  type Value,
} from "./values.ts";

/**
 * `json.loads`. Preserves what `JSON.parse` loses and a template can print: `1.0` stays a float, large integers stay
 * exact, and keys that look like numbers keep their position.
 *
 * @returns undefined when the text is not JSON, nests too deep, or is not what Python reads
 */
export function readJson(text: string): { readonly value: Value } | undefined {
  // JSON.parse is far faster, and its result is the same for such texts.
  if (!needsCare.test(text)) {
    try {
      return { value: JSON.parse(text) as unknown };
    } catch {
      return undefined;
    }
  }
  const reader: Reader = { text, position: 0 };
  try {
    const value = readValue(reader, 0);
    skipSpace(reader);
    return reader.position === text.length ? { value } : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Numbers other than short integers, Python's own constants, and keys that start with a digit. */
const needsCare = /\d[.eE]|\d{16}|NaN|Infinity|"\d+"\s*:/;

interface Reader {
  readonly text: string;
  position: number;
}

const space = /[ \t\n\r]*/y;
const number = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const string = /"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"/y;

const words: readonly (readonly [string, Value])[] = [
  ["true", true],
  ["false", false],
  ["null", null],
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["-Infinity", Number.NEGATIVE_INFINITY],
];

function readValue(reader: Reader, depth: number): Value {
  if (depth > maxValueDepth) throw new SyntaxError("nests too deep");
  skipSpace(reader);
  const first = reader.text[reader.position];
  if (first === "{") return readObject(reader, depth);
  if (first === "[") return readArray(reader, depth);
  if (first === '"') return readString(reader);
  for (const [word, value] of words) {
    if (!reader.text.startsWith(word, reader.position)) continue;
    reader.position += word.length;
    return value;
  }
  return readNumber(reader);
}

/** A plain object, unless it has keys that JavaScript would move to the front. */
function readObject(reader: Reader, depth: number): Dict {
  const object = new Map<string, Value>();
  reader.position++;
  if (take(reader, "}")) return {};
  do {
    skipSpace(reader);
    const key = readString(reader);
    expect(reader, ":");
    object.set(key, readValue(reader, depth + 1));
  } while (take(reader, ","));
  expect(reader, "}");
  return [...object.keys()].some((key) => /^\d+$/.test(key)) ? object : Object.fromEntries(object);
}

function readArray(reader: Reader, depth: number): Value[] {
  const array: Value[] = [];
  reader.position++;
  if (take(reader, "]")) return array;
  do array.push(readValue(reader, depth + 1));
  while (take(reader, ","));
  expect(reader, "]");
  return array;
}

function readString(reader: Reader): string {
  return JSON.parse(match(reader, string)[0]) as string;
}

function readNumber(reader: Reader): Value {
  const { 0: digits, 1: fraction, 2: exponent } = match(reader, number);
  if (fraction !== undefined || exponent !== undefined) return floatValue(Number(digits));
  return Number.isSafeInteger(Number(digits)) ? Number(digits) : smallest(BigInt(digits));
}

function match(reader: Reader, pattern: RegExp): RegExpExecArray {
  pattern.lastIndex = reader.position;
  const found = pattern.exec(reader.text);
  if (!found) throw new SyntaxError(`no JSON at ${reader.position}`);
  reader.position = pattern.lastIndex;
  return found;
}

function skipSpace(reader: Reader): void {
  match(reader, space);
}

function take(reader: Reader, mark: string): boolean {
  skipSpace(reader);
  if (reader.text[reader.position] !== mark) return false;
  reader.position++;
  return true;
}

function expect(reader: Reader, mark: string): void {
  if (!take(reader, mark)) throw new SyntaxError(`no ${mark} at ${reader.position}`);
}

interface JsonStyle {
  /** Text of one level of indentation; absent for one line. */
  readonly indent?: string | undefined;
  readonly itemSeparator: string;
  readonly keySeparator: string;
  readonly sortKeys: boolean;
  readonly ensureAscii: boolean;
}

/** The style of `json.dumps(value, ensure_ascii=False)`, as transformers' `tojson` writes without arguments. */
export const defaultJsonStyle: JsonStyle = {
  itemSeparator: ", ",
  keySeparator: ": ",
  sortKeys: false,
  ensureAscii: false,
};

/**
 * `json.dumps`, without HTML escapes: transformers replaces Jinja2's own filter.
 *
 * @throws TemplateError for a value that JSON cannot express, such as undefined
 */
export function writeJson(value: Value, style: JsonStyle): string {
  const text = write(value, style, "\n", 0);
  checkLength(text.length, maxTextChars);
  return text;
}

function write(value: Value, style: JsonStyle, newline: string, depth: number): string {
  if (typeof value === "string") return writeText(value, style);
  if (value instanceof Markup) return writeText(value.text, style);
  if (value === null) return "null";
  if (typeof value === "boolean") return value ? "true" : "false";
  if (isInt(value)) return intText(value);
  if (isFloat(value)) return writeFloat(toDouble(value));
  if (depth > maxValueDepth) throw limitError("a value exceeds the nesting limit");
  if (Array.isArray(value)) return writeList(value, style, newline, depth);
  if (isDict(value)) return writeDict(value, style, newline, depth);
  throw valueError(`Object of type ${typeName(value)} is not JSON serializable`);
}

function writeText(text: string, style: JsonStyle): string {
  const json = JSON.stringify(text);
  if (!style.ensureAscii) return json;
  return json.replace(/[\x7f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function writeFloat(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  return floatText(value);
}

function writeList(list: readonly Value[], style: JsonStyle, newline: string, depth: number): string {
  if (list.length === 0) return "[]";
  const inner = newline + (style.indent ?? "");
  const lead = style.indent === undefined ? "" : inner;
  let text = "[";
  for (let index = 0; index < list.length; index++) {
    text += (index === 0 ? lead : style.itemSeparator + lead) + write(list[index], style, inner, depth + 1);
  }
  return `${text}${style.indent === undefined ? "" : newline}]`;
}

function writeDict(dict: Dict, style: JsonStyle, newline: string, depth: number): string {
  const entries = dictEntries(dict);
  if (entries.length === 0) return "{}";
  if (style.sortKeys) entries.sort(([a], [b]) => compareValues(a, b));
  const inner = newline + (style.indent ?? "");
  const lead = style.indent === undefined ? "" : inner;
  let text = "{";
  let separator = lead;
  for (const [key, value] of entries) {
    text += separator + writeText(keyText(key), style) + style.keySeparator + write(value, style, inner, depth + 1);
    separator = style.itemSeparator + lead;
  }
  return `${text}${style.indent === undefined ? "" : newline}}`;
}

function keyText(key: Value): string {
  if (typeof key === "string") return key;
  if (key === null) return "null";
  if (typeof key === "boolean") return key ? "true" : "false";
  if (isInt(key)) return intText(key);
  if (isFloat(key)) return writeFloat(toDouble(key));
  throw valueError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}
