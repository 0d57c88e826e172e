import { LoopState } from "./access.ts";
import { arithmetic } from "./numbers.ts";
import { valueError } from "./template-error.ts";
import {
  Callable,
  compareValues,
  contains,
  equals,
  isDict,
  isFloat,
  isInt,
  isNumeric,
  type Keywords,
  LazySequence,
  typeName,
  type Value,
} from "./values.ts";
import { textOf } from "./write.ts";

/** A test: the operand before `is`, then the test's arguments. */
export type Test = (value: Value, args: readonly Value[], keywords: Keywords) => boolean;

/** The test of that name, or undefined when there is none. */
export function testNamed(name: string): Test | undefined {
  return Object.hasOwn(tests, name) ? tests[name] : undefined;
}

const plain =
  (test: (value: Value) => boolean): Test =>
  (value) =>
    test(value);

const comparison =
  (operator: string, holds: (order: number) => boolean): Test =>
  (value, [other]) =>
    holds(compareValues(value, other, operator));

const isEqual: Test = (value, [other]) => equals(value, other);
const isNotEqual: Test = (value, [other]) => !equals(value, other);
const isAbove = comparison(">", (order) => order > 0);
const isAtLeast = comparison(">=", (order) => order >= 0);
const isBelow = comparison("<", (order) => order < 0);
const isAtMost = comparison("<=", (order) => order <= 0);

function remainder(value: Value, divisor: Value): Value {
  const rest = arithmetic("%", value, divisor);
  if (rest === undefined) throw valueError(`unsupported operand type(s) for %: '${typeName(value)}'`);
  return rest;
}

const isSequence = (value: Value): boolean =>
  typeof value === "string" || Array.isArray(value) || isDict(value) || value === undefined;

/** Whether a text has letters and all of them are of one case. */
const isOfCase =
  (convert: (text: string) => string): Test =>
  (value) => {
    const text = textOf(value);
    return /\p{Cased}/u.test(text) && convert(text) === text;
  };

const tests: Readonly<Record<string, Test>> = {
  defined: plain((value) => value !== undefined),
  undefined: plain((value) => value === undefined),
  none: plain((value) => value === null),
  boolean: plain((value) => typeof value === "boolean"),
  true: plain((value) => value === true),
  false: plain((value) => value === false),
  string: plain((value) => typeof value === "string"),
  number: plain(isNumeric),
  integer: plain((value) => isInt(value) && typeof value !== "boolean"),
  float: plain(isFloat),
  mapping: plain(isDict),
  // Jinja2's undefined has a length and can be indexed, as far as Python can tell.
  sequence: plain(isSequence),
  iterable: plain((value) => isSequence(value) || value instanceof LazySequence || value instanceof LoopState),
  callable: plain((value) => value instanceof Callable || value === undefined),
  escaped: plain(() => false),
  odd: plain((value) => equals(remainder(value, 2), 1)),
  even: plain((value) => equals(remainder(value, 2), 0)),
  divisibleby: (value, [divisor]) => equals(remainder(value, divisor), 0),
  lower: isOfCase((text) => text.toLowerCase()),
  upper: isOfCase((text) => text.toUpperCase()),
  sameas: (value, [other]) => value === other,
  in: (value, [container]) => contains(container, value),
  eq: isEqual,
  equalto: isEqual,
  "==": isEqual,
  ne: isNotEqual,
  "!=": isNotEqual,
  gt: isAbove,
  greaterthan: isAbove,
  ">": isAbove,
  ge: isAtLeast,
  ">=": isAtLeast,
  lt: isBelow,
  lessthan: isBelow,
  "<": isBelow,
  le: isAtMost,
  "<=": isAtMost,
};
