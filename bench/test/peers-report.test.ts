import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { withRatios } from "../src/data-path/measure-cold-start.ts";
import type { ContenderOutcome, DataPathRun } from "../src/data-path/measure-data-path.ts";
import type { TurnShare } from "../src/peers/measure-turns.ts";
import { contenderNames, peersParams, peersPlan } from "../src/suites/peers-plan.ts";
import { type PeersRun, peersReport, peersTable } from "../src/suites/peers-report.ts";
import { readParams } from "../src/support/params.ts";
import { repeatRuns } from "../src/support/repeat-runs.ts";
import { UsageError } from "../src/support/usage-error.ts";

const planOf = (args: readonly string[]) => peersPlan(readParams(peersParams, args));

test("without flags all products are measured three times, within twelve minutes", () => {
  const plan = planOf([]);
  expect(plan).toMatchObject({ names: contenderNames, runs: 3, budgetMs: 720_000, folder: ".cache/peers" });
  expect(plan.sizes).toMatchObject({ durationMs: 1_000, coldRequests: 36_000 });
  expect(plan.turns.waitsMs[0]).toBe(50);
  expect(plan.turns.waitsMs.at(-1)).toBe(5_000);
});

test("without a name loads and turns are run, with one that part, and more is done when asked for", () => {
  expect(planOf([]).parts).toEqual({ turns: true, loads: "data-path" });
  expect(planOf(["--part", "turns"]).parts).toEqual({ turns: true, loads: undefined });
  expect(planOf(["--part", "cold-start"]).parts).toEqual({ turns: false, loads: "cold-start" });
  const plan = planOf(["--part", "data-path", "--node", "24,26", "--round-robin", "--wrk"]);
  expect(plan).toMatchObject({
    parts: { turns: false, loads: "data-path" },
    nodeReleases: "24,26",
    isRoundRobinToo: true,
    isCheckedByWrk: true,
    isFirst: false,
  });
});

test("quick is one short run, and names are picked", () => {
  const plan = planOf(["--quick", "--only", "espalier,nginx", "--folder", "/else"]);
  expect(plan).toMatchObject({ names: ["espalier", "nginx"], runs: 1, budgetMs: 180_000, folder: "/else" });
  expect(planOf(["--quick", "--runs", "2", "--duration", "0.25", "--minutes", "6"])).toMatchObject({
    runs: 2,
    budgetMs: 360_000,
    sizes: { durationMs: 250 },
  });
});

test.each([
  { args: ["--only", "espalier,apache"], message: `--only: there is no "apache", but ${contenderNames.join(", ")}` },
  { args: ["--only", ""], message: `--only: there is no "", but ${contenderNames.join(", ")}` },
  { args: ["--runs", "0"], message: "--runs must be a whole number from 1 to 20" },
  { args: ["--runs", "21"], message: "--runs must be a whole number from 1 to 20" },
  { args: ["--prompts", "1000001"], message: "--prompts must be a whole number from 1 to 1000000" },
  { args: ["--duration", "0"], message: "--duration must be a number above 0 and at most 60" },
  { args: ["--minutes", "0"], message: "--minutes must be a whole number from 1 to 600" },
  { args: ["--part", "all"], message: "--part must be one of data-path, cold-start, turns" },
  { args: ["--duration", "61"], message: "--duration must be a number above 0 and at most 60" },
])("$args are refused", ({ args, message }) => {
  expect(() => planOf(args)).toThrow(new UsageError(message));
});

test("figures of a cold start have ratios to the reference of the same round, and none without it", () => {
  const outcomes = new Map<string, ContenderOutcome>([
    ["reference", { figures: { max_ms: 50 } }],
    ["own", { figures: { max_ms: 75 } }],
    ["broken", { failure: "it ended" }],
  ]);
  const withIt = withRatios(outcomes, "reference");
  expect(withIt.get("reference")).toEqual({ figures: { max_ms: 50 } });
  expect(withIt.get("own")).toEqual({ figures: { max_ms: 75, max_ms_ratio: 1.5 } });
  expect(withIt.get("broken")).toEqual({ failure: "it ended" });
  expect(withRatios(outcomes, "broken")).toEqual(outcomes);
});

const figures = (rps: number): ContenderOutcome => ({ figures: { rps_4k: rps, rss_growth_mb: 30 } });
const contender = (name: string) => ({
  name,
  version: "1.0",
  policy: "round_robin",
  start: () => Promise.reject(new Error("nothing is started here")),
});
const runOf = (outcomes: Readonly<Record<string, ContenderOutcome>>): DataPathRun => ({
  direct: { rps_4k: 9_000 },
  outcomes: new Map(Object.entries(outcomes)),
  shares: { small: { smg: { system: 0.9, load: 0.2, engine: 0.2 } } },
});
const turn = (name: string, isMesh: boolean, waitMs: number, sameEngineShare: number): TurnShare => ({
  name,
  isMesh,
  waitMs,
  sameEngineShare,
  largestEngineShare: 0.2,
});

