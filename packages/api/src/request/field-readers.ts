import { EspalierError } from "@espalier/core";

/*
 * Readers of single values. vLLM and SGLang read bodies with pydantic in its lax mode
 * (https://docs.pydantic.dev/latest/concepts/conversion_table/), so a number may be a string and a boolean a word. These
 * readers take whatever pydantic takes. What they cannot read is undefined, and the engine judges it.
 */

/** A string that is not empty. No engine takes another type for a string. */
export function readText(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Words for booleans, in any case. */
const booleanWords: ReadonlyMap<string, boolean> = new Map([
  ...["true", "t", "yes", "y", "on", "1"].map((word) => [word, true] as const),
  ...["false", "f", "no", "n", "off", "0"].map((word) => [word, false] as const),
]);

/** `true`, 1, or a word for it; the same for false. */
export function readBoolean(value: unknown): boolean | undefined {
  if (typeof value === "boolean") return value;
  return typeof value === "string" || typeof value === "number"
    ? booleanWords.get(String(value).toLowerCase())
    : undefined;
}

/** Digits, perhaps grouped by underscores, with a sign, a fraction of zeros, and white space around. */
const integerText = /^\s*([+-]?\d+(?:_\d+)*)(?:\.0+)?\s*$/;

/** A number without a fraction, its digits as a string, or a boolean as 1 or 0. Infinite beyond what a double holds. */
export function readInteger(value: unknown): number | undefined {
  if (typeof value === "boolean") return Number(value);
  const digits = typeof value === "string" ? integerText.exec(value)?.[1]?.replaceAll("_", "") : undefined;
  const number = digits === undefined ? value : Number(digits);
  return typeof number === "number" && Math.trunc(number) === number ? number : undefined;
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
