import { limitError, valueError } from "./template-error.ts";
import { floatValue, isInt, isNumeric, PyFloat, toDouble, typeName, type Value } from "./values.ts";

export type Arithmetic = "+" | "-" | "*" | "/" | "//" | "%";

/** Bits of the largest int that a template may make. */
const maxIntBits = 4096;

/**
 * Python's arithmetic on numbers: ints stay exact ints, `/` gives a float, `//` and `%` round towards minus infinity.
 *
 * @returns undefined when an operand is no number
 * @throws TemplateError on a division by zero or an int beyond the bound
 */
export function arithmetic(operator: Arithmetic, left: Value, right: Value): Value {
  if (!isNumeric(left) || !isNumeric(right)) return undefined;
  if (isInt(left) && isInt(right) && operator !== "/") {
    const result = onDoubles(operator, Number(left), Number(right));
    const exact = Number.isSafeInteger(Number(left)) && Number.isSafeInteger(Number(right));
    return exact && Number.isSafeInteger(result) ? result + 0 : onBigInts(operator, toBigInt(left), toBigInt(right));
  }
  return floatValue(onDoubles(operator, toDouble(left), toDouble(right)));
}

const toBigInt = (value: number | bigint | boolean): bigint => BigInt(value);

function onDoubles(operator: Arithmetic, left: number, right: number): number {
  switch (operator) {
    case "+":
      return left + right;
    case "-":
      return left - right;
    case "*":
      return left * right;
    default:
      if (right === 0) throw valueError("division by zero");
      if (operator === "/") return left / right;
      if (operator === "//") return floorQuotient(left, right);
      return floorRemainder(left, right);
  }
}

function floorRemainder(left: number, right: number): number {
  const remainder = left % right;
  if (remainder === 0) return right < 0 ? -0 : 0;
  return remainder < 0 !== right < 0 ? remainder + right : remainder;
}

/** The quotient computed from the remainder, as in CPython: the plain quotient may round up to the next integer. */
function floorQuotient(left: number, right: number): number {
  const remainder = left % right;
  const below = remainder !== 0 && remainder < 0 !== right < 0 ? 1 : 0;
  const quotient = (left - remainder) / right - below;
  return quotient === 0 ? Math.sign(left / right) * 0 : Math.round(quotient);
}

function onBigInts(operator: Arithmetic, left: bigint, right: bigint): Value {
  if (operator === "+") return smallest(left + right);
  if (operator === "-") return smallest(left - right);
  if (operator === "*") {
    if (left.toString(2).length + right.toString(2).length > maxIntBits) {
      throw limitError("an int exceeds the renderer's limit");
    }
    return smallest(left * right);
  }
  if (right === 0n) throw valueError("integer division or modulo by zero");
  const quotient = left / right;
  const floored = left % right !== 0n && left < 0n !== right < 0n ? quotient - 1n : quotient;
  return smallest(operator === "//" ? floored : left - floored * right);
}

/** A number if that is exact, else a bigint. */
export function smallest(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/**
 * `-x` and `+x`.
 *
 * @throws TemplateError when it is no number
 */
export function sign(operator: "-" | "+", value: Value): Value {
  if (value instanceof PyFloat) return operator === "-" ? new PyFloat(-value.value) : value;
  if (typeof value === "bigint") return operator === "-" ? smallest(-value) : value;
  if (typeof value !== "number" && typeof value !== "boolean") {
    throw valueError(`bad operand type for unary ${operator}: '${typeName(value)}'`);
  }
  // An int zero has no sign.
  return operator === "-" ? 0 - Number(value) : Number(value);
}

/** `float.__repr__`: the shortest digits, an exponent below 1e-4 and from 1e16 on. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const [mantissa = "", exponent = "0"] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 16) {
    return `${mantissa}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  if (power < 0) {
    const digits = mantissa.replace("-", "").replace(".", "");
    return `${value < 0 ? "-" : ""}0.${"0".repeat(-power - 1)}${digits}`;
  }
  const plain = String(value);
  return plain.includes(".") ? plain : `${plain}.0`;
}

/** An int in decimal. */
export function intText(value: number | bigint | boolean): string {
  if (typeof value === "boolean") return value ? "1" : "0";
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return String(value);
  return BigInt(value).toString();
}