function report(more: Partial<PeersRun> = {}) {
  return peersReport({
    contenders: [contender("espalier"), contender("smg"), contender("bare")],
    runs: [
      runOf({ espalier: figures(30), smg: figures(3), bare: { failure: "it broke" } }),
      runOf({ espalier: figures(10), smg: { failure: "answered 500" }, bare: { failure: "it broke again" } }),
      runOf({ espalier: figures(20), smg: figures(5), bare: { failure: "and again" } }),
    ],
    turns: [],
    notHad: [{ name: "nginx", reason: "no apt-get" }],
    plan: planOf([]),
    otherCores: 1,
    ...more,
  });
}

test("a product has one row of medians and its memory, and ours is in the metrics as well", () => {
  const { name, rows, metrics, baselines, spread, params } = report();
  expect(name).toBe("peers");
  expect(rows[0]).toEqual({
    name: "espalier",
    version: "1.0",
    policy: "round_robin",
    rps_4k: 20,
    rss_growth_mb: 30,
  });
  expect(metrics).toEqual({ rps_4k: 20, rss_growth_mb: 30 });
  expect(baselines).toEqual({ bare: {}, direct: { rps_4k: 9_000 } });
  expect(spread.espalier).toEqual({ rps_4k: { min: 10, max: 30 }, rss_growth_mb: { min: 30, max: 30 } });
  expect(params).toMatchObject({ runs: 3, pinned: true, steady_per_second: 300, two_turn_routers: 2 });
});

test("one that fails in some runs keeps the others, one that fails in all is named with the reason", () => {
  const { rows, warnings, not_had: notHad } = report();
  expect(rows.map((row) => [row.name, row.rps_4k])).toEqual([
    ["espalier", 20],
    ["smg", 4],
  ]);
  expect(warnings).toEqual(["smg failed once: answered 500"]);
  expect(notHad).toEqual([
    { name: "nginx", reason: "no apt-get" },
    { name: "bare", reason: "it broke" },
  ]);
});

test("fewer runs than asked for are told", () => {
  const { params, warnings } = report({ runs: [runOf({ espalier: figures(1) })] });
  expect(params.runs).toBe(1);
  expect(warnings).toEqual(["1 of 3 runs: there was no time for more"]);
});

test("a load generator or an engine that had no time left is told", () => {
  const busy = { ...runOf({ smg: figures(3) }), shares: { small: { smg: { system: 0.9, load: 0.5, engine: 0.46 } } } };
  const { warnings } = report({ runs: [busy, busy, busy] });
  expect(warnings).toEqual(["small at smg: load generator or engine was saturated, so its rate is a lower bound"]);
});

test("two-turn runs are joined by product, sharing and wait", () => {
  const { two_turn: rows } = report({
    turns: [
      turn("smg", true, 50, 0.1),
      turn("smg", true, 5_000, 1),
      turn("smg", false, 50, 0.3),
      turn("smg", true, 50, 0.2),
      turn("smg", true, 50, 0.12),
    ],
  });
  expect(rows).toEqual([
    {
      name: "smg",
      sharing: "mesh",
      w_ms: 50,
      same_engine_share: 0.12,
      min: 0.1,
      max: 0.2,
      largest_engine_share: 0.2,
    },
    expect.objectContaining({ sharing: "mesh", w_ms: 5_000, same_engine_share: 1 }),
    expect.objectContaining({ sharing: "none", w_ms: 50, same_engine_share: 0.3 }),
  ]);
});

test("the table has a column for each product, the two-turn test, and what is missing", () => {
  const table = peersTable(report({ turns: [turn("smg", true, 50, 0.125)], otherCores: undefined }));
  expect(table).toMatch(/^figure +espalier +smg *\nversion +1\.0 +1\.0 *\n/);
  expect(table).toMatch(/rps_4k +20 \(10 \.\. 30\) +4 \(3 \.\. 5\)/);
  expect(table).toMatch(/rss_growth_mb +30 \(30 \.\. 30\)/);
  expect(table).toMatch(/smg +mesh +50 +12\.5 % \(12\.5 % \.\. 12\.5 %\) +20\.0 %/);
  expect(table).toContain("Skipped: nginx: no apt-get\nSkipped: bare: it broke\n");
  expect(peersTable(report())).not.toContain("two turns at");
});

test("no round begins that would probably end after the deadline, but one always does", async () => {
  const { clock, advance } = createVirtualTime();
  const roundsOf = (deadlineMs: number) =>
    repeatRuns({ runs: 4, note: () => {}, within: { clock, deadlineMs: clock.nowMs() + deadlineMs } }, (seed) => {
      advance(100);
      return seed;
    });
  expect(await roundsOf(400)).toEqual([1, 2, 3, 4]);
  expect(await roundsOf(399)).toEqual([1, 2, 3]);
  expect(await roundsOf(0)).toEqual([1]);
});
