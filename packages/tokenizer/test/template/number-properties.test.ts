import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { formatTime } from "../../src/template/globals.ts";
import { defaultJsonStyle, readJson, writeJson } from "../../src/template/json.ts";
import { arithmetic } from "../../src/template/numbers.ts";
import { floatValue, type PyFloat, toDouble } from "../../src/template/values.ts";
import { outcomeOf } from "./tables.ts";

const anyDouble = (random: Random): number =>
  [
    () => (random.float() - 0.5) * 10 ** (random.integer(30) - 10),
    () => random.integer(2001) - 1000,
    () => (random.integer(2001) - 1000) / 8,
    () => (random.integer(2001) - 1000) / 10,
  ][random.integer(4)]!();

const render = (expression: string, variables: Readonly<Record<string, unknown>>): string => {
  const outcome = outcomeOf(`{{ ${expression} }}`, variables);
  if (!("text" in outcome)) throw new Error(`${expression} with ${JSON.stringify(variables)}: ${outcome.message}`);
  return outcome.text;
};

describe("division of floats", () => {
  const quotient = (left: number, right: number): number =>
    toDouble(arithmetic("//", floatValue(left), floatValue(right)) as PyFloat);
  const remainder = (left: number, right: number): number =>
    toDouble(arithmetic("%", floatValue(left), floatValue(right)) as PyFloat);

  test("gives whole quotients and remainders between zero and the divisor", () => {
    const random = createSeededRandom(11);
    for (let round = 0; round < 5000; round++) {
      const left = anyDouble(random);
      const right = anyDouble(random) || 1;
      const whole = quotient(left, right);
      const rest = remainder(left, right);
      expect(Number.isInteger(whole)).toBe(true);
      expect(rest === 0 || rest < 0 === right < 0).toBe(true);
      expect(Math.abs(rest)).toBeLessThanOrEqual(Math.abs(right));
      const scale = Math.max(Math.abs(left), Math.abs(right));
      expect(Math.abs(whole * right + rest - left)).toBeLessThanOrEqual(scale * 1e-12);
    }
  });

  test("rounds by the remainder where the plain quotient has rounded up already", () => {
    const random = createSeededRandom(12);
    let differing = 0;
    for (let round = 0; round < 3000; round++) {
      const [left, right] = [(1 + random.integer(100)) / 10, (1 + random.integer(20)) / 10];
      const exact = Math.round((left - (left % right)) / right);
      expect(quotient(left, right)).toBe(exact);
      if (Math.floor(left / right) !== exact) differing++;
    }
    expect(differing).toBeGreaterThan(10);
  });
});

test("fields of ints reach their width and are never cut", () => {
  const random = createSeededRandom(15);
  for (let round = 0; round < 300; round++) {
    const x = random.integer(20_001) - 10_000;
    const width = random.integer(9) + 1;
    const plain = String(x);
    expect(render(`'%${width}d' % x`, { x })).toBe(plain.padStart(width));
    expect(render(`'%-${width}d' % x`, { x })).toBe(plain.padEnd(width));
    const zeros = (x < 0 ? "-" : "") + String(Math.abs(x)).padStart(width - (x < 0 ? 1 : 0), "0");
    expect(render(`'%0${width}d' % x`, { x })).toBe(zeros);
  }
});

describe("JSON with numbers of every kind", () => {
  /** A random value as JSON text in Python's own style, which writing it again must give. */
  function anyJson(random: Random, depth: number): string {
    const pick = random.integer(depth > 0 ? 8 : 6);
    if (pick === 0) return String(random.integer(2001) - 1000);
    if (pick === 1) return `${random.integer(100)}.0`;
    if (pick === 2) return String(BigInt(random.integer(1_000_000) + 1) * 10n ** BigInt(12 + random.integer(20)));
    if (pick === 3) return ["0.1", "-2.5", "1e+16", "1e-05", "1.5e+300", "-0.0"][random.integer(6)]!;
    if (pick === 4) return ["true", "false", "null", "NaN", "Infinity", "-Infinity"][random.integer(6)]!;
    if (pick === 5) return JSON.stringify(["a", '"', "é🙂", "1.0", "\n", ""][random.integer(6)]);
    const inner = (): string => anyJson(random, depth - 1);
    if (pick === 6) return `[${Array.from({ length: random.integer(4) }, inner).join(", ")}]`;
    const keys = ["10", "9", "b", "a", "__proto__", "1.5"].slice(random.integer(6));
    return `{${keys.map((key) => `"${key}": ${inner()}`).join(", ")}}`;
  }

  test("is written as it was read", () => {
    const random = createSeededRandom(16);
    for (let round = 0; round < 1500; round++) {
      // The number in front makes the reader take care, as a float among the arguments does.
      const text = `[1.0, ${anyJson(random, 3)}]`;
      const read = readJson(text);
      expect(read && writeJson(read.value, defaultJsonStyle)).toBe(text);
    }
  });

  test("that is cut anywhere is none", () => {
    const random = createSeededRandom(17);
    for (let round = 0; round < 200; round++) {
      const text = `{"a": 1.0, "b": ${anyJson(random, 2)}}`;
      const cut = random.integer(text.length);
      expect(readJson(text.slice(0, cut))).toBeUndefined();
      expect(readJson(`${text}${["]", "}", ",", "x", '"'][random.integer(5)]}`)).toBeUndefined();
    }
  });
});

describe("dates", () => {
  const year = 2000;
  const dayMs = 86_400_000;

  test("count the days of leap years and of others", () => {
    for (let day = 0; day < 4 * 366; day++) {
      const date = new Date(Date.UTC(year, 0, 1) + day * dayMs);
      expect(formatTime(date, "%Y-%m-%d %a")).toBe(
        `${date.toISOString().slice(0, 10)} ${date.toUTCString().slice(0, 3)}`,
      );
    }
  });

  test("take the hours of both clocks", () => {
    for (let hour = 0; hour < 24; hour++) {
      const date = new Date(Date.UTC(year, 0, 1, hour, 5, 7));
      const hour12 = hour % 12 === 0 ? 12 : hour % 12;
      const half = hour < 12 ? "AM" : "PM";
      const two = (value: number): string => String(value).padStart(2, "0");
      expect(formatTime(date, "%H|%I|%p")).toBe([two(hour), two(hour12), half].join("|"));
      expect(formatTime(date, "%-H|%-I|%-M|%-S")).toBe([hour, hour12, 5, 7].join("|"));
    }
  });

  test.each(["%C %y", "%j", "%U", "%s", "%c", "%-Q"])("%s is lacking", (format) => {
    expect(() => formatTime(new Date(0), format)).toThrow(
      `the renderer does not support ${format.split(" ")[0]} of strftime_now`,
    );
  });

  test.each([
    ["%b %B %%", "Jan January %"],
    ["%%Y", "%Y"],
    ["%", "%"],
    ["100%.", "100%."],
    ["%-m/%-d/%y", "1/1/70"],
    ["", ""],
    ["日%Y年", "日1970年"],
  ])("the epoch as %j", (format, expected) => {
    expect(formatTime(new Date(0), format)).toBe(expected);
  });
});
