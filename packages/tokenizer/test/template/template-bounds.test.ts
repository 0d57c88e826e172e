import { expect, test } from "vitest";
import { readJson } from "../../src/template/json.ts";
import {
  maxCallDepth,
  maxListLength,
  maxRangeLength,
  maxTextChars,
  maxValueDepth,
} from "../../src/template/template-error.ts";
import { outcomeOf } from "./tables.ts";

const half = maxTextChars / 2;
const deep = (depth: number): unknown => (depth === 0 ? 1 : [deep(depth - 1)]);
const nested = (depth: number): string => `{% macro m(n) %}{{ m(n - 1) if n > 1 }}{% endmacro %}{{ m(${depth}) }}`;

const variables = { big: new Array<number>(maxListLength - 1).fill(0), large: "x".repeat(half) };

/** What goes on growing: an expression at its bound, the same one past it, and the length that the first has. */
test.each([
  ["a range", `range(${maxRangeLength})|length`, `range(${maxRangeLength + 1})|length`, maxRangeLength],
  [
    "a range between bounds",
    `range(5, ${maxRangeLength + 5})|length`,
    `range(5, ${maxRangeLength + 6})|length`,
    maxRangeLength,
  ],
  [
    "a range downwards",
    `range(${maxRangeLength}, 0, -1)|length`,
    `range(${maxRangeLength}, -1, -1)|length`,
    maxRangeLength,
  ],
  [
    "a range in steps",
    `range(0, ${maxRangeLength * 2}, 2)|length`,
    `range(0, ${maxRangeLength * 2 + 1}, 2)|length`,
    maxRangeLength,
  ],
  ["a repeated list", `([0] * ${maxListLength})|length`, `([0] * ${maxListLength + 1})|length`, maxListLength],
  ["added lists", `(big + [1])|length`, `(big + [1, 2])|length`, maxListLength],
  ["a repeated text", `('ab' * ${half})|length`, `('ab' * ${half + 1})|length`, maxTextChars],
  ["a joined text", `(large ~ large)|length`, `(large ~ large ~ 'x')|length`, maxTextChars],
  ["an added text", `(large + large)|length`, `(large + large + 'x')|length`, maxTextChars],
  ["a percent field", `('%${maxTextChars}s' % 'a')|length`, `('%${maxTextChars + 1}s' % 'a')|length`, maxTextChars],
  ["an indented line", "'a'|indent(1000, true)|length", "'a'|indent(1001, true)|length", 1001],
  ["indented JSON", "[1]|tojson(indent=1000)|length", "[1]|tojson(indent=1001)|length", 1005],
])("%s is made up to its bound and not one past it", (_, within, beyond, length) => {
  expect(outcomeOf(`{{ ${within} }}`, variables)).toEqual({ text: String(length) });
  expect(outcomeOf(`{{ ${beyond} }}`, variables)).toMatchObject({ reason: "limit" });
});

/** Ints have at most 4096 bits when they are multiplied. */
test("a product of ints is made up to its bound and not past it", () => {
  const variables = { a: 2n ** 2000n, b: 2n ** 2090n };
  expect(outcomeOf("{{ a * b > 0 }}", variables)).toEqual({ text: "True" });
  expect(outcomeOf("{{ b * b > 0 }}", variables)).toMatchObject({ reason: "limit" });
});

test("a text of more digits than Python reads is no int", () => {
  const variables = { just: "1".repeat(4300), more: "1".repeat(4301) };
  expect(outcomeOf("{{ just|int|string == just }}", variables)).toEqual({ text: "True" });
  expect(outcomeOf("{{ more|int(7) }}", variables)).toEqual({ text: "7" });
});

test("macros call one another down to the bound", () => {
  expect(outcomeOf(nested(maxCallDepth))).toEqual({ text: "" });
  expect(outcomeOf(nested(maxCallDepth + 1))).toEqual({
    reason: "limit",
    message: `macros nest deeper than ${maxCallDepth}`,
  });
});

test.each([
  ["written", "{{ x }}"],
  ["written as JSON", "{{ x|tojson }}"],
  ["compared", "{{ x == y }}"],
  ["looked for", "{{ x in [y] }}"],
])("a value that is %s may nest as deep as the bound", (_, source) => {
  const of = (depth: number) => ({ x: deep(depth), y: deep(depth) });
  expect(outcomeOf(source, of(maxValueDepth))).toHaveProperty("text");
  expect(outcomeOf(source, of(maxValueDepth + 2))).toMatchObject({ reason: "limit" });
});

test("JSON that needs care is read down to the bound", () => {
  const list = (depth: number): string => `${"[".repeat(depth)}1.0${"]".repeat(depth)}`;
  expect(readJson(list(maxValueDepth))).toBeDefined();
  expect(readJson(list(maxValueDepth + 1))).toBeUndefined();
  expect(readJson(`{"a":${list(maxValueDepth)}}`)).toBeUndefined();
});

test.each([
  ["{{ raise_exception('Roles must alternate: ' ~ 1) }}", "Roles must alternate: 1"],
  ["{{ raise_exception(none) }}", "None"],
  ["{{ raise_exception([1, 'a']) }}", "[1, 'a']"],
  ["{{ raise_exception(message='by name') }}", "by name"],
  ["{{ raise_exception('') }}", ""],
  ["{{ raise_exception(missing) }}", ""],
  ["{% macro m() %}{{ raise_exception('inside') }}{% endmacro %}{{ m() }}", "inside"],
  ["{% for x in [1] %}{% set y %}{{ raise_exception('deep') }}{% endset %}{% endfor %}", "deep"],
  ["{{ raise_exception(raise_exception('inner')) }}", "inner"],
])("%s gives the template's own words", (source, message) => {
  expect(outcomeOf(source)).toEqual({ reason: "raised", message });
});

test.each([
  ["{{ raise_exception('x') if false }}"],
  ["{{ 1 or raise_exception('x') }}"],
  ["{{ 0 and raise_exception('x') }}"],
  ["{% if false %}{{ raise_exception('x') }}{% endif %}"],
  ["{% for m in [] %}{{ raise_exception('x') }}{% endfor %}"],
  ["{% macro m() %}{{ raise_exception('x') }}{% endmacro %}"],
])("%s says nothing, as it is not reached", (source) => {
  expect(outcomeOf(source)).toHaveProperty("text");
});
