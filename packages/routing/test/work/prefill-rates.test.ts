import { createSeededRandom } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { maxRatedTargets, PrefillRates } from "../../src/work/prefill-rates.ts";
import { anyPrompt, errorOf, measured, targetOf, teach, usualEngine } from "./synthetic-engine.ts";

const seeds = fixedSeeds(8, 1);
const slow = { fixedMs: 24, msPerToken: 0.12, msPerTokenPair: 3e-6 };
const scaled = (by: number) => ({
  fixedMs: usualEngine.fixedMs * by,
  msPerToken: usualEngine.msPerToken * by,
  msPerTokenPair: usualEngine.msPerTokenPair * by,
});

test("as long as nothing is learned an engine computes 8,000 tokens a second", () => {
  const rates = new PrefillRates();
  expect(rates.samples).toBe(0);
  expect(rates.msPerToken).toBe(0.125);
  expect(rates.factorOf(targetOf(3))).toBe(1);
  const part = { uncachedTokens: 1_000, matchedTokens: 500 };
  // A thousand tokens, each of which attends to the five hundred before them and to half of its own.
  expect(rates.workMs(targetOf(0), part)).toBeCloseTo(125 + 1_000 * 1_000 * 1e-6, 9);
});

describe("after 50 samples work is known within 10 %", () => {
  test.each(seeds)("of engines like any, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const rates = new PrefillRates();
    teach(rates, 50, { random });
    expect(errorOf(rates, { random })).toBeLessThan(0.1);
    expect(rates.samples).toBe(50);
  });

  test.each([0.1, 20])("of engines that take %d times as long", (by) => {
    for (const seed of seeds) {
      const random = createSeededRandom(seed);
      const rates = new PrefillRates();
      const truth = scaled(by);
      teach(rates, 50, { random, truth });
      expect(errorOf(rates, { random, truth }), `seed ${seed}`).toBeLessThan(0.1);
    }
  });

  test.each(seeds)("though one in ten took 5 to 50 times as long for another reason, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const rates = new PrefillRates();
    for (let at = 0; at < 50; at++) {
      const sample = measured(usualEngine, anyPrompt(random), random);
      const elapsedMs = sample.elapsedMs * (at % 10 === seed % 10 ? 5 * 10 ** random.float() : 1);
      rates.observe(targetOf(0), { ...sample, elapsedMs });
    }
    expect(errorOf(rates, { random })).toBeLessThan(0.1);
    expect(rates.factorOf(targetOf(0))).toBe(1);
  });
});

describe("an engine that attends dearly, beside what its tokens cost, is known from a few hundred prompts", () => {
  // A mixture of experts computes few of its weights for a token; pairs cost fourteen times what is believed beside tokens.
  const dear = { fixedMs: 20, msPerToken: 0.0094, msPerTokenPair: 0.98e-6 };

  test.each(seeds)("seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const rates = new PrefillRates();
    for (let at = 0; at < 400; at++) {
      const uncachedTokens = Math.round(500 * 200 ** (random.float() ** 2));
      rates.observe(targetOf(at % 8), measured(dear, { uncachedTokens, matchedTokens: 0 }, random));
    }
    for (const tokens of [5_000, 20_000, 60_000, 100_000]) {
      const part = { uncachedTokens: tokens, matchedTokens: 0 };
      const truthMs = dear.fixedMs + dear.msPerToken * tokens + (dear.msPerTokenPair * tokens ** 2) / 2;
      const ratio = (rates.fixedMs + rates.workMs(targetOf(0), part)) / truthMs;
      expect(Math.abs(ratio - 1), `${tokens} tokens: ${ratio}`).toBeLessThan(0.15);
    }
  });
});

test("one sample is not believed against all that is, and a few that agree are", () => {
  const rates = new PrefillRates();
  const part = { uncachedTokens: 4_000, matchedTokens: 0 };
  const believedMs = rates.workMs(targetOf(0), part);
  const observe = () => rates.observe(targetOf(0), { ...part, elapsedMs: 10 * believedMs, hasWaited: false });
  observe();
  expect(rates.workMs(targetOf(0), part)).toBeLessThan(4 * believedMs);
  for (let at = 0; at < 4; at++) observe();
  expect(rates.workMs(targetOf(0), part)).toBeGreaterThan(8 * believedMs);
});

