import { expect, test } from "vitest";
import { parseEnginesFile } from "../../src/config/index.ts";
import { problemsIn } from "./loading.ts";

const parse = (text: string) => parseEnginesFile(text, "engines.yaml");
const problemsOf = (text: string) => problemsIn(() => parse(text));

test.each([
  ["a list", "- http://a:1\n- { url: http://b:2/, models: [m], weight: 2 }\n"],
  ["a section with a list", "engines:\n  - http://a:1\n  - { url: http://b:2/, models: [m], weight: 2 }\n"],
  ["a list in JSON", '["http://a:1", {"url": "http://b:2", "models": ["m"], "weight": 2}]'],
])("%s gives engines", (_, text) => {
  expect(parse(text)).toEqual([
    { id: "a:1", url: "http://a:1", models: [], role: "both", weight: 1, ranks: 1, labels: {} },
    { id: "b:2", url: "http://b:2", models: ["m"], role: "both", weight: 2, ranks: 1, labels: {} },
  ]);
});

test.each(["", "[]", "engines:", "engines: []", "# none\n", "{}"])("%j is a list without engines", (text) => {
  expect(parse(text)).toEqual([]);
});

test.each([
  [
    "an unknown key",
    "- url: http://a\n  wait: 1\n",
    "[0].wait: is not a known key; did you mean weight? (engines.yaml:2:3)",
  ],
  ["another key beside engines", "engines: []\npools: []", "expected a list, found a section"],
  ["a plain text", "http://a", "expected a list, found a plain text"],
  [
    "a weight of 0",
    "- { url: http://a, weight: 0 }",
    "[0].weight: 0 is not a number from 0.001 to 1000000 (engines.yaml:1:20)",
  ],
  [
    "an unknown role",
    "engines: [{ url: http://a, role: cook }]",
    'engines[0].role: "cook" is not one of both, prefill, decode (engines.yaml:1:28)',
  ],
  ["a URL twice", "- http://a\n- http://a/\n", "[1].url: http://a is also the URL of engine 0 (engines.yaml:2:3)"],
  [
    "an id with a space",
    "- { url: http://a, id: 'a b' }",
    '[0].id: "a b" is not a name of at most 128 visible ASCII characters (engines.yaml:1:20)',
  ],
  [
    "a label that is a number",
    "- { url: http://a, labels: { a: 1 } }",
    "[0].labels.a: 1 is not text of 0 to 256 characters; put it in quotes if it is meant as text (engines.yaml:1:30)",
  ],
])("%s is refused", (_, text, expected) => {
  expect(problemsOf(text)).toEqual([expected]);
});

test("every problem of the file is reported", () => {
  expect(problemsOf("- 5\n- {}\n- ftp://a\n")).toHaveLength(3);
});

test("a syntax error has line and column", () => {
  expect(problemsOf("- http://a\n- [")[0]).toMatch(/^engines\.yaml:2:\d+: /);
});

test("variables are not filled in, because the file is data that others may write", () => {
  expect(parse(`- { url: http://a, labels: { a: '\${HOME}' } }`)[0]?.labels).toEqual({ a: `\${HOME}` });
});

test("ten thousand engines are taken, one more is refused", () => {
  const text = (count: number) => Array.from({ length: count }, (_, at) => `- http://e${at}`).join("\n");
  expect(parse(text(10_000))).toHaveLength(10_000);
  expect(problemsOf(text(10_001))).toEqual(["10001 elements are more than 10000"]);
});
