import { EspalierError } from "@espalier/common";
import type { JsonObject } from "@espalier/json-body";

export interface IntegerRange {
  readonly min: number;
  readonly max: number;
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether a field is present. Null counts as absent, since some clients serialise every optional field. */
export function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/**
 * The string `fields[name]`, or undefined when it is absent, null or empty.
 *
 * @param path the field's name in the error
 * @throws EspalierError `invalid_type`; `invalid_value` beyond `maxLength` UTF-16 units
 */
export function readString(fields: JsonObject, name: string, maxLength: number, path = name): string | undefined {
  const value = fields[name];
  if (!isPresent(value)) return undefined;
  if (typeof value !== "string") throw invalidType(path, "a string");
  if (value.length > maxLength) throw invalidValue(path, `at most ${maxLength} characters long`);
  return value === "" ? undefined : value;
}

/**
 * The boolean `fields[name]`; false when it is absent or null.
 *
 * @throws EspalierError `invalid_type`
 */
export function readBoolean(fields: JsonObject, name: string, path = name): boolean {
  const value = fields[name];
  if (!isPresent(value)) return false;
  if (typeof value !== "boolean") throw invalidType(path, "a boolean");
  return value;
}

/**
 * The integer `fields[name]`, or undefined when it is absent or null.
 *
 * @throws EspalierError `invalid_type` when it is not a number, `invalid_value` when it is no integer in the range
 */
export function readInteger(
  fields: JsonObject,
  name: string,
  range: IntegerRange,
  path: string = name,
): number | undefined {
  const value = fields[name];
  if (!isPresent(value)) return undefined;
  if (typeof value !== "number") throw invalidType(path, "an integer");
  if (!Number.isInteger(value) || value < range.min || value > range.max) {
    throw invalidValue(path, `an integer from ${range.min} to ${range.max}`);
  }
  return value;
}

/**
 * The object `fields[name]`, or undefined when it is absent or null.
 *
 * @throws EspalierError `invalid_type`
 */
export function readObject(fields: JsonObject, name: string): JsonObject | undefined {
  const value = fields[name];
  if (!isPresent(value)) return undefined;
  if (!isJsonObject(value)) throw invalidType(name, "an object");
  return value;
}

export function invalidType(path: string, expected: string): EspalierError {
  return new EspalierError("invalid_type", `${path} must be ${expected}.`, { param: path });
}

export function invalidValue(path: string, expected: string): EspalierError {
  return new EspalierError("invalid_value", `${path} must be ${expected}.`, { param: path });
}

export function missingField(path: string): EspalierError {
  return new EspalierError("missing_field", `${path} is required.`, { param: path });
}
