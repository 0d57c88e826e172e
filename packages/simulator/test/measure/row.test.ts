import { expect, test } from "vitest";
import { createRow, type RowOptions } from "../../src/measure/rows.ts";
import { fleetSample, runRecord, simResult } from "./records.ts";

const options: RowOptions = {
  scenario: { name: "rag" },
  policy: "prefix",
  routers: 2,
  engines: 2,
  sharing: "mesh",
  links: "real",
  seed: 7,
};

const record = runRecord({
  results: [
    simResult({ ttftMs: 200, endMs: 3_000, request: { promptTokens: 100, outputTokens: 11 } }),
    simResult({
      sentMs: 1_000,
      ttftMs: 400,
      endMs: 5_400,
      engine: 1,
      cachedTokens: 240,
      isSpill: true,
      request: { turn: 1, promptTokens: 300, outputTokens: 21 },
    }),
    simResult({ sentMs: 4_000, firstTokenMs: Number.NaN, endMs: 10_000, engine: -1, error: "no_engine_available" }),
  ],
  samples: [fleetSample(0, [1, 3]), fleetSample(4_000, [2, 2]), fleetSample(5_000, [0, 1])],
  linkBytes: 40_000,
  engineBusyMs: 7_500,
  bounds: { infiniteCache: 0.5, infiniteCacheFollowup: 0.75, pooledLru: 0.25 },
  wallS: 2,
});

test("a worked example, with the keys that readers of rows rely on", () => {
  expect(createRow(record, { ...options, variant: "large", load: 0.85, users: 50 })).toEqual({
    scenario: "rag",
    variant: "large",
    policy: "prefix",
    routers: 2,
    engines: 2,
    sharing: "mesh",
    links: "real",
    load: 0.85,
    users: 50,
    seed: 7,
    requests: 3,
    errors: 1,
    duration_s: 10,
    ttft_mean_s: expect.closeTo(0.3),
    ttft_p50_s: expect.closeTo(0.3),
    ttft_p90_s: expect.closeTo(0.38),
    ttft_p95_s: expect.closeTo(0.39),
    ttft_p99_s: expect.closeTo(0.398),
    itl_mean_s: expect.closeTo((2.8 + 4) / 30),
    tpot_mean_s: expect.closeTo(0.24),
    tpot_p50_s: expect.closeTo(0.24),
    tpot_p90_s: expect.closeTo(0.272),
    tpot_p95_s: expect.closeTo(0.276),
    tpot_p99_s: expect.closeTo(0.2792),
    e2e_mean_s: expect.closeTo(3.7),
    e2e_p50_s: expect.closeTo(3.7),
    e2e_p90_s: expect.closeTo(4.26),
    e2e_p95_s: expect.closeTo(4.33),
    e2e_p99_s: expect.closeTo(4.386),
    // 200 and 280 ms a token.
    goodput_share: 0,
    output_tokens_per_s: expect.closeTo(3.2),
    total_tokens_per_s: expect.closeTo(43.2),
    requests_per_s: expect.closeTo(0.2),
    cached_share: expect.closeTo(0.6),
    followup_cached_share: expect.closeTo(0.8),
    load_cov: 0,
    load_cov_time: expect.closeTo(0.25),
    bytes_per_s_per_router: 2_000,
    sessions: 1,
    // 0.4 of 400 prompt tokens, of one session.
    uncached_tokens_per_session: 160,
    engine_ms_per_session: 7_500,
    spills: 1,
    bounds: { infinite_cache: 0.5, infinite_cache_followup: 0.75, pooled_lru: 0.25 },
    wall_s: 2,
    realtime_factor: 5,
  });
});

test("an empty run has counts and labels alone; no value is NaN, infinite or undefined, so that JSON keeps it", () => {
  const row = createRow(runRecord({}), options);
  expect(row).toEqual({
    scenario: "rag",
    policy: "prefix",
    routers: 2,
    engines: 2,
    sharing: "mesh",
    links: "real",
    seed: 7,
    requests: 0,
    errors: 0,
    duration_s: 0,
    sessions: 0,
    spills: 0,
    wall_s: 1,
    realtime_factor: 0,
  });
  for (const any of [row, createRow(record, options), createRow(runRecord({ wallS: 0 }), options)]) {
    expect(JSON.parse(JSON.stringify(any))).toEqual(any);
  }
});

