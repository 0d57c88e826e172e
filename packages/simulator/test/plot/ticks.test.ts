import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { group, linearTicks, logTicks } from "../../src/plot.ts";

const labels = (ticks: readonly { readonly label: string }[]): readonly string[] => ticks.map(({ label }) => label);

test.each([
  { min: 0, max: 100, wanted: 5, expected: ["0", "20", "40", "60", "80", "100"] },
  { min: 0, max: 1, wanted: 5, expected: ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"] },
  { min: 3, max: 17, wanted: 3, expected: ["5", "10", "15"] },
  { min: -12, max: 12, wanted: 4, expected: ["-10", "0", "10"] },
  { min: 0, max: 0.003, wanted: 3, expected: ["0.000", "0.001", "0.002", "0.003"] },
  { min: 0, max: 25_000, wanted: 5, expected: ["0", "5,000", "10,000", "15,000", "20,000", "25,000"] },
])("from $min to $max: $expected", ({ min, max, wanted, expected }) => {
  expect(labels(linearTicks(min, max, wanted))).toEqual(expected);
});

test("any range has marks inside it, evenly spaced, not more than are wanted and one", () => {
  const random = createSeededRandom(4);
  for (let round = 0; round < 2_000; round++) {
    const min = (random.float() - 0.5) * 10 ** (random.integer(9) - 3);
    const max = min + random.float() * 10 ** (random.integer(9) - 3) + 1e-6 * (1 + Math.abs(min));
    const wanted = 2 + random.integer(9);
    const values = linearTicks(min, max, wanted).map(({ value }) => value);
    const room = (max - min) * 1e-6;
    expect(values.length).toBeLessThanOrEqual(wanted + 1);
    for (const value of values) {
      expect(value).toBeGreaterThanOrEqual(min - room);
      expect(value).toBeLessThanOrEqual(max + room);
    }
    const gaps = values.slice(1).map((value, at) => value - values[at]!);
    for (const gap of gaps) expect(gap).toBeCloseTo(gaps[0]!, 9);
  }
});

test.each([
  { min: 0.01, max: 100, wanted: 5, expected: ["0.01", "0.1", "1", "10", "100"] },
  { min: 1, max: 20, wanted: 6, expected: ["1", "2", "5", "10", "20"] },
  { min: 0.5, max: 1_500, wanted: 4, expected: ["1", "10", "100", "1,000"] },
  // So narrow that it holds fewer than two of the values of a logarithmic axis: round values in their place.
  { min: 1.1, max: 1.9, wanted: 4, expected: ["1.2", "1.4", "1.6", "1.8"] },
])("logarithmic, from $min to $max: $expected", ({ min, max, wanted, expected }) => {
  expect(labels(logTicks(min, max, wanted))).toEqual(expected);
});

test("many decades are skipped evenly", () => {
  const values = logTicks(1e-6, 1e6, 4).map(({ value }) => Math.round(Math.log10(value)));
  expect(values).toEqual([-6, -3, 0, 3, 6]);
});

test("digits before the point come in threes", () => {
  expect(["1", "999", "1000", "-1234567", "1234.56789"].map(group)).toEqual([
    "1",
    "999",
    "1,000",
    "-1,234,567",
    "1,234.56789",
  ]);
});
