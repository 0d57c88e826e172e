import { Type } from "typebox";
import { durationPattern, formatDuration, formatSize, parseDuration, parseSize, sizePattern } from "../units.ts";

export type LeafKind = "text" | "boolean" | "integer" | "number" | "duration" | "size";

/** What the schema of a single value says beyond JSON Schema, under the key `espalier`. */
export interface LeafNotes {
  readonly kind: LeafKind;
  /** Completes "X is not ...". */
  readonly expected: string;
  /** The value must not be shown. */
  readonly isSecret?: boolean;
}

interface LeafOptions<Value> {
  readonly description: string;
  readonly default?: Value;
}

interface TextOptions extends LeafOptions<string> {
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly expected?: string;
  readonly isSecret?: boolean;
}

interface RangeOptions<Value> extends LeafOptions<Value> {
  readonly minimum: Value;
  readonly maximum: Value;
}

export function text({ expected, isSecret, ...schema }: TextOptions) {
  const { minLength = 1, maxLength = 1_024 } = schema;
  const inWords = expected ?? `text of ${minLength} to ${maxLength} characters`;
  const espalier: LeafNotes = { kind: "text", expected: inWords, ...(isSecret ? { isSecret } : {}) };
  return Type.Unsafe<string>({ type: "string", minLength, maxLength, ...schema, espalier });
}

/** A path of the local file system. */
export function filePath(description: string) {
  return text({ description, maxLength: 4_096, expected: "the path of a file" });
}

export function choice<const Name extends string>(
  names: readonly Name[],
  options: { readonly description: string; readonly default: Name },
) {
  const espalier: LeafNotes = { kind: "text", expected: `one of ${names.join(", ")}` };
  return Type.Unsafe<Name>({ type: "string", enum: names, ...options, espalier });
}

export function flag(options: LeafOptions<boolean>) {
  const espalier: LeafNotes = { kind: "boolean", expected: "true or false" };
  return Type.Unsafe<boolean>({ type: "boolean", ...options, espalier });
}

export function integer(options: RangeOptions<number>) {
  const expected = `an integer from ${options.minimum} to ${options.maximum}`;
  return Type.Unsafe<number>({ type: "integer", ...options, espalier: { kind: "integer", expected } });
}

/** A number of things, or `auto` to leave it to the machine. */
export function count({ minimum, maximum, ...options }: RangeOptions<number>) {
  const expected = `auto or an integer from ${minimum} to ${maximum}`;
  return Type.Unsafe<number | "auto">({
    anyOf: [
      { type: "string", enum: ["auto"] },
      { type: "integer", minimum, maximum },
    ],
    ...options,
    espalier: { kind: "integer", expected },
  });
}

export function number(options: RangeOptions<number>) {
  const expected = `a number from ${options.minimum} to ${options.maximum}`;
  return Type.Unsafe<number>({ type: "number", ...options, espalier: { kind: "number", expected } });
}

/** Read as milliseconds. Bounds and default are given as people write them. */
export function duration({ minimum, maximum, ...options }: RangeOptions<string>) {
  const bounds = { minimum: parseDuration(minimum) ?? 0, maximum: parseDuration(maximum) ?? 0 };
  const range = `${formatDuration(bounds.minimum)} to ${formatDuration(bounds.maximum)}`;
  return Type.Unsafe<number>({
    anyOf: [
      { type: "string", pattern: durationPattern },
      { type: "number", ...bounds },
    ],
    ...options,
    espalier: { kind: "duration", expected: `a duration from ${range}` },
  });
}

/** Read as bytes. Bounds and default are given as people write them. */
export function size({ minimum, maximum, ...options }: RangeOptions<string>) {
  const bounds = { minimum: parseSize(minimum) ?? 0, maximum: parseSize(maximum) ?? 0 };
  const range = `${formatSize(bounds.minimum)} to ${formatSize(bounds.maximum)}`;
  return Type.Unsafe<number>({
    anyOf: [
      { type: "string", pattern: sizePattern },
      { type: "integer", ...bounds },
    ],
    ...options,
    espalier: { kind: "size", expected: `a size from ${range}` },
  });
}
