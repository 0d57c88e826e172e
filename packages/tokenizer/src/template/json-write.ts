import { compareValues } from "./compare.ts";
import { maxTextChars, maxValueDepth } from "./limits.ts";
import { floatText, intText } from "./numbers.ts";
import { limitError, valueError } from "./template-error.ts";
import {
  checkLength,
  type Dict,
  dictEntries,
  isDict,
  isFloat,
  isInt,
  toDouble,
  typeName,
  type Value,
} from "./values.ts";

export interface JsonStyle {
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
 * `json.dumps`: no HTML escapes, unlike Jinja2's own filter, because transformers replaces it.
 *
 * @throws TemplateError for a value that JSON has no word for, such as undefined
 */
export function writeJson(value: Value, style: JsonStyle): string {
  const text = write(value, style, "\n", 0);
  checkLength(text.length, maxTextChars);
  return text;
}

function write(value: Value, style: JsonStyle, newline: string, depth: number): string {
  if (typeof value === "string") return writeText(value, style);
  if (value === null) return "null";
  if (typeof value === "boolean") return value ? "true" : "false";
  if (isInt(value)) return intText(value);
  if (isFloat(value)) return writeFloat(toDouble(value));
  if (depth > maxValueDepth) throw limitError("a value nests deeper than the bound");
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