describe("engines that differ", () => {
  test.each(seeds)("one of four that takes twice as long is told from the others, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const rates = new PrefillRates();
    for (let round = 0; round < 150; round++) {
      for (const index of [0, 1, 2]) teach(rates, 1, { random, target: targetOf(index) });
      teach(rates, 1, { random, target: targetOf(3), truth: slow });
    }
    for (const index of [0, 1, 2]) {
      expect(rates.factorOf(targetOf(index))).toBe(1);
      expect(errorOf(rates, { random, target: targetOf(index) })).toBeLessThan(0.15);
    }
    expect(errorOf(rates, { random, target: targetOf(3), truth: slow })).toBeLessThan(0.15);
  });

  test("engines that are alike look alike, however long one listens", () => {
    const random = createSeededRandom(6);
    const rates = new PrefillRates();
    for (let round = 0; round < 400; round++) {
      for (let index = 0; index < 8; index++) {
        teach(rates, 1, { random, target: targetOf(index) });
        if (round > 10) expect(rates.factorOf(targetOf(index))).toBe(1);
      }
    }
  });

  test("one that becomes slower is found to be, and found again when it recovers", () => {
    const random = createSeededRandom(8);
    const rates = new PrefillRates();
    const all = (count: number, truth = usualEngine) => {
      for (let at = 0; at < count; at++) {
        teach(rates, 1, { random, target: targetOf(0), truth });
        for (const index of [1, 2, 3]) teach(rates, 1, { random, target: targetOf(index) });
      }
    };
    all(60);
    all(80, slow);
    expect(errorOf(rates, { random, target: targetOf(0), truth: slow })).toBeLessThan(0.15);
    all(80);
    expect(errorOf(rates, { random, target: targetOf(0) })).toBeLessThan(0.15);
  });

  test("a factor is that of the target's name: another one at its place begins with none", () => {
    const random = createSeededRandom(2);
    const rates = new PrefillRates();
    for (let round = 0; round < 80; round++) {
      teach(rates, 1, { random, target: targetOf(0), truth: scaled(3) });
      for (const index of [1, 2, 3]) teach(rates, 1, { random, target: targetOf(index) });
    }
    expect(rates.factorOf(targetOf(0))).toBeGreaterThan(2);
    const newcomer = { index: 0, key: "newcomer" };
    expect(rates.factorOf(newcomer)).toBe(1);
    teach(rates, 1, { random, target: newcomer });
    expect(rates.factorOf(newcomer)).toBe(1);
    expect(rates.factorOf(targetOf(0))).toBe(1);
  });
});

test("a pool whose engines all become slower is known anew", () => {
  const random = createSeededRandom(5);
  const rates = new PrefillRates();
  const all = (count: number, truth = usualEngine) => {
    for (let at = 0; at < count; at++) teach(rates, 1, { random, target: targetOf(at % 4), truth });
  };
  all(1_000);
  all(400, scaled(2.5));
  for (const index of [0, 1, 2, 3]) {
    expect(errorOf(rates, { random, target: targetOf(index), truth: scaled(2.5) })).toBeLessThan(0.15);
  }
});

test("of prompts that have waited the pool learns less, and a target nothing", () => {
  const random = createSeededRandom(1);
  const rates = new PrefillRates();
  teach(rates, 100, { random });
  const part = { uncachedTokens: 2_000, matchedTokens: 0 };
  const before = rates.workMs(targetOf(1), part);
  const sample = { ...part, elapsedMs: 3 * before, hasWaited: true };
  for (let at = 0; at < 20; at++) rates.observe(targetOf(1), sample);
  expect(rates.factorOf(targetOf(1))).toBe(1);
  expect(rates.workMs(targetOf(1), part)).toBeLessThan(1.1 * before);
});

test("prompts that are all alike are known, though nothing tells what a token costs from what a prompt does", () => {
  const rates = new PrefillRates();
  const part = { uncachedTokens: 3_000, matchedTokens: 1_000 };
  for (let at = 0; at < 5_000; at++) rates.observe(targetOf(0), { ...part, elapsedMs: 240, hasWaited: false });
  expect(rates.fixedMs + rates.workMs(targetOf(0), part)).toBeCloseTo(240, 0);
  expect(rates.workMs(targetOf(0), part)).toBeGreaterThan(180);
});

test.each([
  ["a negative time", { elapsedMs: -1 }],
  ["an endless time", { elapsedMs: Number.POSITIVE_INFINITY }],
  ["no length", { uncachedTokens: Number.NaN }],
  ["no match", { matchedTokens: Number.NaN }],
])("a sample of %s is left out", (_, wrong) => {
  const random = createSeededRandom(1);
  const rates = new PrefillRates();
  for (const count of [5, 40]) {
    teach(rates, count, { random });
    const before = [rates.msPerToken, rates.msPerTokenPair, rates.fixedMs, rates.samples];
    rates.observe(targetOf(0), { uncachedTokens: 100, matchedTokens: 0, elapsedMs: 10, hasWaited: false, ...wrong });
    expect([rates.msPerToken, rates.msPerTokenPair, rates.fixedMs, rates.samples]).toEqual(before);
  }
});

test("first tokens that come at once, as if nothing were to be computed, do little harm", () => {
  const random = createSeededRandom(1);
  const rates = new PrefillRates();
  const atOnce = { uncachedTokens: 100, matchedTokens: 0, elapsedMs: 0, hasWaited: false };
  for (const seen of [0, 200]) {
    for (let at = 0; at < 5; at++) rates.observe(targetOf(0), atOnce);
    teach(rates, 200 + seen, { random });
    expect(errorOf(rates, { random })).toBeLessThan(0.15);
  }
});

test("targets from the bound on are like their pool", () => {
  const random = createSeededRandom(3);
  const rates = new PrefillRates();
  const [last, beyond] = [targetOf(maxRatedTargets - 1), targetOf(maxRatedTargets)];
  for (let round = 0; round < 100; round++) {
    for (const index of [0, 1, 2, 3]) teach(rates, 1, { random, target: targetOf(index) });
    for (const target of [last, beyond]) teach(rates, 1, { random, target, truth: scaled(3) });
  }
  expect(rates.factorOf(last)).toBeGreaterThan(2);
  expect(rates.factorOf(beyond)).toBe(1);
});
