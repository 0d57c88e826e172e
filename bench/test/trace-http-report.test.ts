import type { RequestResult } from "@espalier/simulator";
import { expect, test } from "vitest";
import {
  type MeasuredFleet,
  speedOf,
  traceFleets,
  traceHttpParams,
  traceHttpReport,
  traceHttpSuite,
  traceHttpTable,
} from "../src/suites/trace-http.ts";
import { traceFigures } from "../src/suites/trace-http-run.ts";
import { readParams } from "../src/support/params.ts";
import { UsageError } from "../src/support/usage-error.ts";

const planOf = (args: readonly string[]) => readParams(traceHttpParams, args);

test("without flags it is the run that targets are set for", () => {
  expect(planOf([])).toEqual({
    trace: "../shared/traces/conversation_trace.jsonl.gz",
    requests: 3_000,
    seconds: 32,
    engines: 8,
    policy: "cache_aware",
    "kv-events": [false],
    peers: [],
    folder: ".cache/peers",
    runs: 3,
    quick: false,
  });
});

test("every flag reaches its place", () => {
  const written =
    "--trace t --requests 5 --seconds 6 --engines 7 --policy least_work --kv-events on,off --quick" +
    " --peers smg,sglang-router --folder f";
  expect(planOf(written.split(" "))).toEqual({
    trace: "t",
    requests: 5,
    seconds: 6,
    engines: 7,
    policy: "least_work",
    "kv-events": [true, false],
    peers: ["smg", "sglang-router"],
    folder: "f",
    runs: 1,
    quick: true,
  });
  for (const flag of [
    "trace",
    "requests",
    "seconds",
    "engines",
    "policy",
    "kv-events",
    "peers",
    "folder",
    "runs",
    "quick",
    "json",
  ]) {
    expect(traceHttpSuite.help).toContain(`--${flag}`);
  }
});

test.each([
  ["--requests", "100001"],
  ["--seconds", "0"],
  ["--engines", "257"],
  ["--runs", "101"],
  ["--kv-events", "maybe"],
  ["--kv-events", "on,"],
])("%s %s is refused by name", (flag, value) => {
  expect(() => planOf([flag, value])).toThrow(UsageError);
  expect(() => planOf([flag, value])).toThrow(new RegExp(`^${flag} must be`));
});

test("a product that has no policy for caches cannot have a row", () => {
  expect(() => planOf(["--peers", "smg,nginx"])).toThrow('--peers: there is no "nginx", but sglang-router, smg');
});

test("a trace that is not there is an error that says where it was looked for", async () => {
  const run = traceHttpSuite.run(["--trace", "/nowhere/trace.jsonl"], () => {});
  await expect(run).rejects.toThrow("no trace at /nowhere/trace.jsonl: pass one with --trace FILE");
});

test("one router comes first in each kind of rows, and nothing is without a mesh for it", () => {
  const kinds = traceFleets([false, true]).map(({ routers, sharing, kvEvents }) => `${routers} ${sharing} ${kvEvents}`);
  expect(kinds).toEqual([
    "1 none false",
    "2 mesh false",
    "4 mesh false",
    "2 none false",
    "4 none false",
    "1 none true",
    "2 mesh true",
    "4 mesh true",
    "2 none true",
    "4 none true",
  ]);
});

const arriving = (...arrivalsMs: readonly number[]) =>
  arrivalsMs.map((arrivalMs, index) => ({
    trace: {
      index,
      arrivalMs,
      inputTokens: 1,
      outputTokens: 1,
      blockIds: undefined,
      blockTokens: 512,
      session: "",
      turn: 0,
    },
  }));

test("the speed makes the arrivals take as long as asked for, but is never below life", () => {
  expect(speedOf(arriving(0, 30_000, 320_000), 32)).toBe(10);
  expect(speedOf(arriving(0, 1_000), 32)).toBe(1);
  expect(speedOf([], 32)).toBe(1);
});

const result = (index: number, more: Partial<RequestResult> = {}): RequestResult => ({
  index,
  session: `session-${index}`,
  turn: 0,
  startMs: 100 * index,
  firstTokenMs: 100 * index + 10,
  endMs: 100 * index + 50,
  inputTokens: 1_000,
  outputTokens: 4,
  cachedTokens: 250,
  engine: `engine-${index % 2}`,
  error: undefined,
  itlSumMs: 30,
  itlCount: 3,
  ...more,
});

