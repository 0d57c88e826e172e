import { expect, test } from "vitest";
import {
  maxShareByChance,
  twoTurnParams,
  twoTurnReport,
  twoTurnSizes,
  twoTurnSuite,
  twoTurnTable,
} from "../src/suites/two-turn.ts";
import { readParams } from "../src/support/params.ts";
import { UsageError } from "../src/support/usage-error.ts";
import type { TwoTurnRun } from "../src/turns/measure-two-turns.ts";

function planOf(args: readonly string[]) {
  const values = readParams(twoTurnParams, args);
  return { runs: values.runs, sizes: twoTurnSizes(values) };
}

test("without flags it is the test that targets are set for", () => {
  expect(planOf([])).toEqual({
    runs: 3,
    sizes: {
      conversations: 200,
      warmUpConversations: 200,
      ratePerSecond: 40,
      waitMs: 50,
      engines: 8,
      speed: 4,
      sweepMs: [10, 25, 100, 200, 500],
    },
  });
});

test("quick is one run without the sweep, and an explicit number of runs still counts", () => {
  expect(planOf(["--quick"])).toMatchObject({ runs: 1, sizes: { sweepMs: [] } });
  expect(planOf(["--quick", "--runs", "2"]).runs).toBe(2);
});

test("every flag reaches its size, and W is not measured twice", () => {
  const flags = { conversations: 7, "warm-up": 8, rate: 9, wait: 100, engines: 4, speed: 2, runs: 5 };
  const plan = planOf(Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]));
  expect(plan).toEqual({
    runs: 5,
    sizes: {
      conversations: 7,
      warmUpConversations: 8,
      ratePerSecond: 9,
      waitMs: 100,
      engines: 4,
      speed: 2,
      sweepMs: [10, 25, 50, 200, 500],
    },
  });
});

test.each([
  ["--conversations", "0"],
  ["--conversations", "10001"],
  ["--warm-up", "1.5"],
  ["--rate", "1001"],
  ["--wait", "soon"],
  ["--wait", ""],
  ["--engines", "257"],
  ["--speed", "-1"],
  ["--runs", "101"],
])("%s %s is refused by name", (flag, value) => {
  expect(() => planOf([`${flag}=${value}`])).toThrow(UsageError);
  expect(() => planOf([`${flag}=${value}`])).toThrow(new RegExp(`^${flag} must be a whole number from 1 to`));
});

test("every flag is in the help", () => {
  for (const flag of ["conversations", "warm-up", "rate", "wait", "engines", "speed", "runs", "quick", "json"]) {
    expect(twoTurnSuite.help).toContain(`--${flag}`);
  }
});

const runWith = (share: number, without: number, more: Readonly<Record<string, number>> = {}): TwoTurnRun => ({
  mesh: { same_engine_share: share, mesh_cpu_ratio: 1.5, ...more },
  withoutMesh: { same_engine_share: without, same_engine_share_3_routers: without / 2, cpu_us_per_request: 800 },
  sweep: { 10: share / 2, 50: share, 500: 1 },
});

const { sizes } = planOf([]);

test("figures are medians over the runs, with the fixed keys and their extremes", () => {
  const report = twoTurnReport([runWith(1, 0.1), runWith(0.98, 0.12), runWith(0.99, 0.2)], sizes);
  expect(report.name).toBe("two-turn");
  expect(report.metrics).toEqual({ same_engine_share: 0.99, without_mesh_share: 0.12, mesh_cpu_ratio: 1.5 });
  expect(report.baselines.without_mesh).toMatchObject({ same_engine_share: 0.12, same_engine_share_3_routers: 0.06 });
  expect(report.spread.mesh?.same_engine_share).toEqual({ min: 0.98, max: 1 });
  expect(report.params).toMatchObject({ runs: 3, conversations: 200, waitMs: 50, policy: "cache_aware" });
  expect(report.warnings).toEqual([]);
});

test("the sweep has a row for each W, ascending, with its extremes", () => {
  const { w_sweep: sweep } = twoTurnReport([runWith(1, 0.1), runWith(0.9, 0.1), runWith(0.8, 0.1)], sizes);
  expect(sweep).toEqual([
    { w_ms: 10, same_engine_share: 0.45, min: 0.4, max: 0.5 },
    { w_ms: 50, same_engine_share: 0.9, min: 0.8, max: 1 },
    { w_ms: 500, same_engine_share: 1, min: 1, max: 1 },
  ]);
});

test("a figure that one run lacks, as without Redis, is left out", () => {
  const report = twoTurnReport([runWith(1, 0.1, { redis_same_engine_share: 1 }), runWith(1, 0.1)], sizes);
  expect(report.metrics).not.toHaveProperty("redis_same_engine_share");
});

test.each([
  { without: maxShareByChance, isVoid: false },
  { without: maxShareByChance + 0.005, isVoid: true },
])("a share of $without without the mesh makes the test void: $isVoid", ({ without, isVoid }) => {
  const report = twoTurnReport([runWith(1, without)], sizes);
  expect(report.warnings.some((warning) => warning.startsWith("void: without the mesh"))).toBe(isVoid);
});

test("three routers that meet by themselves make the test void as well", () => {
  const run = runWith(1, 0.1);
  const withoutMesh = { ...run.withoutMesh, same_engine_share_3_routers: 0.5 };
  expect(twoTurnReport([{ ...run, withoutMesh }], sizes).warnings).toHaveLength(1);
});

test("the table has shares in percent beside those without the mesh, and the sweep", () => {
  const lines = twoTurnTable(twoTurnReport([runWith(0.985, 0.11)], sizes)).split("\n");
  expect(lines[0]).toMatch(/^figure +mesh +without_mesh$/);
  expect(lines[1]).toMatch(/^same_engine_share +98\.5 % \(98\.5 % \.\. 98\.5 %\) +11\.0 % \(11\.0 % \.\. 11\.0 %\)$/);
  expect(lines[2]).toMatch(/^mesh_cpu_ratio +1\.50 \(1\.50 \.\. 1\.50\) +-$/);
  expect(lines.slice(4, 8).join("\n")).toMatch(/W \(ms\).*\n +10 .*49\.\d %.*\n +50 .*98\.5 %.*\n +500 .*100\.0 %/);
});
