import { type Filter, filterOf } from "./filter.ts";
import { roundHalfEven, sign, smallest } from "./numbers.ts";
import { valueError } from "./template-error.ts";
import { strip } from "./text.ts";
import {
  floatValue,
  intArgument,
  isInt,
  isNumeric,
  isTrue,
  PyFloat,
  toDouble,
  typeName,
  type Value,
} from "./values.ts";

const floatSyntax = /^[+-]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?$/;
const specialFloats: Readonly<Record<string, number>> = {
  inf: Number.POSITIVE_INFINITY,
  infinity: Number.POSITIVE_INFINITY,
  nan: Number.NaN,
};

/** `float(text)`, or undefined when Python would not read it. */
function parseFloatText(text: string): number | undefined {
  const trimmed = strip(text, null, "both");
  if (floatSyntax.test(trimmed)) return Number(trimmed.replaceAll("_", ""));
  const word = trimmed.toLowerCase().replace(/^[+-]/, "");
  if (!Object.hasOwn(specialFloats, word)) return undefined;
  return trimmed.startsWith("-") ? -specialFloats[word]! : specialFloats[word];
}

/** `int(text, base)`, or undefined when Python would not read it. */
function parseIntText(text: string, base: number): number | bigint | undefined {
  const trimmed = strip(text, null, "both")
    .toLowerCase()
    .replaceAll(/(?<=[0-9a-z])_(?=[0-9a-z])/g, "");
  const negative = trimmed.startsWith("-");
  let digits = trimmed.replace(/^[+-]/, "");
  for (const [prefix, radix] of [
    ["0x", 16],
    ["0o", 8],
    ["0b", 2],
  ] as const) {
    if (base === radix && digits.startsWith(prefix)) digits = digits.slice(2);
  }
  if (digits === "") return undefined;
  let value = 0n;
  for (const digit of digits) {
    const worth = Number.parseInt(digit, 36);
    if (Number.isNaN(worth) || worth >= base) return undefined;
    value = value * BigInt(base) + BigInt(worth);
  }
  return smallest(negative ? -value : value);
}

/** Digits of the longest text that `int` reads; Python's own bound. */
const maxIntDigits = 4300;

const toInt = filterOf("int", ["default", "base"], (value, [otherwise = 0, base = 10]) => {
  if (typeof value === "string") {
    const whole = value.length > maxIntDigits ? undefined : parseIntText(value, intArgument(base, "base"));
    if (whole !== undefined) return whole;
    const float = parseFloatText(value);
    return float === undefined || !Number.isFinite(float) ? otherwise : truncated(float);
  }
  if (value === undefined) throw valueError("int of an undefined value");
  if (!isNumeric(value)) return otherwise;
  if (typeof value === "bigint") return value;
  const double = toDouble(value);
  return Number.isFinite(double) ? truncated(double) : otherwise;
});

const truncated = (value: number): number | bigint => smallest(BigInt(Math.trunc(value)));

const toFloat = filterOf("float", ["default"], (value, [otherwise = new PyFloat(0)]) => {
  if (value === undefined) throw valueError("float of an undefined value");
  if (isNumeric(value)) return floatValue(toDouble(value));
  const float = typeof value === "string" ? parseFloatText(value) : undefined;
  return float === undefined ? otherwise : floatValue(float);
});

const round = filterOf("round", ["precision", "method"], (value, [precision = 0, method = "common"]) => {
  if (method !== "common" && method !== "ceil" && method !== "floor") {
    throw valueError("method must be common, ceil or floor");
  }
  if (!isNumeric(value)) throw valueError(`type ${typeName(value)} doesn't define __round__ method`);
  const digits = intArgument(precision, "precision");
  if (method === "common") {
    if (isInt(value))
      return digits >= 0
        ? typeof value === "boolean"
          ? Number(value)
          : value
        : roundHalfEven(Number(value), digits) + 0;
    return floatValue(roundHalfEven(toDouble(value), digits));
  }
  const power = 10 ** digits;
  const scaled = toDouble(value) * power;
  // Python's ceil and floor give ints, whose zero has no sign.
  return floatValue(((method === "ceil" ? Math.ceil(scaled) : Math.floor(scaled)) + 0) / power);
});

/** Filters over numbers, and `default`. */
export const numberFilters: Readonly<Record<string, Filter>> = {
  int: toInt,
  float: toFloat,
  round,
  abs: filterOf("abs", [], (value) => {
    if (!isNumeric(value)) throw valueError(`bad operand type for abs(): '${typeName(value)}'`);
    return toDouble(value) < 0 || Object.is(toDouble(value), -0) ? sign("-", value) : sign("+", value);
  }),
  default: filterOf("default", ["default_value", "boolean"], orDefault),
  d: filterOf("default", ["default_value", "boolean"], orDefault),
};

function orDefault(value: Value, [otherwise = "", boolean = false]: readonly Value[]): Value {
  return value === undefined || (isTrue(boolean) && !isTrue(value)) ? otherwise : value;
}
