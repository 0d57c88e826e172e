import { expect, test } from "vitest";
import { addSample, maxSamples, ratesOf, type TrafficSample } from "../src/model/rates.ts";
import { counts } from "./fixtures.ts";

const sample = (atMs: number, changes: Parameters<typeof counts>[0]): TrafficSample => ({
  atMs,
  counts: counts(changes),
});

test("rates are differences over five seconds", () => {
  const samples = [
    sample(0, { requests: 0 }),
    sample(1_000, { requests: 100, promptTokens: 1_000, cachedTokens: 500, completionTokens: 50 }),
    sample(6_000, {
      ...{ requests: 150, failed: 5, refused: 15, cut: 10, promptTokens: 2_000, cachedTokens: 1_400 },
      completionTokens: 550,
      ...{ firstBytes: 10, firstByteMs: 2_000 },
    }),
  ];
  expect(ratesOf([samples], 6_000)).toEqual({
    ...{
      requestsPerS: 10,
      failedPerS: 1,
      refusedPerS: 3,
      cutPerS: 2,
      outputTokensPerS: 100,
      cachedShare: 0.9,
      firstByteMs: 200,
    },
  });
});

test("routers are added up; a share is of all tokens, not a mean of shares", () => {
  const router = (requests: number, promptTokens: number, cachedTokens: number) => [
    sample(0, {}),
    sample(5_000, { requests, promptTokens, cachedTokens }),
  ];
  const { requestsPerS, cachedShare } = ratesOf([router(10, 900, 900), router(20, 100, 0)], 5_000);
  expect([requestsPerS, cachedShare]).toEqual([6, 0.9]);
});

test("a router that tells nothing new, as nothing happens, falls to zero, and its shares to nothing", () => {
  const samples = [sample(0, {}), sample(1_000, { requests: 10, promptTokens: 10, cachedTokens: 5 })];
  expect(ratesOf([samples], 2_000).requestsPerS).toBe(5);
  expect(ratesOf([samples], 7_000)).toMatchObject({ requestsPerS: 0, cachedShare: null });
});

test("of one sample, or none, nothing is known", () => {
  expect(ratesOf([[sample(0, { requests: 7 })], []], 1_000)).toMatchObject({ requestsPerS: 0, cachedShare: null });
});

test("a router that counts from zero again was restarted: what it had counted is let go", () => {
  const before = addSample([], sample(0, { requests: 50 }));
  expect(addSample(before, sample(1_000, { requests: 50 }))).toHaveLength(2);
  expect(addSample(before, sample(1_000, { requests: 2 }))).toHaveLength(1);
});

test("so many samples are kept, and not one more", () => {
  let samples: readonly TrafficSample[] = [];
  for (let at = 0; at <= maxSamples; at++) samples = addSample(samples, sample(at, { requests: at }));
  expect([samples.length, samples[0]?.atMs]).toEqual([maxSamples, 1]);
});
