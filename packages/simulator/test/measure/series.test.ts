import { describe, expect, test } from "vitest";
import { cachedOverTime, loadOverTime, maxSeriesPoints, ttftQuantiles } from "../../src/measure/series.ts";
import { fleetSample, simResult } from "./records.ts";

describe("quantiles of TTFT", () => {
  const results = [400, 100, 300, 200].map((ttftMs, index) => simResult({ sentMs: index * 10, ttftMs }));

  test("rise from the fastest to the slowest", () => {
    expect(ttftQuantiles(results, 4)).toEqual([
      { share: 0, seconds: 0.1 },
      { share: 1 / 3, seconds: expect.closeTo(0.2) },
      { share: 2 / 3, seconds: expect.closeTo(0.3) },
      { share: 1, seconds: 0.4 },
    ]);
    expect(ttftQuantiles(results)).toHaveLength(201);
  });

  test("leave out what failed or had no first token; without any there is no distribution", () => {
    const bad = [simResult({ ttftMs: 9_000, error: "upstream_reset" }), simResult({ firstTokenMs: Number.NaN })];
    expect(ttftQuantiles([...results, ...bad], 5)).toEqual(ttftQuantiles(results, 5));
    expect(ttftQuantiles(bad)).toEqual([]);
  });

  test("have at least 2 points and at most the bound", () => {
    expect(ttftQuantiles(results, maxSeriesPoints)).toHaveLength(maxSeriesPoints);
    for (const points of [1, maxSeriesPoints + 1, Number.NaN]) {
      expect(() => ttftQuantiles(results, points)).toThrow(RangeError);
    }
  });
});

describe("load over time", () => {
  test("has mean and extremes of the engines for each sample", () => {
    const samples = [fleetSample(0, [0, 0]), fleetSample(1_000, [1, 5])];
    expect(loadOverTime({ samples })).toEqual([
      { atS: 0, mean: 0, min: 0, max: 0 },
      { atS: 1, mean: 3, min: 1, max: 5 },
    ]);
  });

  test("takes neighbouring samples together when there are more than the bound", () => {
    const sampled = (count: number) =>
      loadOverTime({ samples: Array.from({ length: count }, (_, second) => fleetSample(second * 1_000, [second, 0])) });
    expect(sampled(maxSeriesPoints)).toHaveLength(maxSeriesPoints);
    const merged = sampled(maxSeriesPoints + 1);
    expect(merged).toHaveLength(maxSeriesPoints / 2 + 1);
    expect(merged[1]).toEqual({ atS: 2, mean: 1.25, min: 0, max: 3 });
    expect(merged.at(-1)?.max).toBe(maxSeriesPoints);
  });

  test("is empty without samples or without engines", () => {
    expect(loadOverTime({ samples: [] })).toEqual([]);
    expect(loadOverTime({ samples: [fleetSample(0, [])] })).toEqual([]);
  });
});

describe("cached share over time", () => {
  test("is that of the requests sent in each second, of follow-ups apart", () => {
    const results = [
      simResult({ sentMs: 5_100, cachedTokens: 50 }),
      simResult({ sentMs: 5_900, cachedTokens: 90, request: { turn: 1 } }),
      simResult({ sentMs: 6_000, cachedTokens: 20 }),
      simResult({ sentMs: 6_500, cachedTokens: Number.NaN, request: { turn: 1 } }),
      simResult({ sentMs: 8_000, cachedTokens: 100, error: "upstream_reset" }),
    ];
    expect(cachedOverTime(results)).toEqual([
      { atS: 5, share: expect.closeTo(0.7), followupShare: expect.closeTo(0.9) },
      { atS: 6, share: expect.closeTo(0.2) },
      { atS: 7 },
      { atS: 8 },
    ]);
  });

  test("takes seconds together in a run longer than the bound", () => {
    const lasting = (seconds: number) =>
      cachedOverTime(
        Array.from({ length: seconds }, (_, second) => simResult({ sentMs: second * 1_000, cachedTokens: second % 2 })),
      );
    expect(lasting(maxSeriesPoints)).toHaveLength(maxSeriesPoints);
    const merged = lasting(maxSeriesPoints + 1);
    expect(merged).toHaveLength(maxSeriesPoints / 2 + 1);
    expect(merged[1]).toEqual({ atS: 2, share: 0.005 });
  });

  test("is empty without requests", () => {
    expect(cachedOverTime([])).toEqual([]);
  });
});
