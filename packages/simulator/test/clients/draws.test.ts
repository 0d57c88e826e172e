import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import {
  createZipf,
  exponential,
  geometric,
  logNormal,
  logNormalOfMean,
  logUniform,
  ownRandom,
  shuffled,
} from "../../src/clients/draws.ts";

const count = 40_000;

const drawn = (draw: (random: ReturnType<typeof createSeededRandom>) => number): readonly number[] => {
  const random = createSeededRandom(11);
  return Array.from({ length: count }, () => draw(random));
};

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;

describe("draws", () => {
  test("exponential: mean and spread are the mean", () => {
    const values = drawn((random) => exponential(50, random));
    expect(mean(values)).toBeCloseTo(50, -1);
    expect(Math.sqrt(mean(values.map((value) => (value - 50) ** 2)))).toBeCloseTo(50, -1);
    expect(Math.min(...values)).toBeGreaterThanOrEqual(0);
  });

  test.each([0, 0.35, 4])("geometric with mean %d: each further one has the same odds", (wanted) => {
    const values = drawn((random) => geometric(wanted, random));
    expect(Math.abs(mean(values) - wanted)).toBeLessThan(0.03 * (1 + wanted));
    const atLeast = (least: number): number => values.filter((value) => value >= least).length;
    if (wanted === 0) expect(atLeast(1)).toBe(0);
    else expect(atLeast(2) / atLeast(1)).toBeCloseTo(atLeast(1) / count, 1);
    expect(values.every((value) => Number.isInteger(value) && value >= 0)).toBe(true);
  });

  test("log-normal: median and bounds hold, and nothing piles up at the bounds", () => {
    const values = drawn((random) => logNormal({ median: 700, sigma: 0.8, least: 200, most: 4_000 }, random));
    expect(Math.abs(median(values) / 700 - 1)).toBeLessThan(0.1);
    expect(Math.min(...values)).toBeGreaterThanOrEqual(200);
    expect(Math.max(...values)).toBeLessThanOrEqual(4_000);
    expect(values.filter((value) => value === 200 || value === 4_000)).toEqual([]);
  });

  test.each([0.3, 0.6])("log-normal of a mean, with sigma %d", (sigma) => {
    const values = drawn((random) => logNormal(logNormalOfMean(400, sigma), random));
    expect(Math.abs(mean(values) / 400 - 1)).toBeLessThan(0.02);
    expect(median(values)).toBeLessThan(400);
    expect(values.every((value) => value >= 40 && value <= 4_000)).toBe(true);
  });

  test("log-normal: bounds that the median lies far outside of end the redraws", () => {
    const draw = (least: number, most: number): number =>
      logNormal({ median: 1, sigma: 0.01, least, most }, createSeededRandom(1));
    expect(draw(100, 200)).toBe(100);
    expect(draw(0.001, 0.002)).toBe(0.002);
  });

  test("log-uniform: as many from 1 to 10 as from 10 to 100", () => {
    const values = drawn((random) => logUniform({ least: 1, most: 100 }, random));
    expect(values.filter((value) => value < 10).length / count).toBeCloseTo(0.5, 1);
    expect(values.every((value) => value >= 1 && value < 100)).toBe(true);
  });

  test("Zipf: rank r comes 1 / r times as often as the first", () => {
    const zipf = createZipf({ count: 500, exponent: 1 });
    const values = drawn((random) => zipf.draw(random));
    const often = (rank: number): number => values.filter((value) => value === rank).length;
    const harmonic = Array.from({ length: 500 }, (_, rank) => 1 / (rank + 1)).reduce((sum, part) => sum + part, 0);
    for (const rank of [0, 1, 4, 9]) {
      const expected = count / harmonic / (rank + 1);
      expect(Math.abs(often(rank) - expected)).toBeLessThan(5 * Math.sqrt(expected));
    }
    expect(Math.max(...values)).toBeLessThan(500);
  });

  test("Zipf with exponent 0 is uniform, and one rank is always drawn", () => {
    const flat = createZipf({ count: 4, exponent: 0 });
    const values = drawn((random) => flat.draw(random));
    for (let rank = 0; rank < 4; rank++) {
      expect(values.filter((value) => value === rank).length / count).toBeCloseTo(0.25, 1);
    }
    expect(createZipf({ count: 1, exponent: 1 }).draw(createSeededRandom(1))).toBe(0);
  });

  test("each owner has randomness of its own, the same for the same seed", () => {
    const firsts = Array.from({ length: 10_000 }, (_, owner) => ownRandom(1, owner).float());
    expect(new Set(firsts).size).toBeGreaterThan(9_980);
    expect(mean(firsts)).toBeCloseTo(0.5, 1);
    expect(ownRandom(1, 5).float()).toBe(firsts[5]);
    expect(ownRandom(2, 5).float()).not.toBe(firsts[5]);
  });

  test("a shuffle has each number once, in another order for another seed", () => {
    const order = shuffled(1_000, 1);
    expect(order.toSorted()).toEqual(Uint32Array.from({ length: 1_000 }, (_, at) => at));
    expect(order).toEqual(shuffled(1_000, 1));
    expect(order).not.toEqual(shuffled(1_000, 2));
    expect(order.filter((value, at) => value === at).length).toBeLessThan(10);
    expect(shuffled(0, 1).length).toBe(0);
  });
});
