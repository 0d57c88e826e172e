import { describe, expect, test } from "vitest";
import { createSeededRandom, NormalEquations } from "../src/index.ts";

describe.each([1, 2, 3, 4])("sums for %i coefficients", (size) => {
  test("are those of all samples, each by its age and weight", () => {
    const random = createSeededRandom(size);
    const memory = 0.9;
    const equations = new NormalEquations(size, memory);
    const samples = Array.from({ length: 40 }, () => ({
      features: Array.from({ length: size }, () => 4 * random.float() - 2),
      value: 10 * random.float(),
      weight: 0.1 + random.float(),
    }));
    for (const { features, value, weight } of samples) equations.add(features, value, weight);
    let later = samples.reduce((sum, { weight }) => sum + weight, 0);
    let total = 0;
    const matrix = new Array<number>(size * size).fill(0);
    const right = new Array<number>(size).fill(0);
    for (const { features, value, weight } of samples) {
      later -= weight;
      const counted = weight * memory ** later;
      total += counted;
      for (const [row, one] of features.entries()) {
        right[row]! += counted * one * value;
        for (const [column, other] of features.entries()) matrix[size * row + column]! += counted * one * other;
      }
    }
    expect(equations.size).toBe(size);
    expect(equations.weight).toBeCloseTo(total, 9);
    for (const [at, sum] of matrix.entries()) expect(equations.matrix[at]).toBeCloseTo(sum, 9);
    for (const [at, sum] of right.entries()) expect(equations.right[at]).toBeCloseTo(sum, 9);
  });
});

test("nothing is in them before the first sample, which weighs 1 unless it says otherwise", () => {
  const equations = new NormalEquations(2, 0.5);
  expect([equations.weight, ...equations.matrix, ...equations.right]).toEqual([0, 0, 0, 0, 0, 0, 0]);
  equations.add([1, 3], 5);
  expect([equations.weight, ...equations.matrix, ...equations.right]).toEqual([1, 1, 3, 3, 9, 5, 15]);
  equations.add([0, 0], 0, 2);
  expect([equations.weight, ...equations.matrix]).toEqual([2.25, 0.25, 0.75, 0.75, 2.25]);
});

test("a belief that is written into them is forgotten like a sample", () => {
  const equations = new NormalEquations(1, 0.5);
  equations.matrix[0] = 8;
  equations.right[0] = 16;
  equations.add([1], 3);
  expect([equations.matrix[0], equations.right[0]]).toEqual([5, 11]);
});
