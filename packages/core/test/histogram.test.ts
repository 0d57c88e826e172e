import { expect, test } from "vitest";
import { Histogram } from "../src/histogram.ts";

test("values count into the first bucket whose bound they do not exceed, and into all above", () => {
  const histogram = new Histogram([1, 2.5, 10]);
  expect(histogram.cumulative()).toEqual([0, 0, 0, 0]);
  for (const value of [0, 1, 1.5, 2.5, 9, 11]) histogram.observe(value);
  expect(histogram.cumulative()).toEqual([2, 4, 5, 6]);
  expect(histogram.sum).toBe(25);
});
