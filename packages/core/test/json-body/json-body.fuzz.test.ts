import { isUtf8 } from "node:buffer";
import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { expect, test } from "vitest";
import { scanBody } from "../../src/json-body/index.ts";
import { expectSame } from "./naive-nodes.ts";

const json = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
const text = "Wie geht's? \u{1f600} \\ \" \u0000 \u2028 end ".repeat(3);

const targets: readonly FuzzTarget[] = [
  {
    name: "values of a body",
    seeds: [
      json({ model: "m", messages: [{ role: "user", content: text }], stream: true, n: -1.5e3 }),
      json({ a: [[], {}, [{ b: [1, 2, 3, null, false] }]], [text]: text, c: { d: { e: text } } }),
      new TextEncoder().encode(' { "\\u0061\\ud83d\\ude00" : "\\ud83d\\n\\/\\u00e9" , "x":[ 0.5e-7 , -0 ] } '),
    ],
    /** What is taken is what JSON.parse takes, and every value of it is what JSON.parse makes of it. */
    read(bytes) {
      const body = Buffer.from(bytes);
      // Who scans has looked at that before.
      if (!isUtf8(body)) return;
      const found = scanBody(body, Number.POSITIVE_INFINITY);
      if (typeof found !== "string") expectSame(found);
      else if (found === "invalid") expect(() => JSON.parse(body.toString())).toThrow(SyntaxError);
      else if (found === "forbidden_key") expect(isObject(JSON.parse(body.toString()))).toBe(true);
      else expect([found, isObject(JSON.parse(body.toString()))]).toEqual(["no_object", false]);
    },
  },
];

const isObject = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);

fuzzInFile(test, "every value of a body is what JSON.parse says it is", targets);
