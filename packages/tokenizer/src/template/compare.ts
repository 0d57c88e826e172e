import { maxValueDepth } from "./limits.ts";
import { limitError, valueError } from "./template-error.ts";
import { compareText } from "./text.ts";
import {
  checkHashable,
  dictEntries,
  dictGet,
  dictHas,
  dictSize,
  isDict,
  isNumeric,
  iterate,
  type PyFloat,
  toDouble,
  typeName,
  type Value,
} from "./values.ts";

/** `left == right`: numbers by value, lists and dicts by their elements, the rest by identity. */
export function equals(left: Value, right: Value, depth = 0): boolean {
  if (left === right) return true;
  if (isNumeric(left) && isNumeric(right)) return equalNumbers(left, right);
  if (typeof left !== "object" || typeof right !== "object" || left === null || right === null) return false;
  if (depth > maxValueDepth) throw limitError("a value nests deeper than the bound");
  if (Array.isArray(left)) {
    if (!Array.isArray(right) || left.length !== right.length || isTuple(left) !== isTuple(right)) return false;
    return left.every((item, index) => equals(item, right[index], depth + 1));
  }
  if (!isDict(left) || !isDict(right) || dictSize(left) !== dictSize(right)) return false;
  return dictEntries(left).every(
    ([key, value]) => dictHas(right, key) && equals(value, dictGet(right, key), depth + 1),
  );
}

const isTuple = (list: object): boolean => list.constructor !== Array;

function equalNumbers(left: number | bigint | boolean | PyFloat, right: number | bigint | boolean | PyFloat): boolean {
  if (typeof left === "bigint") return equalsBigInt(left, right);
  if (typeof right === "bigint") return equalsBigInt(right, left);
  return toDouble(left) === toDouble(right);
}

function equalsBigInt(left: bigint, right: number | bigint | boolean | PyFloat): boolean {
  if (typeof right === "bigint") return left === right;
  const double = toDouble(right);
  return Number.isInteger(double) && BigInt(double) === left;
}

/**
 * The order of two values: below 0, 0 or above 0; NaN when neither is below the other.
 *
 * @throws TemplateError when Python has no order for them
 */
export function compareValues(left: Value, right: Value, operator = "<"): number {
  if (typeof left === "string" && typeof right === "string") return compareText(left, right);
  if (isNumeric(left) && isNumeric(right)) {
    if (typeof left === "bigint" || typeof right === "bigint") {
      const a = typeof left === "bigint" ? left : toDouble(left);
      const b = typeof right === "bigint" ? right : toDouble(right);
      return a < b ? -1 : a > b ? 1 : 0;
    }
    return toDouble(left) - toDouble(right);
  }
  if (Array.isArray(left) && Array.isArray(right) && isTuple(left) === isTuple(right)) {
    for (let index = 0; index < Math.min(left.length, right.length); index++) {
      if (!equals(left[index], right[index])) return compareValues(left[index], right[index], operator);
    }
    return left.length - right.length;
  }
  throw valueError(`'${operator}' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`);
}

/**
 * `item in container`.
 *
 * @throws TemplateError when the container is none
 */
export function contains(container: Value, item: Value): boolean {
  if (typeof container === "string") {
    if (typeof item === "string") return container.includes(item);
    throw valueError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
  }
  if (Array.isArray(container)) {
    return container.some((candidate) => candidate === item || equals(candidate, item));
  }
  if (isDict(container)) {
    checkHashable(item);
    return dictHas(container, item);
  }
  if (container === null || isNumeric(container)) {
    throw valueError(`argument of type '${typeName(container)}' is not iterable`);
  }
  return iterate(container).some((candidate) => equals(candidate, item));
}
