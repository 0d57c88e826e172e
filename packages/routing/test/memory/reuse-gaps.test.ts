import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { ReuseGaps } from "../../src/memory/memory-watch.ts";

test("what has been idle for longer than anybody ever was away is not expected back", () => {
  const gaps = new ReuseGaps();
  for (let gapMs = 1_000; gapMs <= 20_000; gapMs += 100) gaps.observe(gapMs);
  gaps.takeIdle([], 0);
  expect(gaps.shareAfter(500)).toBe(1);
  expect(gaps.shareAfter(10_000)).toBe(1);
  expect(gaps.shareAfter(25_000)).toBe(0);
});

test("those that nobody has gone on with count against it: half and half is a half", () => {
  const gaps = new ReuseGaps();
  for (let count = 0; count < 50; count++) gaps.observe(60_000);
  gaps.takeIdle(Array(50).fill(60_000), 0);
  expect(gaps.shareAfter(10_000)).toBeCloseTo(0.5);
});

test("while little is known nothing is expected", () => {
  const gaps = new ReuseGaps();
  expect(gaps.shareAfter(1_000)).toBe(0);
  for (let count = 0; count < 7; count++) gaps.observe(60_000);
  gaps.takeIdle([], 0);
  expect(gaps.shareAfter(1_000)).toBe(0);
  gaps.observe(60_000);
  expect(gaps.shareAfter(1_000)).toBe(1);
});

test("half of what was seen is forgotten in five minutes", () => {
  const gaps = new ReuseGaps();
  gaps.takeIdle([], 0);
  for (let count = 0; count < 80; count++) gaps.observe(60_000);
  gaps.takeIdle(Array(40).fill(60_000), 300_000);
  expect(gaps.shareAfter(1_000)).toBeCloseTo(0.5);
});

test("times beyond all bounds are taken as the longest and the shortest there are", () => {
  const gaps = new ReuseGaps();
  for (let count = 0; count < 10; count++) gaps.observe(1e12);
  for (let count = 0; count < 10; count++) gaps.observe(-1);
  gaps.takeIdle([0, 1e15], 0);
  expect(gaps.shareAfter(400_000)).toBeGreaterThan(0.8);
  expect(gaps.shareAfter(-5)).toBeCloseTo(20 / 22);
});

test.each([1, 2, 3])("it is near what counting says, and falls as far as it should (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const gaps = new ReuseGaps();
  const draw = (): number => 100 * Math.exp(6 * random.float());
  const seen = Array.from({ length: 4_000 }, draw);
  const idle = Array.from({ length: 1_000 }, draw);
  for (const gap of seen) gaps.observe(gap);
  gaps.takeIdle(idle, 0);
  for (let count = 0; count < 50; count++) {
    const ms = 100 * Math.exp(4.5 * random.float());
    const later = seen.filter((gap) => gap > ms).length;
    const still = idle.filter((gap) => gap > ms).length;
    expect(Math.abs(gaps.shareAfter(ms) - later / (later + still))).toBeLessThan(0.03);
  }
});
