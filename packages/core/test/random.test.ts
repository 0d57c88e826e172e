import { expect, test } from "vitest";
import { backoffDelayMs, createSeededRandom, systemRandom } from "../src/index.ts";

test("a seed gives one sequence, another seed another one", () => {
  const draw = (seed: number): number[] => {
    const random = createSeededRandom(seed);
    return Array.from({ length: 50 }, () => random.float());
  };
  expect(draw(7)).toEqual(draw(7));
  expect(draw(7)).not.toEqual(draw(8));
  expect(draw(0)).not.toEqual(draw(1));
});

test.each([
  ["seeded", createSeededRandom(42)],
  ["system", systemRandom],
])("%s integers are uniform and stay below the bound", (_, random) => {
  const counts = new Array<number>(10).fill(0);
  const draws = 50_000;
  for (let i = 0; i < draws; i++) {
    const drawn = random.integer(10);
    counts[drawn] = (counts[drawn] ?? 0) + 1;
  }
  expect(counts).toHaveLength(10);
  const expected = draws / 10;
  const chiSquare = counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
  // 9 degrees of freedom: beyond 40 with a probability below 1e-5.
  expect(chiSquare).toBeLessThan(40);
});

test("the backoff doubles from its first delay to its ceiling, with jitter in the upper half", () => {
  const options = { firstDelayMs: 100, maxDelayMs: 1_000 };
  const low = { float: () => 0, integer: () => 0 };
  const high = { float: () => 0.999_999, integer: () => 0 };
  expect([0, 1, 2, 3, 4, 500].map((attempt) => backoffDelayMs(attempt, options, low))).toEqual([
    50, 100, 200, 400, 500, 500,
  ]);
  expect(backoffDelayMs(2, options, high)).toBeCloseTo(400, 2);
  expect(backoffDelayMs(2_000, options, high)).toBeLessThanOrEqual(1_000);
});
