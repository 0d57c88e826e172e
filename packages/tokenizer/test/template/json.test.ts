import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { defaultJsonStyle, readJson, writeJson } from "../../src/template/json.ts";
import { PyFloat, PyTuple } from "../../src/template/values.ts";

const compact = { ...defaultJsonStyle, itemSeparator: ",", keySeparator: ":" };
const indented = { ...defaultJsonStyle, itemSeparator: ",", indent: "  " };

/** A random JSON value of ints, text, constants, lists and objects. */
function randomValue(random: Random, depth: number): unknown {
  const pick = random.integer(depth > 0 ? 6 : 4);
  if (pick === 0) return random.integer(1_000_000) - 500_000;
  if (pick === 1) return randomText(random);
  if (pick === 2) return [true, false, null][random.integer(3)];
  if (pick === 3) return (random.integer(2_000_001) - 1_000_000) / 128 + 1 / 256;
  if (pick === 4) return Array.from({ length: random.integer(4) }, () => randomValue(random, depth - 1));
  return Object.fromEntries(
    Array.from({ length: random.integer(4) }, (_, index) => [
      `k${index}${randomText(random)}`,
      randomValue(random, depth - 1),
    ]),
  );
}

function randomText(random: Random): string {
  const alphabet = ["a", "Z", " ", '"', "\\", "\n", "\t", "\u0001", "\u007f", "é", "日", "🙂", "/", "<", "\u2028"];
  return Array.from({ length: random.integer(6) }, () => alphabet[random.integer(alphabet.length)]).join("");
}

describe("writing", () => {
  test("with JavaScript's separators it equals JSON.stringify", () => {
    const random = createSeededRandom(20260305);
    for (let round = 0; round < 500; round++) {
      const value = randomValue(random, 4);
      expect(writeJson(value, compact)).toBe(JSON.stringify(value));
      expect(writeJson(value, indented)).toBe(JSON.stringify(value, null, 2));
    }
  });

  test("what it writes reads back to the same value", () => {
    const random = createSeededRandom(7);
    for (let round = 0; round < 500; round++) {
      const value = randomValue(random, 4);
      for (const style of [defaultJsonStyle, indented, { ...defaultJsonStyle, ensureAscii: true }]) {
        expect(JSON.parse(writeJson(value, style))).toEqual(value);
      }
    }
  });

  test.each([
    [1, "1"],
    [new PyFloat(1), "1.0"],
    [1.5, "1.5"],
    [1e-7, "1e-07"],
    [1e20, "1e+20"],
    [12345678901234567890n, "12345678901234567890"],
    [Number.NaN, "NaN"],
    [Number.NEGATIVE_INFINITY, "-Infinity"],
    [Number.POSITIVE_INFINITY, "Infinity"],
    [-0, "0"],
    [new PyFloat(-0), "-0.0"],
    [PyTuple.ofItems([1, "a"]), '[1, "a"]'],
    [
      new Map<unknown, unknown>([
        [1, "a"],
        [null, "b"],
        [true, "c"],
        [1.5, "d"],
      ]),
      '{"1": "a", "null": "b", "true": "c", "1.5": "d"}',
    ],
    ["</b>&'", `"</b>&'"`],
  ])("%s", (value, expected) => {
    expect(writeJson(value, defaultJsonStyle)).toBe(expected);
  });

  test("keys are sorted by code points, and only ASCII is written when asked", () => {
    const value = { b: 1, "🙂": 2, "\uffee": 3, B: 4, a: { d: 1, c: 2 } };
    expect(writeJson(value, { ...compact, sortKeys: true })).toBe('{"B":4,"a":{"c":2,"d":1},"b":1,"\uffee":3,"🙂":2}');
    expect(writeJson("é🙂", { ...compact, ensureAscii: true })).toBe('"\\u00e9\\ud83d\\ude42"');
  });

  test.each([[undefined], [[undefined]], [{ a: undefined }], [new Map([[[], 1]])], [() => 1]])(
    "%s has no JSON",
    (value) => {
      expect(() => writeJson(value, defaultJsonStyle)).toThrow(/not JSON serializable|keys must be/);
    },
  );
});

describe("reading", () => {
  test("equals JSON.parse where that loses nothing", () => {
    const random = createSeededRandom(99);
    for (let round = 0; round < 500; round++) {
      const text = JSON.stringify(randomValue(random, 4));
      expect(plain(readJson(text)?.value)).toEqual(JSON.parse(text));
    }
  });

  test.each([
    ["1.0", new PyFloat(1)],
    ["-2e3", new PyFloat(-2000)],
    ["1.5", 1.5],
    ["9007199254740993", 9007199254740993n],
    ["9007199254740991", 9007199254740991],
    ["123456789012345678901234567890", 123456789012345678901234567890n],
    ["NaN", Number.NaN],
    ["[-Infinity, Infinity]", [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]],
    ["1e999", Number.POSITIVE_INFINITY],
    [' {"a" : 1.0 , "a" : [ ] } ', { a: [] }],
    [
      '{"10": 1, "2": 2}',
      new Map([
        ["10", 1],
        ["2", 2],
      ]),
    ],
    ['"1.0\\u00e9\\n\\""', '1.0é\n"'],
    ["[1.0,{}]", [new PyFloat(1), {}]],
    ['[{"__proto__": 1.0}]', [Object.fromEntries([["__proto__", new PyFloat(1)]])]],
  ])("%s", (text, expected) => {
    expect(readJson(text)).toEqual({ value: expected });
  });

  test.each([
    ["1.0."],
    ["1.0,"],
    ["[1.0"],
    ["[1.0,]"],
    ['{"a": 1.0,}'],
    ['{"a" 1.0}'],
    ["01.0"],
    [".5"],
    ["1.e5"],
    ["+1.0"],
    ["nan"],
    ["[1.0 2]"],
    ['"1.0\n"'],
    ["{1.0: 2}"],
    ["Infinit"],
    ['"1.0\\x"'],
    ["tru"],
    [""],
    ["-NaN"],
  ])("%j is no JSON", (text) => {
    expect(readJson(text)).toBeUndefined();
  });

  test("depth is bounded", () => {
    expect(readJson(`${"[".repeat(400)}1.0${"]".repeat(400)}`)).toBeDefined();
    expect(readJson(`${"[".repeat(600)}1.0${"]".repeat(600)}`)).toBeUndefined();
  });
});

/** Maps and floats as JSON.parse gives them. */
function plain(value: unknown): unknown {
  if (value instanceof PyFloat) return value.value;
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, item]) => [key, plain(item)]));
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
}
