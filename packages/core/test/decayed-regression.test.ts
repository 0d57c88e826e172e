import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import {
  copyOfSums,
  createSeededRandom,
  DecayedRegression,
  type Moments,
  type Random,
  type Sample,
  sumsOf,
} from "../src/index.ts";

describe.each([1, 2, 3, 4])("sums for %i coefficients", (size) => {
  test("are those of all samples, each by its age and weight", () => {
    const random = createSeededRandom(size);
    const memory = 0.9;
    const equations = new DecayedRegression(new Array<number>(size).fill(1), memory);
    const samples = Array.from({ length: 40 }, () => ({
      features: Array.from({ length: size }, () => 4 * random.float() - 2),
      value: 10 * random.float(),
      weight: 0.1 + random.float(),
    }));
    for (const sample of samples) equations.add(sample);
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
    expect(equations.weight).toBeCloseTo(total, 9);
    for (const [at, sum] of matrix.entries()) expect(equations.matrix[at]).toBeCloseTo(sum, 9);
    for (const [at, sum] of right.entries()) expect(equations.right[at]).toBeCloseTo(sum, 9);
  });
});

test("nothing is in them before the first sample, and peers' samples make earlier ones older", () => {
  const equations = new DecayedRegression([1, 1], 0.5);
  expect([equations.weight, ...equations.matrix, ...equations.right]).toEqual([0, 0, 0, 0, 0, 0, 0]);
  equations.add({ features: [1, 3], value: 5, weight: 1 });
  expect([equations.weight, ...equations.matrix, ...equations.right]).toEqual([1, 1, 3, 3, 9, 5, 15]);
  equations.add({ features: [0, 0], value: 0, weight: 2 });
  expect([equations.weight, ...equations.matrix]).toEqual([2.25, 0.25, 0.75, 0.75, 2.25]);
  equations.add({ features: [0, 0], value: 0, weight: 1 }, 3);
  expect(equations.weight).toBe(2.25 / 16 + 1);
});

type Three = readonly [number, number, number];

interface ThreeSample extends Sample {
  readonly features: Three;
}

const belief: Three = [2, 1, 5];
const firmness: Three = [1, 0.5, 0.01];

const dot = (one: Three, other: Three): number => one[0] * other[0] + one[1] * other[1] + one[2] * other[2];

/** What the fit minimises, said plainly: the belief as parts of three samples, and every sample by its age. */
function lossOf(coefficients: Three, samples: readonly ThreeSample[], memory: number): number {
  const total = samples.reduce((sum, { weight }) => sum + weight, 0);
  let loss =
    belief.reduce((sum, one, at) => sum + firmness[at]! * (coefficients[at]! / one - 1) ** 2, 0) * memory ** total;
  let later = total;
  for (const { features, value, weight } of samples) {
    later -= weight;
    loss += memory ** later * weight * (dot(features, coefficients) - value) ** 2;
  }
  return loss;
}

/** The least loss by a search that goes ever finer: slow and sure, for the loss has one valley. */
function naiveFit(samples: readonly ThreeSample[], memory: number): Three {
  let best: [number, number, number] = [...belief];
  let least = lossOf(best, samples, memory);
  for (let step = 1; step > 1e-7; ) {
    let isBetter = false;
    for (let move = 0; move < 27; move++) {
      const moved = best.map((one, at) => Math.max(0, one + step * ((Math.floor(move / 3 ** at) % 3) - 1)));
      const loss = lossOf(moved as [number, number, number], samples, memory);
      if (loss >= least) continue;
      least = loss;
      best = moved as [number, number, number];
      isBetter = true;
    }
    if (!isBetter) step /= 2;
  }
  return best;
}

function samplesOf(random: Random, truth: Three, count: number): ThreeSample[] {
  return Array.from({ length: count }, () => {
    const features: Three = [random.float() * 4, random.float() ** 2 * 3, 1];
    return { features, value: dot(features, truth) * (0.8 + 0.4 * random.float()), weight: 0.2 + 0.8 * random.float() };
  });
}

/** A belief as samples, each of one feature alone. */
function priorOf(weight: number, coefficients: Three = belief, weights: Three = firmness): Moments {
  return sumsOf(
    coefficients.map((one, at) => ({
      features: coefficients.map((_, place) => (place === at ? 1 / one : 0)),
      ...{ value: 1, weight: weight * weights[at]! },
    })),
  );
}

function fitOf(
  samples: readonly ThreeSample[],
  memory: number,
  believed = belief,
  weights = firmness,
): DecayedRegression {
  const fit = new DecayedRegression(believed, memory, { first: 1, kept: memory, least: 0 });
  for (const sample of samples) {
    fit.add(sample);
    fit.weakenPrior(sample.weight);
    fit.solve(priorOf(fit.priorWeight(), believed, weights));
  }
  return fit;
}

test("begins with what is believed", () => {
  const fit = new DecayedRegression(belief, 0.99);
  expect([...fit.coefficients]).toEqual([...belief]);
  expect(fit.value([3, 2, 1])).toBe(3 * 2 + 2 * 1 + 5);
});

test("a belief is held as firmly as so many samples that say the same", () => {
  for (const [firm, expected] of [
    [1, 1.5],
    [3, 1.25],
    [1 / 3, 1.75],
    [0.01, 1.99],
  ] as const) {
    const fit = fitOf([{ features: [0.5, 0, 0], value: 2, weight: 1 }], 0.999_999, [2, 1, 5], [firm, 1, 1]);
    // The belief says 0.5 * 2 = 1 of it.
    expect(fit.value([0.5, 0, 0]), `${firm}`).toBeCloseTo(expected, 3);
  }
});

