import { expect, test } from "vitest";
import {
  formatAge,
  formatCount,
  formatMs,
  formatRate,
  formatShare,
  formatShort,
  formatTime,
} from "../src/model/format.ts";
import { noticeText } from "../src/model/rows.ts";

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

test("the notice tells of a move for a minute, and that nobody answers as long as that is so", () => {
  const moved = { from: "r1", to: "r2", atMs: 0 };
  const state = { moved, isLive: true, hasBeenLive: true, nowMs: 5_000, concerns: ["r3 gone", "r4 differs"] };
  expect(noticeText(state)).toMatch(/^r1 is gone: reading from r2 since \d\d:\d\d:\d\d \(5 s ago\)\.$/);
  expect(noticeText({ ...state, nowMs: 61_000 })).toBe("r3 gone · r4 differs");
  expect(noticeText({ ...state, moved: undefined, concerns: [] })).toBe("");
  expect(noticeText({ ...state, isLive: false })).toMatch(/^No router answers/);
  expect(noticeText({ ...state, moved: undefined, isLive: false, hasBeenLive: false })).toBe("");
});
