import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { formatTime } from "../../src/template/globals.ts";
import { type Arithmetic, arithmetic, floatText, intText, sign } from "../../src/template/numbers.ts";
import { PyFloat } from "../../src/template/values.ts";

describe("ints", () => {
  const floorDivide = (left: bigint, right: bigint): bigint => {
    const quotient = left / right;
    return left % right !== 0n && left < 0n !== right < 0n ? quotient - 1n : quotient;
  };
  const exact: Readonly<Record<string, (left: bigint, right: bigint) => bigint>> = {
    "+": (left, right) => left + right,
    "-": (left, right) => left - right,
    "*": (left, right) => left * right,
    "//": floorDivide,
    "%": (left, right) => left - floorDivide(left, right) * right,
  };

  test("are exact however large", () => {
    const random = createSeededRandom(5);
    const limits = [10, 1000, 2 ** 31, Number.MAX_SAFE_INTEGER];
    for (let round = 0; round < 3000; round++) {
      const of = (): number =>
        (random.integer(2) === 0 ? -1 : 1) * Math.floor(random.float() * limits[random.integer(4)]!);
      const [left, right] = [of(), of() || 1];
      for (const [operator, compute] of Object.entries(exact)) {
        const result = arithmetic(operator as Arithmetic, left, right);
        expect(BigInt(result as number | bigint)).toBe(compute(BigInt(left), BigInt(right)));
        expect(typeof result === "bigint" && Number.isSafeInteger(Number(result))).toBe(false);
      }
    }
  });

  test("as bigints too", () => {
    expect(arithmetic("+", 2n ** 70n, 1)).toBe(2n ** 70n + 1n);
    expect(arithmetic("-", 2n ** 70n, 2n ** 70n - 5n)).toBe(5);
    expect(arithmetic("%", -(2n ** 70n), 7)).toBe(Number(((-(2n ** 70n) % 7n) + 7n) % 7n));
    expect(arithmetic("//", -(2n ** 70n), 3)).toBe(-(2n ** 70n) / 3n - 1n);
    expect(arithmetic("*", 2n ** 70n, 4)).toBe(2n ** 72n);
    expect(sign("-", 2n ** 70n)).toBe(-(2n ** 70n));
    expect(intText(2 ** 60)).toBe("1152921504606846976");
  });

  test.each([
    ["/", 4, 2, new PyFloat(2)],
    ["/", 1, 4, 0.25],
    ["+", true, true, 2],
    ["*", 2, new PyFloat(1.5 * 2), new PyFloat(6)],
    ["//", 7.5, 2, new PyFloat(3)],
    ["%", -7.5, 2, 0.5],
    ["-", 0.5, 0.5, new PyFloat(0)],
  ] as const)("with %s, %s and %s give the right kind of number", (operator, left, right, expected) => {
    expect(arithmetic(operator, left, right)).toEqual(expected);
  });

  test("what is no number has no arithmetic", () => {
    expect(arithmetic("+", "a", 1)).toBeUndefined();
    expect(arithmetic("+", 1, null)).toBeUndefined();
    expect(() => sign("-", "a")).toThrow("bad operand");
  });
});

describe("text of floats", () => {
  test("reads back to the same float, and has a point or an exponent", () => {
    const random = createSeededRandom(6);
    for (let round = 0; round < 3000; round++) {
      const value = (random.float() - 0.5) * 10 ** (random.integer(60) - 30);
      const text = floatText(value);
      expect(Number(text)).toBe(value);
      expect(text).toMatch(/^-?\d+(\.\d+)?(e[+-]\d{2,3})?$/);
      expect(text).toMatch(/[.e]/);
    }
  });

  test.each([
    [1, "1.0"],
    [0, "0.0"],
    [-0, "-0.0"],
    [0.1, "0.1"],
    [1e15, "1000000000000000.0"],
    [1e16, "1e+16"],
    [1.5e16, "1.5e+16"],
    [123456789012345680, "1.2345678901234568e+17"],
    [0.0001, "0.0001"],
    [0.00012345, "0.00012345"],
    [0.00001, "1e-05"],
    [1.5e-10, "1.5e-10"],
    [1e100, "1e+100"],
    [-2.5e-7, "-2.5e-07"],
    [-0.001, "-0.001"],
    [Number.NaN, "nan"],
    [Number.POSITIVE_INFINITY, "inf"],
    [Number.NEGATIVE_INFINITY, "-inf"],
  ])("%d is %s", (value, text) => {
    expect(floatText(value)).toBe(text);
  });
});

describe("dates", () => {
  const date = new Date(Date.UTC(2026, 2, 5, 7, 8, 9, 10));

  test.each([
    ["%Y-%m-%d", "2026-03-05"],
    ["%d %B %Y", "05 March 2026"],
    ["%-d %b %y", "5 Mar 26"],
    ["%H:%M:%S %I %p", "07:08:09 07 AM"],
    ["100%%", "100%"],
    ["no directive", "no directive"],
  ])("%s", (format, expected) => {
    expect(formatTime(date, format)).toBe(expected);
  });

  test("noon and midnight are twelve", () => {
    expect(formatTime(new Date(Date.UTC(2026, 0, 4, 0)), "%I %p")).toBe("12 AM");
    expect(formatTime(new Date(Date.UTC(2026, 11, 31, 12)), "%I %p")).toBe("12 PM");
  });

  test("a directive that no chat template uses is lacking", () => {
    expect(() => formatTime(date, "%Q")).toThrow("the renderer does not support %Q of strftime_now");
  });
});
