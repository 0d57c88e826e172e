import { createSeededRandom, type Random } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { FetchRates, maxFetchTargets, priorFetch } from "../../src/work/fetch-rates.ts";
import type { SlowTier } from "../../src/work/learned-times.ts";
import { targetOf } from "./synthetic-engine.ts";

const seeds = [1, 2, 3, 4, 5, 6];
const nothing = { cpu: 0, disk: 0, external: 0, peer: 0 };
/** Engines that compute a thousand tokens in 80 ms: of CPU memory 20 ms are believed, of a disk 60, of a pool 40. */
const belief = priorFetch(0.08);

interface Lesson {
  readonly random: Random;
  /** True milliseconds for a thousand tokens. */
  readonly truth: Partial<Record<SlowTier, number>>;
  readonly target?: number;
  /** How far what is believed of computing is off. */
  readonly bias?: number;
  readonly tokens?: () => number;
}

/** Has a target fetch so many prompts; what they take is up to 15 % off. */
function teach(rates: FetchRates, count: number, { random, truth, target = 0, bias = 1, tokens }: Lesson): void {
  for (let at = 0; at < count; at++) {
    const fetched = { ...nothing };
    let fetchMs = 0;
    for (const [tier, ms] of Object.entries(truth) as [SlowTier, number][]) {
      fetched[tier] = tokens?.() ?? 500 + random.integer(8_000);
      fetchMs += (ms * fetched[tier]) / 1e3;
    }
    const computeMs = 20 + random.integer(80);
    const elapsedMs = (fetchMs + computeMs) * (0.85 + 0.3 * random.float());
    rates.observe(targetOf(target), { fetched, elapsedMs, computeMs: bias * computeMs, atMs: at }, belief);
  }
}

const rateOf = (rates: FetchRates, tier: SlowTier): number => rates.own(tier, belief)?.msPerKilotoken ?? Number.NaN;
const factorOf = (rates: FetchRates, target = targetOf(0), tier: SlowTier = "cpu"): number =>
  rates.msPerKilotoken(target, tier, belief) / rateOf(rates, tier);

test("before the first sample nothing is known of any tier; what is believed are the usual credits", () => {
  const rates = new FetchRates();
  expect(belief).toEqual({ cpu: 20, disk: 60, external: 40, peer: 20 });
  expect(priorFetch(0)).toEqual({ cpu: 0.25, disk: 0.75, external: 0.5, peer: 0.25 });
  for (const tier of ["cpu", "disk", "external", "peer"] as const) expect(rates.own(tier, belief)).toBeUndefined();
  expect(rates.msPerKilotoken(targetOf(0), "cpu", belief)).toBeNaN();
});

describe("what fetching takes is known after 60 samples", () => {
  test.each([
    ["a fast link", 3.1],
    ["one as it is believed", 20],
    ["a slow one", 60],
    ["one that is slower than computing", 300],
  ])("%s", (_, truth) => {
    for (const seed of seeds) {
      const rates = new FetchRates();
      teach(rates, 60, { random: createSeededRandom(seed), truth: { cpu: truth } });
      expect(Math.abs(rateOf(rates, "cpu") - truth), `seed ${seed}`).toBeLessThan(0.15 * truth + 1.5);
      expect(rates.own("disk", belief)).toBeUndefined();
      expect(rates.samples).toBe(60);
    }
  });

  test.each(seeds)("of two tiers that prompts are in at once, and of either alone, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const rates = new FetchRates();
    const truth = { cpu: 5, external: 70 };
    for (let round = 0; round < 60; round++) {
      teach(rates, 1, { random, truth });
      teach(rates, 1, { random, truth: { cpu: 5 } });
      teach(rates, 1, { random, truth: { external: 70 } });
    }
    expect(Math.abs(rateOf(rates, "cpu") - 5)).toBeLessThan(2.5);
    expect(Math.abs(rateOf(rates, "external") / 70 - 1)).toBeLessThan(0.15);
  });

  test.each(seeds)("though one in ten took 5 to 50 times as long for another reason, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const rates = new FetchRates();
    for (let at = 0; at < 150; at++) {
      const fetched = { ...nothing, cpu: 4_000 };
      const late = at % 10 === seed % 10 ? 5 * 10 ** random.float() : 1;
      const elapsedMs = (50 + 40) * (0.85 + 0.3 * random.float()) * late;
      rates.observe(targetOf(0), { fetched, elapsedMs, computeMs: 40, atMs: at }, belief);
    }
    expect(rateOf(rates, "cpu")).toBeGreaterThan(10);
    expect(rateOf(rates, "cpu")).toBeLessThan(18);
  });
});

