import { expect, test } from "vitest";
import { outcomeOf } from "./tables.ts";

/** The tests of Jinja2 that look at what kind of value there is. */
const kindTests = [
  ...["defined", "undefined", "none", "boolean", "true", "false", "string", "number", "integer", "float"],
  ...["mapping", "sequence", "iterable", "callable", "escaped"],
];

const variables = { text: "a", list: [1], dict: { a: 1 }, half: 1.5, nothing: null };

test.each([
  ["missing", "undefined sequence iterable callable"],
  ["nothing", "defined none"],
  ["true", "defined boolean true number"],
  ["false", "defined boolean false number"],
  ["1", "defined number integer"],
  ["2 ** 70", "defined number integer"],
  ["1.0", "defined number float"],
  ["half", "defined number float"],
  ["text", "defined string sequence iterable"],
  ["''", "defined string sequence iterable"],
  ["list", "defined sequence iterable"],
  ["(1, 2)", "defined sequence iterable"],
  ["dict", "defined mapping sequence iterable"],
  ["range(3)", "defined sequence iterable"],
  ["list | map('string')", "defined iterable"],
  ["dict | items", "defined iterable"],
  ["list | reverse", "defined iterable"],
  ["range", "defined callable"],
  ["text.upper", "defined callable"],
  ["dict.get", "defined callable"],
  ["joiner()", "defined callable"],
  ["namespace()", "defined"],
])("%s is %s", (expression, holding) => {
  const found = kindTests.filter((name) => {
    const outcome = outcomeOf(`{{ (${expression}) is ${name} }}`, variables);
    const negated = outcomeOf(`{{ (${expression}) is not ${name} }}`, variables);
    expect([outcome, negated]).toContainEqual({ text: "True" });
    expect([outcome, negated]).toContainEqual({ text: "False" });
    return "text" in outcome && outcome.text === "True";
  });
  expect(found).toEqual(holding.split(" "));
});

test.each([
  ["text", "True False"],
  ["'A1'", "False True"],
  ["'aA'", "False False"],
  ["'1'", "False False"],
  ["''", "False False"],
  ["true", "False False"],
  ["dict", "True False"],
  ["nothing", "False False"],
  ["missing", "False False"],
])("%s is lower, is upper: %s", (value, expected) => {
  expect(outcomeOf(`{{ (${value}) is lower }} {{ (${value}) is upper }}`, variables)).toEqual({ text: expected });
});
