import { expect, test } from "vitest";
import {
  formatAge,
  formatCount,
  formatMs,
  formatNumber,
  formatRate,
  formatShare,
  formatShort,
  formatSpan,
  formatTime,
} from "../src/model/format.ts";

test.each([
  [formatCount(12_345.6), "12,346"],
  [formatShort(12_345), "12.3K"],
  [formatRate(0), "0"],
  [formatRate(0.44), "0.4"],
  [formatRate(31.2), "31"],
  [formatShare(0.425), "43 %"],
  [formatShare(null), "–"],
  [formatMs(7.6), "8 ms"],
  [formatMs(1_240), "1.2 s"],
  [formatMs(null), "–"],
  [formatNumber(3.546e-10), "0"],
  [formatNumber(-0.2634), "-0.26"],
  [formatNumber(1_234.5678), "1,235"],
  [formatSpan(0), "0"],
  [formatSpan(420), "0.4 s"],
  [formatSpan(12_300), "12 s"],
  [formatSpan(185_000), "3 min"],
  [formatSpan(9_000_000), "2.5 h"],
  [formatAge(900), "now"],
  [formatAge(8_000), "8 s ago"],
  [formatAge(200_000), "3 min ago"],
  [formatAge(-5_000), "now"],
])("%s", (text, expected) => {
  expect(text).toBe(expected);
});

test("times are those of whoever looks", () => {
  expect(formatTime(new Date(2026, 0, 2, 3, 4, 5).getTime())).toBe("03:04:05");
});
