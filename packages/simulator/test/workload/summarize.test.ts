// cspell:ignore numpy
import { defaultObjectives } from "@espalier/policies";
import { describe, expect, test } from "vitest";
import { percentile, type RequestResult, summarize } from "../../src/workload/index.ts";
import { maxClassRows } from "../../src/workload/summarize.ts";
import { requestResult } from "./helpers.ts";

const row = (results: readonly Partial<RequestResult>[], context = {}) =>
  summarize(
    results.map((result, index) => requestResult({ index, ...result })),
    { speed: 1, ...context },
  );

test("percentiles interpolate between ranks, as numpy does", () => {
  const values = Float64Array.of(1, 2, 3, 4);
  expect([0, 25, 50, 90, 100].map((percent) => percentile(values, percent))).toEqual([1, 1.75, 2.5, 3.7, 4]);
  expect(percentile(Float64Array.of(7), 99)).toBe(7);
  expect(percentile(Float64Array.of(15, 20, 35, 40, 50), 40)).toBeCloseTo(29);
});

test("a worked example, with the keys that readers of the rows rely on", () => {
  const summary = row(
    [
      {
        startMs: 1_000,
        firstTokenMs: 1_200,
        endMs: 3_000,
        inputTokens: 100,
        outputTokens: 11,
        cachedTokens: 0,
        engine: "a",
        itlSumMs: 1_800,
        itlCount: 10,
      },
      {
        startMs: 2_000,
        firstTokenMs: 2_400,
        endMs: 5_000,
        inputTokens: 300,
        outputTokens: 21,
        cachedTokens: 240,
        engine: "a",
        turn: 1,
        itlSumMs: 2_600,
        itlCount: 20,
      },
      {
        startMs: 4_000,
        firstTokenMs: 4_600,
        endMs: 6_000,
        inputTokens: 200,
        outputTokens: 1,
        cachedTokens: 30,
        engine: "b",
        turn: 2,
        itlSumMs: 0,
        itlCount: 0,
      },
    ],
    {
      scenario: "trace",
      policy: "random",
      routers: 1,
      engines: 2,
      seed: 7,
      loadSamples: [
        [1, 3],
        [0, 0],
        [2, 2],
      ],
    },
  );
  expect(summary).toEqual({
    scenario: "trace",
    policy: "random",
    routers: 1,
    engines: 2,
    seed: 7,
    requests: 3,
    errors: 0,
    duration_s: 5,
    ttft_mean_s: expect.closeTo(0.4),
    ttft_p50_s: expect.closeTo(0.4),
    ttft_p90_s: expect.closeTo(0.56),
    ttft_p95_s: expect.closeTo(0.58),
    ttft_p99_s: expect.closeTo(0.596),
    itl_mean_s: expect.closeTo(4.4 / 30),
    tpot_mean_s: expect.closeTo(0.155),
    tpot_p50_s: expect.closeTo(0.155),
    tpot_p90_s: expect.closeTo(0.175),
    tpot_p95_s: expect.closeTo(0.1775),
    tpot_p99_s: expect.closeTo(0.1795),
    goodput_share: expect.closeTo(1 / 3),
    e2e_mean_s: expect.closeTo(7 / 3),
    e2e_p50_s: expect.closeTo(2),
    e2e_p90_s: expect.closeTo(2.8),
    e2e_p95_s: expect.closeTo(2.9),
    e2e_p99_s: expect.closeTo(2.98),
    output_tokens_per_s: expect.closeTo(33 / 5),
    total_tokens_per_s: expect.closeTo(633 / 5),
    requests_per_s: expect.closeTo(3 / 5),
    cached_share: expect.closeTo(270 / 600),
    followup_cached_share: expect.closeTo(270 / 500),
    load_cov: expect.closeTo(0.5 / 1.5),
    load_cov_time: expect.closeTo(0.25),
  });
});

test("at a speed of 10 every second is ten and every rate a tenth", () => {
  const at = (speed: number) => row([{ startMs: 0, firstTokenMs: 100, endMs: 1_000, outputTokens: 10 }], { speed });
  expect(at(10).ttft_p50_s).toBeCloseTo(at(1).ttft_p50_s! * 10);
  expect(at(10).e2e_mean_s).toBeCloseTo(10);
  expect(at(10).itl_mean_s).toBeCloseTo(1);
  expect(at(10).duration_s).toBeCloseTo(10);
  expect(at(10).output_tokens_per_s).toBeCloseTo(1);
  expect(at(10)).not.toHaveProperty("speed");
});

describe("errors", () => {
  test("are counted, lengthen the run, and enter neither latencies nor rates nor cached shares", () => {
    const summary = row([
      { endMs: 1_000, cachedTokens: 50 },
      { endMs: 4_000, error: "upstream_reset", cachedTokens: 100, outputTokens: 99, engine: "a" },
    ]);
    expect(summary).toMatchObject({ requests: 2, errors: 1, duration_s: 4, e2e_p99_s: 1, cached_share: 0.5 });
    expect(summary.requests_per_s).toBeCloseTo(0.25);
    expect(summary.output_tokens_per_s).toBeCloseTo(2.5);
  });

  test("a run of errors alone has counts and a duration, and no latencies", () => {
    const summary = row([{ endMs: 2_000, firstTokenMs: Number.NaN, error: "no_engine_available" }]);
    expect(summary).toEqual({
      requests: 1,
      errors: 1,
      duration_s: 2,
      goodput_share: 0,
      output_tokens_per_s: 0,
      total_tokens_per_s: 0,
      requests_per_s: 0,
    });
  });
});

