import { isUtf8 } from "node:buffer";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { JsonBody, scanBody } from "../../src/json-body/index.ts";
import { expectSame } from "./naive-nodes.ts";

const maxDepth = 64;
const scan = (text: string | Buffer, depth = maxDepth) => scanBody(Buffer.from(text), depth);

function bodyOf(text: string | Buffer): JsonBody {
  const body = scan(text);
  if (typeof body === "string") throw new Error(`${body}: ${text.toString()}`);
  return body;
}

/** What JSON.parse says of it, as far as a scan tells. */
function verdictOf(text: string): "object" | "no_object" | "invalid" {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? "object" : "no_object";
  } catch {
    return "invalid";
  }
}

/** Writes a text with other escapes than JSON.stringify chooses. */
function escapeMore(json: string, choices: readonly number[]): string {
  let at = 0;
  return json.replace(/[a-z\u0080-\uffff]/g, (unit) => {
    const choice = choices[at++ % Math.max(1, choices.length)] ?? 0;
    const hex = unit.charCodeAt(0).toString(16).padStart(4, "0");
    return choice === 0 ? `\\u${hex}` : choice === 1 ? `\\u${hex.toUpperCase()}` : unit;
  });
}

const object = fc.dictionary(
  fc.string({ unit: "binary", maxLength: 24 }).filter((key) => key !== "__proto__"),
  fc.jsonValue({ maxDepth: 5, stringUnit: "binary" }),
  { maxKeys: 8 },
);
const hasNoForbiddenKey = (text: string): boolean => !text.includes("__proto__");

describe("every value is found as JSON.parse finds it", () => {
  test("in objects of all shapes, written with and without white space", () => {
    fc.assert(
      fc.property(object, fc.constantFrom(undefined, 1, "\t", "\r\n "), (value, space) => {
        const text = JSON.stringify(value, undefined, space as string);
        fc.pre(hasNoForbiddenKey(text));
        expectSame(bodyOf(` ${text}\n`));
      }),
      { numRuns: randomRuns(300) },
    );
  });

  test("in strings of any length, escaped at any place", () => {
    const words = fc.string({ unit: "binary", maxLength: 90 });
    fc.assert(
      fc.property(fc.array(words, { maxLength: 6 }), fc.array(fc.nat(6), { minLength: 1 }), (texts, choices) => {
        const value = Object.fromEntries(texts.map((text, at) => [`k${at}`, text]));
        const written = JSON.stringify(value);
        // An escape that stands already is left alone, so only texts without one are escaped more.
        expectSame(bodyOf(written.includes("\\") ? written : escapeMore(written, choices)));
      }),
      { numRuns: randomRuns(500) },
    );
  });

  test("in lists of objects, with texts and with other values in them, and keys that stand twice", () => {
    const text = fc.oneof(fc.string({ unit: "binary", maxLength: 40 }), fc.constantFrom("\ufffd", "\ud800", "é\ufffd"));
    const key = fc.constantFrom("role", "content", "1", "0", "é", "a\nb", "constructor");
    const value = fc.oneof(
      { weight: 5, arbitrary: text },
      fc.constantFrom(null, 7, true, [], [{ a: "b" }], { c: "d" }),
    );
    const members = fc.array(fc.tuple(key, value), { maxLength: 4 });
    const entry = members.map((pairs) => `{${pairs.map((pair) => pair.map((one) => JSON.stringify(one)).join(":"))}}`);
    fc.assert(
      fc.property(fc.array(fc.oneof({ weight: 5, arbitrary: entry }, fc.constantFrom("[]", "1", '"x"'))), (entries) => {
        expectSame(bodyOf(`{"messages":[${entries.join(",")}],"n":1}`));
      }),
      { numRuns: randomRuns(500) },
    );
  });

  test("halves of surrogate pairs, alone, in the wrong order and together", () => {
    for (const text of [
      ...["\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\ude00\\ud83d", "\\ud83d\\ud83d\\ude00", "\\uD83D\\u0041"],
      ...["\\ud83dx\\ude00", "\\ud83d\\n", "\\ud83d\\\\ude00", "😀\\ud83d\\ude00é\\u00e9\\u0000\\u07ff\\u0800"],
    ]) {
      for (let pad = 0; pad < 18; pad++) expectSame(bodyOf(`{"a":"${"-".repeat(pad)}${text}"}`));
    }
  });

  test("numbers in all their spellings", () => {
    const numbers = ["0", "-0", "7", "-12", "0.5", "1e5", "1E+5", "1.25e-3", "123456789012345678901", "-1e400", "0e0"];
    expectSame(bodyOf(`{"a":[${numbers.join(", ")}]}`));
  });

  test("values of a body that was scanned before another one", () => {
    const first = bodyOf('{"a":["x",{"b":"\\u00e9"}]}');
    bodyOf('{"other":"body","with":[1,2,3,4,5,6,7,8]}');
    expectSame(first);
  });

  test("empty objects and arrays, and members between them", () => {
    expectSame(bodyOf('{"a":{},"b":[],"c":[[],{},[{}]],"":"" , "d":[ ] , "e":{ } }'));
    expectSame(bodyOf("{}"));
  });
});

