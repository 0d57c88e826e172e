import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { NonNegativeFit } from "../../src/work/least-squares.ts";

type Three = readonly [number, number, number];

interface Sample {
  readonly features: Three;
  readonly value: number;
  readonly weight: number;
}

const belief: Three = [2, 1, 5];
const firmness: Three = [1, 0.5, 0.01];

const dot = (one: Three, other: Three): number => one[0] * other[0] + one[1] * other[1] + one[2] * other[2];

/** What the fit minimises, said plainly: the belief as parts of three samples, and every sample by its age. */
function lossOf(coefficients: Three, samples: readonly Sample[], memory: number): number {
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
function naiveFit(samples: readonly Sample[], memory: number): Three {
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

function samplesOf(random: Random, truth: Three, count: number): Sample[] {
  return Array.from({ length: count }, () => {
    const features: Three = [random.float() * 4, random.float() ** 2 * 3, 1];
    return { features, value: dot(features, truth) * (0.8 + 0.4 * random.float()), weight: 0.2 + 0.8 * random.float() };
  });
}

function fitOf(samples: readonly Sample[], memory: number): NonNegativeFit {
  const fit = new NonNegativeFit(belief, firmness, memory);
  for (const { features, value, weight } of samples) fit.add(features, value, weight);
  return fit;
}

test("begins with what is believed", () => {
  const fit = new NonNegativeFit(belief, firmness, 0.99);
  expect([...fit.coefficients]).toEqual([...belief]);
  expect(fit.value(3, 2, 1)).toBe(3 * 2 + 2 * 1 + 5);
});

test("a belief is held as firmly as so many samples that say the same", () => {
  for (const [firm, expected] of [
    [1, 1.5],
    [3, 1.25],
    [1 / 3, 1.75],
    [0.01, 1.99],
  ] as const) {
    const fit = new NonNegativeFit([2, 1, 5], [firm, 1, 1], 0.999_999);
    fit.add([0.5, 0, 0], 2, 1);
    // The belief says 0.5 * 2 = 1 of it.
    expect(fit.value(0.5, 0, 0), `${firm}`).toBeCloseTo(expected, 3);
  }
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
  const loss = (fit: NonNegativeFit) =>
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