describe("goodput is the share of all requests", () => {
  const answer = { startMs: 0, firstTokenMs: 2_000, endMs: 2_500, outputTokens: 11 };
  const none = { ttftMs: Number.POSITIVE_INFINITY, tpotMs: Number.POSITIVE_INFINITY };
  const share = (objectives = {}, ...results: readonly Partial<RequestResult>[]) =>
    row(results, { objectives: { ...defaultObjectives, ...objectives } }).goodput_share;

  test.each([
    ["whose first token came in time, and the others as often, to the millisecond", {}, answer, 1],
    ["and not of those whose first token came later", { ttftMs: 1_999 }, answer, 0],
    ["nor of those whose other tokens came less often", { tpotMs: 49.9 }, answer, 0],
    ["of one token, for which only its time counts", { tpotMs: 0 }, { ...answer, outputTokens: 1 }, 1],
    [
      "and where there are no objectives, of all that were answered",
      none,
      { ...answer, firstTokenMs: 9_000, endMs: 99_000 },
      1,
    ],
    ["nor of those that failed", {}, { ...answer, error: "engine_error" }, 0],
  ] as const)("%s", (_, objectives, result, expected) => {
    expect(share(objectives, result)).toBe(expected);
  });

  test("of those of a class, too", () => {
    const { by_class } = row([
      { ...answer, className: "chat" },
      { ...answer, firstTokenMs: 2_100, className: "chat" },
    ]);
    expect(by_class?.chat?.goodput_share).toBe(0.5);
  });
});

describe("what has no meaning is absent", () => {
  test("an empty run", () => {
    expect(row([])).toEqual({ requests: 0, errors: 0, duration_s: 0 });
  });

  test("cached tokens that no engine reports; one that does not leaves the others' share alone", () => {
    expect(row([{}, { turn: 1 }])).not.toHaveProperty("cached_share");
    const summary = row([{ cachedTokens: 40 }, { cachedTokens: Number.NaN, turn: 1 }]);
    expect(summary.cached_share).toBeCloseTo(0.4);
    expect(summary).not.toHaveProperty("followup_cached_share");
  });

  test("gaps when every answer is one token, first tokens that never came", () => {
    const summary = row([{ itlSumMs: 0, itlCount: 0, firstTokenMs: Number.NaN }]);
    expect(summary).not.toHaveProperty("itl_mean_s");
    expect(summary).not.toHaveProperty("ttft_mean_s");
    expect(summary).toHaveProperty("e2e_mean_s");
  });

  test("load without known engines or samples", () => {
    expect(row([{}], { engines: 4 })).not.toHaveProperty("load_cov");
    expect(row([{}], { loadSamples: [] })).not.toHaveProperty("load_cov_time");
    expect(row([{}], { loadSamples: [[0, 0]] })).not.toHaveProperty("load_cov_time");
  });

  test("no value of a row is NaN, infinite or undefined, so that JSON keeps it", () => {
    for (const summary of [row([]), row([{}]), row([{ endMs: 0, startMs: 0 }])]) {
      expect(JSON.parse(JSON.stringify(summary))).toEqual(summary);
    }
  });
});

test("engines that got nothing count in the variation of load", () => {
  const results = Array.from({ length: 8 }, (_, i) => ({ engine: i < 4 ? "a" : "b" }));
  expect(row(results).load_cov).toBe(0);
  expect(row(results, { engines: 2 }).load_cov).toBe(0);
  expect(row(results, { engines: 4 }).load_cov).toBeCloseTo(1);
});

test("load samples may be typed arrays", () => {
  expect(row([{}], { loadSamples: [Float64Array.of(1, 3), Float64Array.of(2, 2)] }).load_cov_time).toBeCloseTo(0.25);
});

describe("classes", () => {
  test("each has its own latencies, errors and cached share; rates are over the whole run", () => {
    const summary = row([
      { className: "chat", firstTokenMs: 100, endMs: 1_000, inputTokens: 100, cachedTokens: 50, outputTokens: 10 },
      { className: "chat", firstTokenMs: 300, endMs: 2_000, error: "upstream_reset" },
      { className: "batch", firstTokenMs: 2_000, endMs: 10_000, outputTokens: 40, itlSumMs: 800, itlCount: 40 },
      { firstTokenMs: 9_000, endMs: 9_500 },
    ]);
    expect(Object.keys(summary.by_class ?? {})).toEqual(["chat", "batch"]);
    expect(summary.by_class?.chat).toMatchObject({
      requests: 2,
      errors: 1,
      ttft_mean_s: 0.1,
      ttft_p99_s: 0.1,
      e2e_mean_s: 1,
      output_tokens_per_s: 1,
      requests_per_s: 0.1,
      cached_share: 0.5,
    });
    expect(summary.by_class?.batch).toMatchObject({ requests: 1, errors: 0, ttft_p50_s: 2, output_tokens_per_s: 4 });
    expect(summary.by_class?.batch?.itl_mean_s).toBeCloseTo(0.02);
    expect(summary.by_class?.batch).not.toHaveProperty("cached_share");
  });

  test("a run without classes has none, and one class says what the row says", () => {
    expect(row([{}])).not.toHaveProperty("by_class");
    const summary = row([{ className: "a" }, { className: "a", firstTokenMs: 300 }]);
    expect(summary).toMatchObject(summary.by_class?.a ?? {});
  });

  test("classes past the bound are summed up as other", () => {
    const summary = row(Array.from({ length: maxClassRows + 3 }, (_, i) => ({ className: `c${i}` })));
    expect(Object.keys(summary.by_class ?? {})).toHaveLength(maxClassRows);
    expect(summary.by_class?.other?.requests).toBe(4);
    const exact = row(Array.from({ length: maxClassRows - 1 }, (_, i) => ({ className: `c${i}` })));
    expect(exact.by_class).not.toHaveProperty("other");
  });
});
