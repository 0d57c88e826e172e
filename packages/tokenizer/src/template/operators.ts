import { compareValues, contains, equals } from "./compare.ts";
import { maxListLength, maxTextChars } from "./limits.ts";
import { type Arithmetic, arithmetic } from "./numbers.ts";
import type { Evaluate } from "./runtime.ts";
import { formatPercent } from "./string-format.ts";
import { valueError } from "./template-error.ts";
import { checkLength, isInt, isTrue, PyTuple, typeName, type Value } from "./values.ts";
import { textOf } from "./write.ts";

type Operator = (left: Evaluate, right: Evaluate) => Evaluate;

/** What the operator does with two operands that are not evaluated yet; undefined for one that Jinja2 does not have. */
export function operatorNamed(name: string): Operator | undefined {
  return Object.hasOwn(operators, name) ? operators[name] : undefined;
}

const eager =
  (apply: (left: Value, right: Value) => Value): Operator =>
  (left, right) =>
  (frame) =>
    apply(left(frame), right(frame));

const ordered = (name: string, holds: (order: number) => boolean): Operator =>
  eager((left, right) => {
    if (left === undefined || right === undefined) throw unsupported(name, left, right);
    return holds(compareValues(left, right, name));
  });

const numeric = (name: Arithmetic): Operator =>
  eager((left, right) => {
    const result = arithmetic(name, left, right);
    if (result === undefined) throw unsupported(name, left, right);
    return result;
  });

function unsupported(operator: string, left: Value, right: Value): Error {
  if (left === undefined || right === undefined) return valueError(`an operand of ${operator} is undefined`);
  return valueError(`unsupported operand type(s) for ${operator}: '${typeName(left)}' and '${typeName(right)}'`);
}

const operators: Readonly<Record<string, Operator>> = {
  and: (left, right) => (frame) => {
    const value = left(frame);
    return isTrue(value) ? right(frame) : value;
  },
  or: (left, right) => (frame) => {
    const value = left(frame);
    return isTrue(value) ? value : right(frame);
  },
  "==": eager((left, right) => equals(left, right)),
  "!=": eager((left, right) => !equals(left, right)),
  "<": ordered("<", (order) => order < 0),
  ">": ordered(">", (order) => order > 0),
  "<=": ordered("<=", (order) => order <= 0),
  ">=": ordered(">=", (order) => order >= 0),
  in: eager((left, right) => contains(right, left)),
  "not in": eager((left, right) => !contains(right, left)),
  "+": eager(add),
  "-": numeric("-"),
  "*": eager(multiply),
  "/": numeric("/"),
  "//": numeric("//"),
  "**": numeric("**"),
  "%": eager((left, right) => {
    if (typeof left === "string") return formatPercent(left, right);
    const result = arithmetic("%", left, right);
    if (result === undefined) throw unsupported("%", left, right);
    return result;
  }),
  "~": eager((left, right) => joinText(textOf(left), textOf(right))),
};

function joinText(left: string, right: string): string {
  checkLength(left.length + right.length, maxTextChars);
  return left + right;
}

function add(left: Value, right: Value): Value {
  if (typeof left === "string" && typeof right === "string") return joinText(left, right);
  if (Array.isArray(left) && Array.isArray(right) && left instanceof PyTuple === right instanceof PyTuple) {
    checkLength(left.length + right.length, maxListLength);
    return left instanceof PyTuple ? PyTuple.ofItems([...left, ...right]) : [...left, ...right];
  }
  const result = arithmetic("+", left, right);
  if (result === undefined) throw unsupported("+", left, right);
  return result;
}

function multiply(left: Value, right: Value): Value {
  const [sequence, count] = isInt(left) ? [right, left] : [left, right];
  if (isInt(count) && (typeof sequence === "string" || Array.isArray(sequence))) {
    const times = Math.max(0, Number(count));
    checkLength(sequence.length * times, typeof sequence === "string" ? maxTextChars : maxListLength);
    if (typeof sequence === "string") return sequence.repeat(times);
    const items = Array.from({ length: times }, () => Array.from(sequence as readonly Value[])).flat(1);
    return sequence instanceof PyTuple ? PyTuple.ofItems(items) : items;
  }
  const result = arithmetic("*", left, right);
  if (result === undefined) throw unsupported("*", left, right);
  return result;
}
