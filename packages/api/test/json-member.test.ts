import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readJsonMember } from "../src/index.ts";

const read = (text: string, ...path: string[]): string | undefined => readJsonMember(Buffer.from(text), path);

describe("a value inside an object comes out byte for byte", () => {
  test.each<[string, string[], string]>([
    ['{"a":1,"b":[1, 2]}', ["b"], "[1, 2]"],
    ['{ "a" : { "b" :\n{"c": 18446744073709551615} } }', ["a", "b", "c"], "18446744073709551615"],
    ['{"a":"\\u0061\\"é世"}', ["a"], '"\\u0061\\"é世"'],
    ['{"\\u0061":null}', ["a"], "null"],
    ['{"a":[ {"b":1}, {"b":2} ]}', ["a", "b"], "1"],
    ['{"a":1,"a":2}', ["a"], "2"],
    [' {"a":1}', ["a"], "1"],
    ['[{"a":3}]', ["a"], "3"],
    ['{"a":1e400 }', ["a"], "1e400"],
  ])("%s", (text, path, expected) => {
    expect(read(text, ...path)).toBe(expected);
  });
});

test.each<[string, string[]]>([
  ["", ["a"]],
  ["{", ["a"]],
  ["null", ["a"]],
  ['{"a":1}', ["b"]],
  ['{"a":1}', ["a", "b"]],
  ['{"a":[]}', ["a", "b"]],
  ['{"a":[[{"b":1}]]}', ["a", "b"]],
  ['{"b":{"a":1}}', ["a"]],
  ['{"a":1} x', ["a"]],
])("nothing stands there: %s", (text, path) => {
  expect(read(text, ...path)).toBeUndefined();
});

test("any value of any object is found as JSON.stringify wrote it", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue(), { noNullPrototype: true }), (object) => {
      for (const [key, value] of Object.entries(object)) {
        expect(read(JSON.stringify(object), key)).toBe(JSON.stringify(value));
        expect(read(JSON.stringify({ outer: [object] }, null, 2), "outer", key)).toBeDefined();
      }
    }),
  );
});
