import { expect, test } from "vitest";
import { outcomeOf } from "./tables.ts";

/** The tests of Jinja2 that look at what kind of value there is. */
const kindTests = [
  ...["defined", "undefined", "none", "boolean", "true", "false", "string", "number", "integer", "float"],
  ...["mapping", "sequence", "iterable"],
];

const variables = { text: "a", list: [1], dict: { a: 1 }, half: 1.5, nothing: null };

test.each([
  ["missing", "undefined sequence iterable"],
  ["nothing", "defined none"],
  ["true", "defined boolean true number"],
  ["false", "defined boolean false number"],
  ["1", "defined number integer"],
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
  ["text | safe", "defined string sequence iterable"],
  ["range", "defined"],
  ["text.upper", "defined"],
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
