import { UsageError } from "./usage-error.ts";

/**
 * Reads a whole number that a flag gives.
 *
 * @param text undefined when the flag is absent
 * @param range.standard what it then is
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
