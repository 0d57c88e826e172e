import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { jitterArrivals, mooncakeStepMs, poissonArrivals } from "../../src/workload/index.ts";
import { traceRequest } from "./helpers.ts";

function take(arrivals: Iterable<number>, count: number): number[] {
  const taken: number[] = [];
  for (const atMs of arrivals) {
    taken.push(atMs);
    if (taken.length === count) break;
  }
  return taken;
}

test("Poisson arrivals have the rate, and gaps as spread out as their mean", () => {
  const times = take(poissonArrivals(50, createSeededRandom(4)), 20_000);
  const gaps = times.map((atMs, i) => atMs - (times[i - 1] ?? 0));
  const mean = times.at(-1)! / times.length;
  const deviation = Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length);
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(0);
  expect(Math.abs(mean / 20 - 1)).toBeLessThan(0.03);
  expect(Math.abs(deviation / mean - 1)).toBeLessThan(0.03);
  // A gap above its mean has probability 1/e.
  expect(Math.abs(gaps.filter((gap) => gap > mean).length / gaps.length - Math.exp(-1))).toBeLessThan(0.015);
  expect(take(poissonArrivals(50, createSeededRandom(4)), 100)).toEqual(times.slice(0, 100));
});

test("jitter spreads every step over its three seconds, in order, and touches nothing else", () => {
  const rounded = Array.from({ length: 4_000 }, (_, i) =>
    traceRequest({ index: i, arrivalMs: Math.floor(i / 40) * 3_000 }),
  );
  const spread = jitterArrivals(rounded, { stepMs: mooncakeStepMs, random: createSeededRandom(8) });
  const thirds = [0, 0, 0];
  for (const [i, request] of spread.entries()) {
    const withinMs = request.arrivalMs - rounded[i]!.arrivalMs;
    expect(withinMs).toBeGreaterThanOrEqual(0);
    expect(withinMs).toBeLessThan(3_000);
    expect(request.arrivalMs).toBeGreaterThanOrEqual(spread[i - 1]?.arrivalMs ?? 0);
    expect({ ...request, arrivalMs: rounded[i]!.arrivalMs }).toEqual(rounded[i]);
    thirds[Math.floor(withinMs / 1_000)]! += 1;
  }
  for (const count of thirds) expect(Math.abs(count - 4_000 / 3)).toBeLessThan(100);
});

test("times a few milliseconds off belong to the step they are nearest to", () => {
  const requests = [0, 3_000, 5_999, 6_000, 9_002].map((arrivalMs, index) => traceRequest({ index, arrivalMs }));
  const steps = jitterArrivals(requests, { stepMs: 3_000, random: createSeededRandom(1) }).map((request) =>
    Math.floor(request.arrivalMs / 3_000),
  );
  expect(steps).toEqual([0, 1, 2, 2, 3]);
});

test("the same seed gives the same jitter, another seed another", () => {
  const requests = Array.from({ length: 10 }, (_, index) => traceRequest({ index }));
  const jitter = (seed: number) => jitterArrivals(requests, { stepMs: 3_000, random: createSeededRandom(seed) });
  expect(jitter(5)).toEqual(jitter(5));
  expect(jitter(5)).not.toEqual(jitter(6));
  expect(jitterArrivals([], { stepMs: 3_000, random: createSeededRandom(1) })).toEqual([]);
});