test("figures are of the engines' time, CPU of the real one", () => {
  const results = [result(0), result(1, { cachedTokens: 750, turn: 1 }), result(2), result(3, { cachedTokens: 0 })];
  const figures = traceFigures(results, { routers: 2, engines: 2, speed: 10, routerCpuS: 0.07 });
  expect(figures.requests).toBe(4);
  expect(figures.hit_share).toBeCloseTo(1_250 / 4_000, 9);
  expect(figures.followup_hit_share).toBeCloseTo(0.75, 9);
  expect(figures.ttft_mean_s).toBeCloseTo(0.1, 9);
  expect([figures.tpot_p50_s, figures.tpot_p99_s]).toEqual([0.4 / 3, 0.4 / 3].map((s) => expect.closeTo(s, 9)));
  expect(figures.goodput_share).toBe(0);
  expect(traceFigures(results, { routers: 2, engines: 2, speed: 1, routerCpuS: 0.07 }).goodput_share).toBe(1);
  expect(figures.duration_s).toBeCloseTo(0.35, 9);
  expect(figures.router_cpu_us_per_request).toBeCloseTo(17_500, 6);
  expect(figures.router_cpu_share).toBeCloseTo(0.1, 9);
  expect(figures.load_cov).toBe(0);
});

test("figures that a run has not are absent, not empty", () => {
  const results = [result(0), result(1)];
  const figures = traceFigures(results, { routers: 1, engines: 2, speed: 1, routerCpuS: 0.01 });
  expect(figures).not.toHaveProperty("followup_hit_share");
  for (const [name, value] of Object.entries(figures)) expect(value, name).toSatisfy(Number.isFinite);
});

const plan = planOf(["--runs", "3"]);
const shares = (...values: readonly number[]) =>
  values.map((share) => ({ hit_share: share, ttft_mean_s: 0.5, router_cpu_us_per_request: 900 }));
const measured: readonly MeasuredFleet[] = [
  { fleet: { routers: 1, sharing: "none", kvEvents: false }, runs: shares(0.2, 0.25, 0.4) },
  {
    fleet: { routers: 2, sharing: "mesh", kvEvents: false },
    runs: shares(0.2, 0.24, 0.4).map((run, at) => ({ ...run, router_cpu_us_per_request: 1_080 - 90 * at })),
  },
  { fleet: { routers: 4, sharing: "mesh", kvEvents: false }, runs: shares(0.19, 0.25, 0.38) },
  { fleet: { routers: 2, sharing: "none", kvEvents: false }, runs: shares(0.1, 0.15, 0.2) },
];

test("a row is compared with one router of the same run, and the median of that is taken", () => {
  const { rows } = traceHttpReport(plan, measured, 0.314);
  expect(rows.map(({ routers, sharing, relative }) => [routers, sharing, relative])).toEqual([
    [1, "none", 1],
    [2, "mesh", 1],
    [4, "mesh", 0.95],
    [2, "none", 0.5],
  ]);
  expect(rows[1]).toMatchObject({ hit_share: 0.24, kv_events: false, ttft_mean_s: 0.5 });
  // What the mesh costs is seen beside as many routers without it, if there are any.
  expect(rows.map((row) => row.cpu_ratio)).toEqual([undefined, 1.1, undefined, undefined]);
});

test("metrics are those of the mesh, baselines those without, and the bound stands beside them", () => {
  const report = traceHttpReport(plan, measured, 0.314);
  expect(report.name).toBe("trace-http");
  expect(report.metrics).toEqual({
    hit_share_1: 0.25,
    hit_share_2: 0.24,
    relative_2: 1,
    mesh_cpu_ratio_2: 1.1,
    hit_share_4: 0.25,
    relative_4: 0.95,
    infinite_cache: 0.314,
  });
  expect(report.baselines.without_mesh).toEqual({ hit_share_2: 0.15, relative_2: 0.5 });
  expect(report.spread["2 routers, mesh"]?.relative).toEqual({ min: 0.96, max: 1 });
  expect(report.params).toMatchObject({ requests: 3_000, runs: 3, kvEvents: "off" });
});

test("rows with KV events are compared with one router that reads them", () => {
  const withEvents = measured.map(({ fleet, runs }) => ({
    fleet: { ...fleet, kvEvents: true },
    runs: runs.map((run) => ({ ...run, hit_share: run.hit_share! / 2 })),
  }));
  const report = traceHttpReport(plan, [...measured, ...withEvents], undefined);
  expect(report.rows.map(({ relative }) => relative)).toEqual([1, 1, 0.95, 0.5, 1, 1, 0.95, 0.5]);
  expect(report.metrics.hit_share_2_events).toBe(0.12);
  expect(report.metrics).not.toHaveProperty("infinite_cache");
});

test("the table has a line for each row and the bound at its end", () => {
  const lines = traceHttpTable(traceHttpReport(plan, measured, 0.314))
    .trimEnd()
    .split("\n");
  expect(lines[0]).toMatch(/^routers +sharing +KV events +hit share +relative +extremes/);
  expect(lines[2]).toMatch(/^ +2 +mesh +off +0\.240 +1\.000 +0\.960 \.\. 1\.000 +0\.500/);
  expect(lines).toHaveLength(6);
  expect(lines.at(-1)).toBe("an infinite shared cache would hold 0.314");
});