describe("a text is refused exactly when JSON.parse refuses it", () => {
  const seeds = [
    '{"model":"m","messages":[{"role":"user","content":"a\\nb\\u00e9😀"}],"n":-1.5e+3,"stream":true,"x":null,"y":false}',
    ' { "a" : [ 1 , 2.0 , [ ] , { } ] , "b" : "\\ud83d\\ude00" } ',
  ];
  const pieces = ['"', "\\", "\\u", "{", "}", "[", "]", ",", ":", "0", "1", "-", ".", "e", "E", "+", "t", "null", " "];
  const control = ["\u0000", "\u001f", "\u007f", "\t", "\n", "\ufeff", "é"];

  test("with anything put in, taken out or exchanged at any place", () => {
    const change = fc.tuple(fc.nat(), fc.nat(2), fc.constantFrom(...pieces, ...control));
    fc.assert(
      fc.property(fc.constantFrom(...seeds), fc.array(change, { minLength: 1, maxLength: 3 }), (seed, changes) => {
        let text = seed;
        for (const [place, removed, piece] of changes) {
          const at = place % (text.length + 1);
          text = text.slice(0, at) + piece + text.slice(at + removed);
        }
        fc.pre(isUtf8(Buffer.from(text)) && hasNoForbiddenKey(text));
        const found = scan(text);
        expect([text, typeof found === "string" ? found : "object"]).toEqual([text, verdictOf(text)]);
        if (typeof found !== "string") expectSame(found);
      }),
      { numRuns: randomRuns(3_000) },
    );
  });

  test("cut off at any place", () => {
    for (const seed of seeds) {
      const bytes = Buffer.from(seed.trim());
      for (let end = 0; end < bytes.length; end++) expect(scan(bytes.subarray(0, end))).toBe("invalid");
    }
  });

  test.each(["", " ", "nul", "true", "[1]", '"x"', "7", "null", "{} {}", "{},", "\u0000{}", "{}\u0000", "tru\u0000"])(
    "%j",
    (text) => {
      const verdict = verdictOf(text);
      expect(scan(text)).toBe(verdict);
    },
  );
});

describe("bounds", () => {
  const nested = (levels: number): string => `{"a":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}}`;

  test("as deep as may be, and one level more", () => {
    expect(scan(nested(10), 10)).toBeInstanceOf(JsonBody);
    expect(scan(nested(11), 10)).toBe("too_deep");
    expect(scan(nested(2_000), Number.POSITIVE_INFINITY)).toBeInstanceOf(JsonBody);
  });

  test("a body whose values take far more room than it has itself, and a small one after it", () => {
    const many = `{"a":[${"0,".repeat(3_000_000)}1]}`;
    const body = bodyOf(many);
    expect(body.after(0)).toBe(3_000_004);
    expect(body.valueAt(body.after(0) - 1)).toBe(1);
    expectSame(bodyOf('{"a":"b"}'));
    expect(body.valueAt(3)).toBe(0);
  });

  /** WebAssembly memory never shrinks: one large body would have its room stay with the process for good. */
  test("room that a large body took is given back with the next small one, and kept for another large one", () => {
    const roomOf = (body: JsonBody): number => body.join([]).buffer.byteLength;
    const large = (values = 3_000_000): JsonBody => bodyOf(`{"a":[${"0,".repeat(values)}1]}`);
    for (const values of [3_000_000, 1_000_000]) {
      expect(roomOf(large(values))).toBeGreaterThan(16 * 1_048_576);
      expect(roomOf(bodyOf('{"a":"b"}'))).toBeLessThanOrEqual(16 * 1_048_576);
      expectSame(bodyOf('{"a":"b"}'));
    }
    const again = large();
    expect(again.valueAt(again.after(0) - 1)).toBe(1);
  });

  test("a body that takes more memory than there can be, and a small one after it", () => {
    const claimed = Object.defineProperty(Buffer.alloc(1), "length", { value: 1_100_000_000 });
    expect(scanBody(claimed, maxDepth)).toBe("too_large");
    expectSame(bodyOf('{"a":"b"}'));
  });

  test("texts that are joined stand one behind the other, however long", () => {
    const long = "x".repeat(400_000);
    const body = bodyOf(`{"a":"é\\n","b":"${long}"}`);
    const [a, b] = [body.member("a")!, body.member("b")!];
    expect(Buffer.from(body.join(["<", a, "é", b, b, "", ">"])).toString()).toBe(`<é\né${long}${long}>`);
    expect(body.join([])).toHaveLength(0);
    expect(body.textOf(a)).toBe("é\n");
  });
});

describe("keys", () => {
  test.each(["__proto__", "\\u005f_proto__", "__pr\\u006fto__"])("%s is refused as a key at any depth", (key) => {
    expect(scan(`{"a":[{"${key}":1}]}`)).toBe("forbidden_key");
    expect(scan(`{"${key}":1}`)).toBe("forbidden_key");
  });

  test("what only looks like it is a key as any other", () => {
    for (const key of ["__proto_", "__proto___", "__proto_x", "\\u005f_proto_x", "123456789"]) {
      expect(bodyOf(`{"${key}":"__proto__"}`).valueAt(2)).toBe("__proto__");
    }
  });

  test("a member is found by its name, however that is written", () => {
    const body = bodyOf('{"b":{"a":1},"\\u0061":2,"aa":3}');
    expect(["a", "b", "aa", "c"].map((name) => body.member(name))).toEqual([6, 2, 8, undefined]);
    expect(body.hasKey("a")).toBe(true);
    expect(body.hasKey("c")).toBe(false);
  });
});