test("a feature that no sample has counts for nothing", () => {
  const fit = new DecayedRegression([7, 7], 0.9);
  fit.add({ features: [2, 0], value: 6, weight: 1 });
  expect([...fit.solve(sumsOf([{ features: [0, 0], value: 0, weight: 1 }]))]).toEqual([3, 0]);
});

test("a line that would begin below zero is the best of those that begin at zero", () => {
  const line = new DecayedRegression([1, 1], 0.9);
  const samples = [2, 4, 9, 12].map((x) => ({ features: [1, x], value: Math.max(0, x - 3), weight: 1 }));
  for (const sample of samples) line.add(sample);
  const [base, slope] = line.solve({ matrix: [0, 0, 0, 0], right: [0, 0] });
  const weightOf = (at: number): number => 0.9 ** (3 - at);
  const sumOf = (of: (x: number, y: number) => number): number =>
    samples.reduce((sum, { features, value }, at) => sum + weightOf(at) * of(features[1]!, value), 0);
  expect(base).toBe(0);
  expect(slope).toBeCloseTo(sumOf((x, y) => x * y) / sumOf((x) => x * x), 12);
});

describe("samples of peers", () => {
  const memory = 0.97;
  const decay = { first: 1, kept: 0.9, least: 0.02 };
  const learned = (samples: readonly ThreeSample[]): DecayedRegression => {
    const fit = new DecayedRegression(belief, memory, decay);
    for (const sample of samples) {
      fit.add(sample);
      fit.weakenPrior();
    }
    return fit;
  };
  const alike = (count: number): ThreeSample[] =>
    samplesOf(createSeededRandom(count), [1, 2, 3], count).map((one) => ({ ...one, weight: 1 }));

  test.each([1, 7, 30])("weaken the prior and count in the solution like %i of its own", (count) => {
    const own = learned(alike(count));
    const joiner = new DecayedRegression(belief, memory, decay);
    const peers = { sums: copyOfSums(own), own: 1, reported: 1 };
    expect(joiner.priorWeight(peers)).toBeCloseTo(own.priorWeight(), 12);
    const [found, expected] = [
      joiner.solve(priorOf(joiner.priorWeight(peers)), peers),
      own.solve(priorOf(own.priorWeight())),
    ];
    for (const at of [0, 1, 2]) expect(found[at]).toBeCloseTo(expected[at]!, 4);
  });

  test("never take the prior away, however many they are, nor do own ones", () => {
    const many = learned(alike(400));
    expect(many.priorWeight()).toBe(0.02);
    const fit = new DecayedRegression(belief, memory, decay);
    expect(fit.priorWeight({ sums: { ...copyOfSums(many), weight: 1e6 }, own: 1, reported: 1 })).toBe(0.02);
    expect(fit.priorWeight({ sums: copyOfSums(many), own: 1, reported: 0 })).toBe(1);
  });

  test("count by their share, and so do own ones", () => {
    const [here, there] = [learned(alike(5)), learned(alike(9))];
    const peers = { sums: there, own: 0.5, reported: 0.25 };
    const total = learned([]);
    const both = {
      sums: {
        matrix: here.matrix.map((one, at) => 0.5 * one + 0.25 * there.matrix[at]!),
        right: here.right.map((one, at) => 0.5 * one + 0.25 * there.right[at]!),
        weight: 1,
      },
      own: 1,
      reported: 1,
    };
    const found = here.solve(priorOf(0.3), peers);
    const expected = total.solve(priorOf(0.3), both);
    for (const at of [0, 1, 2]) expect(found[at]).toBeCloseTo(expected[at]!, 4);
  });
});

describe("finds what a search for the least squares finds", () => {
  test.each(fixedSeeds(12))("seed %i", (seed) => {
    const random = createSeededRandom(seed);
    // Every other time the truth has a coefficient of zero, and noise would make it negative.
    const truth: Three =
      seed % 2 === 0 ? [0.1 + 4 * random.float(), 2 * random.float(), 8 * random.float()] : [3, 0, 0];
    const samples = samplesOf(random, truth, 5 + random.integer(60));
    const memory = [0.9, 0.99, 0.998][seed % 3]!;
    const found = [...fitOf(samples, memory).coefficients] as unknown as Three;
    const naive = naiveFit(samples, memory);
    const limit = lossOf(naive, samples, memory) * 1.001 + 1e-6;
    expect(lossOf(found, samples, memory), `seed ${seed}: ${found} instead of ${naive}`).toBeLessThanOrEqual(limit);
    for (const one of found) expect(one).toBeGreaterThanOrEqual(0);
  });
});

test("a sample of weight 3 counts as three of weight 1 together", () => {
  const random = createSeededRandom(5);
  const samples = samplesOf(random, [1, 2, 3], 20);
  const memory = 0.97;
  const heavy = fitOf([...samples, { features: [2, 1, 1], value: 40, weight: 3 }], memory);
  const loss = (fit: DecayedRegression) =>
    lossOf(
      [...fit.coefficients] as unknown as Three,
      [...samples, { features: [2, 1, 1], value: 40, weight: 3 }],
      memory,
    );
  const light = fitOf([...samples, { features: [2, 1, 1], value: 40, weight: 1 }], memory);
  expect(loss(heavy)).toBeLessThan(loss(light));
});

test("what was learned is forgotten as more comes in", () => {
  const random = createSeededRandom(9);
  const memory = 0.95;
  const early = samplesOf(random, [4, 3, 10], 200);
  const late = samplesOf(random, [1, 0.5, 2], 200);
  const anew = fitOf(late, memory);
  const fit = fitOf([...early, ...late], memory);
  for (let at = 0; at < 3; at++) expect(fit.coefficients[at]).toBeCloseTo(anew.coefficients[at]!, 1);
});