test("one sample is not believed against all that is", () => {
  const rates = new FetchRates();
  rates.observe(
    targetOf(0),
    { fetched: { ...nothing, cpu: 8_000 }, elapsedMs: 60_000, computeMs: 40, atMs: 0 },
    belief,
  );
  expect(rateOf(rates, "cpu")).toBeLessThan(60);
});

test("a link that changes is followed", () => {
  const random = createSeededRandom(2);
  const rates = new FetchRates();
  teach(rates, 400, { random, truth: { cpu: 3 } });
  teach(rates, 600, { random, truth: { cpu: 50 } });
  expect(Math.abs(rateOf(rates, "cpu") / 50 - 1)).toBeLessThan(0.1);
  teach(rates, 1_000, { random, truth: { cpu: 3 } });
  expect(rateOf(rates, "cpu")).toBeLessThan(5);
});

test("a prompt of which fetching is a small part tells nothing, however many there are", () => {
  const random = createSeededRandom(3);
  const rates = new FetchRates();
  // 16 tokens beside computing that takes a fifth longer than is expected.
  teach(rates, 2_000, { random, truth: { cpu: 3 }, bias: 0.8, tokens: () => 16 });
  expect(rates.own("cpu", belief)).toBeUndefined();
  expect(rates.samples).toBe(0);
});

describe("targets whose links differ", () => {
  test.each(seeds)("one of four with a link that is four times slower is told from the others, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const rates = new FetchRates();
    for (let round = 0; round < 80; round++) {
      for (let target = 0; target < 4; target++)
        teach(rates, 1, { random, truth: { cpu: target === 3 ? 40 : 10 }, target });
    }
    const pool = rateOf(rates, "cpu");
    const of = (target: number): number => pool * factorOf(rates, targetOf(target));
    expect(Math.abs(of(3) / 40 - 1)).toBeLessThan(0.25);
    for (const target of [0, 1, 2]) expect(of(target)).toBeLessThan(pool);
    expect(factorOf(rates, { index: 3, key: "another" })).toBe(1);
    expect(rates.msPerKilotoken(targetOf(3), "disk", belief)).toBeNaN();
  });

  test("alike ones look alike", () => {
    const random = createSeededRandom(5);
    const rates = new FetchRates();
    for (let round = 0; round < 100; round++) {
      for (let target = 0; target < 8; target++) {
        teach(rates, 1, { random, truth: { cpu: 25 }, target });
        if (round > 10) expect(factorOf(rates, targetOf(target))).toBe(1);
      }
    }
  });

  test("from the bound on they are like their pool", () => {
    const random = createSeededRandom(6);
    const rates = new FetchRates();
    for (let round = 0; round < 80; round++) {
      for (let target = 0; target < 4; target++) teach(rates, 1, { random, truth: { cpu: 10 }, target });
      for (const target of [maxFetchTargets - 1, maxFetchTargets])
        teach(rates, 1, { random, truth: { cpu: 60 }, target });
    }
    expect(factorOf(rates, targetOf(maxFetchTargets - 1))).toBeGreaterThan(1.5);
    expect(factorOf(rates, targetOf(maxFetchTargets))).toBe(1);
  });
});

test.each([
  ["no time", { elapsedMs: Number.NaN }],
  ["a negative time", { elapsedMs: -1 }],
  ["an endless time", { elapsedMs: Number.POSITIVE_INFINITY }],
  ["no computing", { computeMs: Number.NaN }],
  ["nothing fetched", { fetched: nothing }],
  ["no number of tokens", { fetched: { ...nothing, cpu: Number.NaN } }],
])("a sample of %s is left out", (_, wrong) => {
  const random = createSeededRandom(1);
  const rates = new FetchRates();
  teach(rates, 30, { random, truth: { cpu: 10 } });
  const before = rateOf(rates, "cpu");
  const sample = { fetched: { ...nothing, cpu: 100 }, elapsedMs: 10, computeMs: 4, atMs: 99 };
  rates.observe(targetOf(0), { ...sample, ...wrong }, belief);
  expect(rateOf(rates, "cpu")).toBe(before);
  expect(rates.samples).toBe(30);
});

test("first tokens that come at once are fetched in no time, and never in less", () => {
  const rates = new FetchRates();
  for (let at = 0; at < 200; at++) {
    rates.observe(targetOf(0), { fetched: { ...nothing, disk: 5_000 }, elapsedMs: 0, computeMs: 80, atMs: at }, belief);
  }
  expect(rateOf(rates, "disk")).toBeGreaterThanOrEqual(0);
  expect(rateOf(rates, "disk")).toBeLessThan(3);
});
