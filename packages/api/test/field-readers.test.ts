import { expect, test } from "vitest";
import { readBoolean, readInteger } from "../src/request/field-readers.ts";

// What pydantic 2.13 makes of each value as `bool` and as `int`, in its lax mode; undefined where it refuses.
test.each<[value: unknown, asBoolean: boolean | undefined, asInteger: number | undefined]>([
  [true, true, 1],
  [false, false, 0],
  [0, false, 0],
  [1, true, 1],
  [2, undefined, 2],
  [-1, undefined, -1],
  [1.5, undefined, undefined],
  ["true", true, undefined],
  ["TRUE", true, undefined],
  ["t", true, undefined],
  ["yes", true, undefined],
  ["Y", true, undefined],
  ["oN", true, undefined],
  ["1", true, 1],
  ["0", false, 0],
  ["off", false, undefined],
  ["F", false, undefined],
  ["n", false, undefined],
  ["no", false, undefined],
  ["", undefined, undefined],
  [" true", undefined, undefined],
  ["2", undefined, 2],
  ["16", undefined, 16],
  [" 16 ", undefined, 16],
  ["\t16\n", undefined, 16],
  ["+16", undefined, 16],
  ["-3", undefined, -3],
  ["1_000", undefined, 1_000],
  ["_1", undefined, undefined],
  ["1_", undefined, undefined],
  ["1__0", undefined, undefined],
  ["16.0", undefined, 16],
  ["16.", undefined, undefined],
  ["16.5", undefined, undefined],
  ["1e3", undefined, undefined],
  ["0x10", undefined, undefined],
  ["007", undefined, 7],
  [[], undefined, undefined],
  [{}, undefined, undefined],
  [null, undefined, undefined],
])("%j is read as pydantic reads it", (value, asBoolean, asInteger) => {
  expect([readBoolean(value), readInteger(value)]).toEqual([asBoolean, asInteger]);
});

test("digits beyond what a double holds are infinite, so that no bound is missed", () => {
  expect(readInteger("9".repeat(400))).toBe(Number.POSITIVE_INFINITY);
});

test("long white space takes no time that grows faster than its length", () => {
  const before = process.threadCpuUsage();
  expect(readInteger(`1${" ".repeat(1_000_000)}x`)).toBeUndefined();
  expect(readInteger(`${"1_".repeat(500_000)}x`)).toBeUndefined();
  expect(process.threadCpuUsage(before).user).toBeLessThan(2_000_000);
});
