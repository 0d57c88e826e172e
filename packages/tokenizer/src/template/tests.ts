import { LoopState } from "./access.ts";
import { lacking } from "./template-error.ts";
import {
  compareValues,
  contains,
  equals,
  isDict,
  isFloat,
  isInt,
  isNumeric,
  type Keywords,
  LazySequence,
  Markup,
  type Value,
} from "./values.ts";

/** A test: the operand before `is`, then the test's arguments. */
export type Test = (value: Value, args: readonly Value[], keywords: Keywords) => boolean;

/** The test of that name. One that is lacking fails when it is used. */
export function testNamed(name: string): Test {
  if (Object.hasOwn(tests, name)) return tests[name]!;
  return () => {
    throw lacking(`the test '${name}'`);
  };
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

const isText = (value: Value): boolean => typeof value === "string" || value instanceof Markup;
const isSequence = (value: Value): boolean =>
  isText(value) || Array.isArray(value) || isDict(value) || value === undefined;

const tests: Readonly<Record<string, Test>> = {
  defined: plain((value) => value !== undefined),
  undefined: plain((value) => value === undefined),
  none: plain((value) => value === null),
  boolean: plain((value) => typeof value === "boolean"),
  true: plain((value) => value === true),
  false: plain((value) => value === false),
  string: plain(isText),
  number: plain(isNumeric),
  integer: plain((value) => isInt(value) && typeof value !== "boolean"),
  float: plain(isFloat),
  mapping: plain(isDict),
  // Jinja2's undefined has a length and can be indexed, as far as Python can tell.
  sequence: plain(isSequence),
  iterable: plain((value) => isSequence(value) || value instanceof LazySequence || value instanceof LoopState),
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
