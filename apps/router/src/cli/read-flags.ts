import { readFileSync } from "node:fs";
import { didYouMean, parseDuration } from "@espalier/core";
import { InvalidArgumentError, type Option } from "commander";

/** The command was called incorrectly: its message goes to standard error and the exit code is 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/**
 * Reads a number from the command line.
 *
 * @throws UsageError when it is not a number in the range
 */
export function readNumber(
  text: string,
  name: string,
  range: { readonly min: number; readonly max: number; readonly integer?: boolean },
): number {
  const value = Number(text);
  const fits = text.trim() !== "" && value >= range.min && value <= range.max;
  if (fits && (!range.integer || Number.isInteger(value))) return value;
  const kind = range.integer ? "a whole number" : "a number";
  throw new UsageError(`${name} must be ${kind} from ${range.min} to ${range.max}, not ${JSON.stringify(text)}`);
}

/**
 * Reads a whole number from 1 to `max`.
 *
 * @throws UsageError for anything else
 */
export function readCount(text: string, name: string, max: number): number {
  return readNumber(text, name, { min: 1, max, integer: true });
}

/** Node's timers count in 32 bits. */
const maxDurationMs = 2 ** 31 - 1;

/**
 * Reads a duration such as `500ms`, `30s` or `2m`.
 *
 * @returns milliseconds, at most 24 days
 * @throws UsageError for anything else, or a longer duration
 */
export function readDurationMs(text: string, name: string): number {
  const durationMs = parseDuration(text);
  if (durationMs === undefined) {
    throw new UsageError(`${name} must be a length of time such as 500ms, 30s or 2m, not ${JSON.stringify(text)}`);
  }
  if (durationMs > maxDurationMs) throw new UsageError(`${name} must be at most 24 days, not ${JSON.stringify(text)}`);
  return durationMs;
}

/**
 * Reads the URL of an endpoint that receives a load.
 *
 * @throws UsageError when it is not `http://host` or `http://host:port`
 */
export function readEndpointUrl(text: string, name: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "http:" && url.href === `${url.origin}/`) return url.origin;
  throw new UsageError(
    `${name} must be a URL such as http://127.0.0.1:8000, without a path, not ${JSON.stringify(text)}`,
  );
}

/**
 * Reads one of several names.
 *
 * @throws UsageError that lists them, with the likely intended one
 */
export function readName<Name extends string>(written: string, flag: string, names: readonly Name[]): Name {
  const name = names.find((known) => known === written);
  if (name !== undefined) return name;
  throw new UsageError(
    `${flag}: ${JSON.stringify(written)} is not one of ${names.join(", ")}${didYouMean(written, names)}`,
  );
}

/** Restricts a flag to one of several names; for another value it suggests the likely intended one. */
export function oneOf(option: Option, names: readonly string[]): Option {
  return option.choices(names).argParser((written: string) => {
    if (names.includes(written)) return written;
    throw new InvalidArgumentError(`Allowed choices are ${names.join(", ")}${didYouMean(written, names)}`);
  });
}

const standardInput = 0;

/**
 * Reads a file, or standard input for `-`.
 *
 * @param shown names it in the error
 * @throws UsageError when it cannot be read
 */
export function readInput(file: string, shown: string): string {
  try {
    return readFileSync(file === "-" ? standardInput : file, "utf8");
  } catch (error) {
    throw new UsageError(`${shown} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Parser for a repeatable flag: each value is appended to the earlier ones. */
export const collect = (value: string, earlier: readonly string[] = []): readonly string[] => [...earlier, value];
