import { expect, test } from "vitest";
import { createScale } from "../../src/plot.ts";

const range = [0, 100] as const;

test("a linear axis runs from its lowest value to its highest", () => {
  const scale = createScale({ kind: "linear", values: [30, 10, 20], range, wantedTicks: 4 });
  expect([10, 20, 30].map((value) => scale.place(value))).toEqual([0, 50, 100]);
  expect(scale.ticks.map(({ value }) => value)).toEqual([10, 15, 20, 25, 30]);
});

test("it may begin elsewhere, and run downwards", () => {
  const scale = createScale({ kind: "linear", values: [50, 100], range: [200, 0], wantedTicks: 4, from: 0 });
  expect([0, 50, 100].map((value) => scale.place(value))).toEqual([200, 100, 0]);
});

test("what lies below its beginning widens it", () => {
  const scale = createScale({ kind: "linear", values: [-100, 100], range, wantedTicks: 4, from: 0 });
  expect(scale.place(0)).toBe(50);
});

test("a logarithmic axis gives equal factors equal room", () => {
  const scale = createScale({ kind: "log", values: [1, 100], range, wantedTicks: 4 });
  expect(scale.place(10)).toBeCloseTo(50, 9);
  expect(scale.place(Math.sqrt(10))).toBeCloseTo(25, 9);
});

test("values without a place do not disturb the others", () => {
  const log = createScale({ kind: "log", values: [0, -3, Number.NaN, 1, 100], range, wantedTicks: 4 });
  expect([log.place(0), log.place(-3), log.place(Number.NaN)]).toEqual([Number.NaN, Number.NaN, Number.NaN]);
  expect(log.place(10)).toBeCloseTo(50, 9);
  const linear = createScale({
    kind: "linear",
    values: [Number.NaN, 0, 4, Number.POSITIVE_INFINITY],
    range,
    wantedTicks: 4,
  });
  expect([linear.place(2), linear.place(Number.POSITIVE_INFINITY)]).toEqual([50, Number.NaN]);
});

test.each([
  { kind: "linear", values: [5], low: 2.5, high: 7.5 },
  { kind: "linear", values: [0, 0], low: -1, high: 1 },
  { kind: "linear", values: [], low: 0, high: 1 },
  { kind: "log", values: [10], low: 5, high: 20 },
  { kind: "log", values: [0], low: 0.1, high: 1 },
] as const)("$kind, $values: an axis from $low to $high", ({ kind, values, low, high }) => {
  const scale = createScale({ kind, values, range, wantedTicks: 4 });
  expect([scale.place(low), scale.place(high)]).toEqual([0, 100]);
  expect(scale.ticks.length).toBeGreaterThan(0);
});

test("a lone value above a beginning that is given", () => {
  const scale = createScale({ kind: "linear", values: [0], range, wantedTicks: 4, from: 0 });
  expect(scale.place(0)).toBe(0);
  expect(scale.place(1)).toBe(100);
});

test("marks that are given stand in place of round values, where they have a place", () => {
  const scale = createScale({ kind: "log", values: [1, 8], range, wantedTicks: 4, marks: [0, 1, 2, 4, 8, 1_024] });
  expect(scale.ticks.map(({ label }) => label)).toEqual(["1", "2", "4", "8"]);
  expect(scale.ticks.map(({ value }) => Math.round(scale.place(value)))).toEqual([0, 33, 67, 100]);
});
