import { isJsonObject, type JsonObject } from "@espalier/core";
import { missingField, wrongField } from "./exchange.ts";

/** Clients may send null for an absent field. */
const given = (body: JsonObject, name: string): unknown => body[name] ?? undefined;

/**
 * Engines read bodies with pydantic in its lax mode: a number may be a string, a boolean a word or a number
 * (https://docs.pydantic.dev/latest/concepts/conversion_table/).
 */
function laxNumber(value: unknown): unknown {
  const isNumeric = typeof value === "string" && /^\s*[+-]?\d+(_\d+)*(\.\d+)?\s*$/.test(value);
  return isNumeric ? Number(value.replaceAll("_", "")) : value;
}

const laxBooleans: Readonly<Record<string, boolean>> = {
  ...{ "1": true, true: true, t: true, yes: true, y: true, on: true },
  ...{ "0": false, false: false, f: false, no: false, n: false, off: false },
};

/** @throws ApiError 400 when the field is present and not a number from `min` to `max` */
export function optionalNumber(body: JsonObject, name: string, min: number, max: number): number | undefined {
  const value = laxNumber(given(body, name));
  if (value === undefined) return undefined;
  if (typeof value === "number" && value >= min && value <= max) return value;
  throw wrongField(name, `a number from ${min} to ${max}`);
}

/** @throws ApiError 400 when the field is present and not a whole number from `min` to `max` */
export function optionalInteger(body: JsonObject, name: string, min: number, max: number): number | undefined {
  const value = laxNumber(given(body, name));
  if (value === undefined) return undefined;
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  throw wrongField(name, `a whole number from ${min} to ${max}`);
}

/** @throws ApiError 400 when the field is present and not a boolean */
export function optionalBoolean(body: JsonObject, name: string): boolean | undefined {
  const value = given(body, name);
  if (value === undefined) return undefined;
  const read = ["string", "number", "boolean"].includes(typeof value) ? String(value).toLowerCase() : "";
  if (Object.hasOwn(laxBooleans, read)) return laxBooleans[read];
  throw wrongField(name, "a boolean");
}

/** @throws ApiError 400 when the field is present and not a string */
export function optionalString(body: JsonObject, name: string): string | undefined {
  const value = given(body, name);
  if (value === undefined || typeof value === "string") return value;
  throw wrongField(name, "a string");
}

/** @throws ApiError 400 when the field is present and not an object */
export function optionalObject(body: JsonObject, name: string): JsonObject | undefined {
  const value = given(body, name);
  if (value === undefined || isJsonObject(value)) return value;
  throw wrongField(name, "an object");
}

/** @throws ApiError 400 when the field is absent */
export function required<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw missingField(name);
  return value;
}

/** The JSON of a field for the prompt; undefined when it is absent or an empty list. */
export function jsonText(value: unknown): string | undefined {
  if (value === undefined || value === null || (Array.isArray(value) && value.length === 0)) return undefined;
  return JSON.stringify(value);
}

/** Texts or token lists that one request may hold. */
export const maxInputs = 256;

/**
 * One text or a list of texts.
 *
 * @throws ApiError 400 when it is absent, of another type, or longer than `maxInputs`
 */
export function textList(body: JsonObject, name: string): readonly string[] {
  const value = required(given(body, name), name);
  const list = typeof value === "string" ? [value] : value;
  if (Array.isArray(list) && list.length > 0 && list.length <= maxInputs && list.every(isText)) return list;
  throw wrongField(name, `a string or a list of 1 to ${maxInputs} strings`);
}

const isText = (value: unknown): value is string => typeof value === "string";

/** @returns undefined when the value is not a list of token ids */
export function tokenIds(value: unknown): Uint32Array | undefined {
  if (!Array.isArray(value) || value.length === 0) return undefined;
  const tokens = new Uint32Array(value.length);
  for (const [at, id] of value.entries()) {
    if (typeof id !== "number" || id !== id >>> 0) return undefined;
    tokens[at] = id;
  }
  return tokens;
}

/** Fields with numbers of up to 19 digits, beyond JavaScript's safe integers. */
const longIntegerFields = "bootstrap_room|ctx_request_id|disagg_request_id";

/**
 * Quotes the long numbers of these fields, so that parsing keeps every digit. Only keys match: inside a string the quotes
 * around a name are escaped.
 */
export function quoteLongIntegers(json: string): string {
  return json.replace(new RegExp(`"(${longIntegerFields})"(\\s*:\\s*)(\\d{16,})(?=\\s*[,}])`, "g"), '"$1"$2"$3"');
}

const sources = new WeakMap<JsonObject, string>();

/** Remembers the text that a body was read from, since `JSON.parse` makes `1` of `1.0`. */
export function keepSource(body: JsonObject, text: string): void {
  sources.set(body, text);
}

export const sourceOf = (body: JsonObject): string | undefined => sources.get(body);

/** Removes the quotes again. */
export function unquoteLongIntegers(json: string): string {
  return json.replace(new RegExp(`"(${longIntegerFields})":"(\\d{16,})"`, "g"), '"$1":$2');
}
