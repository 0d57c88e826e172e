import { UsageError } from "./usage-error.ts";

/**
 * Reads a flag's whole number.
 *
 * @param text undefined when the flag is absent
 * @param range.standard the value of an absent flag
 * @param range.max the highest; the lowest is 1
 * @throws UsageError naming the flag
 */
export function readWhole(
  flag: string,
  text: string | undefined,
  range: { readonly standard: number; readonly max: number },
): number {
  if (text === undefined) return range.standard;
  const value = Number(text);
  if (text.trim() !== "" && Number.isInteger(value) && value >= 1 && value <= range.max) return value;
  throw new UsageError(`${flag} must be a whole number from 1 to ${range.max}`);
}

const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const;

/**
 * Reads a flag's time, such as `500ms`, `90s`, `30m` or `1h`.
 *
 * @param text undefined when the flag is absent
 * @param range.standard the value of an absent flag
 * @param range.max the longest; the shortest is a millisecond
 * @returns milliseconds
 * @throws UsageError naming the flag
 */
export function readDurationMs(
  flag: string,
  text: string | undefined,
  range: { readonly standard: string; readonly max: string },
): number {
  const valueMs = parseDuration(text ?? range.standard);
  if (valueMs >= 1 && valueMs <= parseDuration(range.max)) return valueMs;
  throw new UsageError(`${flag} must be a time such as 90s, 30m or 1h, at most ${range.max}`);
}

/** @returns milliseconds; NaN when the text is no time */
function parseDuration(text: string): number {
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text) ?? [];
  return Number(number) * unitMs[unit as keyof typeof unitMs];
}

/**
 * Reads a flag's number above 0.
 *
 * @param text undefined when the flag is absent
 * @param range.standard the value of an absent flag
 * @param range.max the highest
 * @throws UsageError naming the flag
 */
export function readPositive(
  flag: string,
  text: string | undefined,
  range: { readonly standard: number; readonly max: number },
): number {
  const value = text === undefined ? range.standard : Number(text);
  if (value > 0 && value <= range.max) return value;
  throw new UsageError(`${flag} must be a number above 0 and at most ${range.max}`);
}