test("what the links carry is absent where nothing is carried, and 0 where they stay silent", () => {
  expect(createRow({ ...record, linkBytes: Number.NaN }, options)).not.toHaveProperty("bytes_per_s_per_router");
  expect(createRow({ ...record, linkBytes: 0 }, options).bytes_per_s_per_router).toBe(0);
});

test("a bound that is not known is absent, the others stay", () => {
  const bounds = { ...record.bounds, pooledLru: Number.NaN };
  expect(createRow({ ...record, bounds }, options).bounds).toEqual({
    infinite_cache: 0.5,
    infinite_cache_followup: 0.75,
  });
});

test("samples of the drain, after the last request was sent, do not count in the variation of load", () => {
  const drained = { ...record, samples: [...record.samples, fleetSample(6_000, [0, 100])] };
  expect(createRow(drained, options).load_cov_time).toBe(createRow(record, options).load_cov_time);
});

test("engines that got nothing count in the variation of requests", () => {
  expect(createRow(record, { ...options, engines: 4 }).load_cov).toBeCloseTo(1);
});

test("classes have their own latencies", () => {
  const results = [
    simResult({ request: { className: "chat" } }),
    simResult({ ttftMs: 900, request: { className: "batch" } }),
    simResult({ ttftMs: 1_100, request: { className: "batch" } }),
  ];
  const { by_class } = createRow(runRecord({ results }), options);
  expect(by_class?.chat?.ttft_mean_s).toBeCloseTo(0.1);
  expect(by_class?.batch).toMatchObject({ requests: 2, errors: 0, ttft_mean_s: expect.closeTo(1) });
});

test("an answer of one token has no gaps", () => {
  const results = [simResult({ request: { outputTokens: 1 } }), simResult({ request: { outputTokens: 5 } })];
  expect(createRow(runRecord({ results: [results[0]!] }), options)).not.toHaveProperty("itl_mean_s");
  expect(createRow(runRecord({ results: [results[1]!] }), options).itl_mean_s).toBeCloseTo(0.25);
});

test("loads of adapters are for each thousand requests, and absent where no request was for one", () => {
  expect(createRow({ ...record, adapterLoads: 6 }, options).adapter_loads_per_1000).toBeCloseTo(2_000);
  expect(createRow({ ...record, adapterLoads: 0 }, options).adapter_loads_per_1000).toBe(0);
  expect(createRow(record, options)).not.toHaveProperty("adapter_loads_per_1000");
  expect(createRow(runRecord({}), options)).not.toHaveProperty("adapter_loads_per_1000");
});

test("sessions that are ended have times, groups of them that of all, and a session without an end has none", () => {
  const of = (session: number, sentMs: number, endMs: number, request = {}) =>
    simResult({ sentMs, endMs, request: { session, group: session >> 1, ...request } });
  const results = [
    ...[of(0, 0, 1_000), of(0, 3_000, 4_000, { turn: 1, endsSession: true }), of(1, 500, 2_000, { endsSession: true })],
    ...[of(2, 4_000, 9_000, { endsSession: true }), of(3, 4_000, 5_000)],
  ];
  const { session_mean_s, session_p99_s, group_mean_s } = createRow(runRecord({ results }), options);
  expect(session_mean_s).toBeCloseTo((4 + 1.5 + 5) / 3);
  expect(session_p99_s).toBeCloseTo(4.98);
  expect(group_mean_s).toBeCloseTo(4.5);
});

test("waits by size of session: of the tenth with the shortest last prompts, and the longest", () => {
  const sessions = Array.from({ length: 40 }, (_, session) =>
    [0, 1].map((turn) =>
      simResult({
        ttftMs: session < 4 ? 100 : session >= 36 ? 9_000 : 1_000,
        request: { session, turn, promptTokens: 100 * (session + 1) + turn },
      }),
    ),
  );
  const { ttft_p99_small_s, ttft_p99_large_s } = createRow(runRecord({ results: sessions.flat() }), options);
  expect([ttft_p99_small_s, ttft_p99_large_s]).toEqual([0.1, 9]);
  const few = createRow(runRecord({ results: sessions.slice(0, 29).flat() }), options);
  expect("ttft_p99_small_s" in few).toBe(false);
});
