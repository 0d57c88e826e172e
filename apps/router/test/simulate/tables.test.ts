import { medianRows, type PublishedResult, type Scenario } from "@espalier/simulator";
import { expect, test } from "vitest";
import type { RunJob, RunOutcome } from "../../src/simulate/run-job.ts";
import { boundsNotes, compareWithPublished, extraTables } from "../../src/simulate/tables.ts";
import { jobOf, outcomeOf } from "./fake-outcome.ts";

const published: PublishedResult = {
  source: "someone",
  metric: "ttft_mean_s",
  policy: "cache_aware",
  policyValue: 1,
  baseline: "round_robin",
  baselineValue: 4,
};

const scenarioWith = (...results: readonly PublishedResult[]): Scenario => ({
  name: "of-the-test",
  summary: "",
  fleet: { preset: "smg-generic", parameters: {}, engines: 8, routers: 2 },
  policies: ["round_robin", "cache_aware", "least_work"],
  variants: [{ name: "small", engines: 4, routers: 1 }],
  published: results,
  isOpenLoop: true,
  createWorkload: () => {
    throw new Error("nothing is run");
  },
});

const ttft = (part: Partial<RunJob>, seconds: number): RunOutcome => outcomeOf(jobOf(part), { ttft_mean_s: seconds });
const medians = (...outcomes: readonly RunOutcome[]) => medianRows(outcomes.map(({ row }) => row));

test("a published ratio beside the reproduced one and ours", () => {
  const rows = medians(
    ttft({ policy: "round_robin", sharing: "none" }, 10),
    ttft({ policy: "cache_aware" }, 3),
    ttft({ policy: "least_work" }, 2),
  );
  expect(compareWithPublished(scenarioWith(published), rows)).toEqual([
    {
      ...{
        source: "someone",
        variant: undefined,
        metric: "ttft_mean_s",
        policy: "cache_aware",
        baseline: "round_robin",
      },
      ...{
        published: 0.25,
        publishedUpTo: undefined,
        reproduced: 0.3,
        ours: 0.2,
        ourPolicy: "least_work",
        deviation: expect.closeTo(0.2, 9),
      },
    },
  ]);
});

test("a ratio within a published range does not deviate, and one beside it does from the nearer end", () => {
  const range = { ...published, policyUpTo: 2 };
  const deviationAt = (seconds: number): number | undefined => {
    const rows = medians(
      ttft({ policy: "round_robin", sharing: "none" }, 10),
      ttft({ policy: "cache_aware" }, seconds),
      ttft({ policy: "least_work" }, 2),
    );
    return compareWithPublished(scenarioWith(range), rows)[0]?.deviation;
  };
  expect([2.5, 4, 5].map(deviationAt)).toEqual([0, 0, 0]);
  expect(deviationAt(2)).toBeCloseTo(-0.2, 9);
  expect(deviationAt(6)).toBeCloseTo(0.2, 9);
});

test("the run is that of the published fleet and load, with the mesh rather than the oracle", () => {
  const rows = medians(
    ttft({ policy: "round_robin", load: 0.5 }, 1_000),
    ttft({ policy: "round_robin", engines: 16 }, 2_000),
    ttft({ policy: "round_robin", variant: "small", engines: 4 }, 3_000),
    ttft({ policy: "round_robin", routers: 8 }, 4_000),
    ttft({ policy: "round_robin" }, 10),
    ttft({ policy: "cache_aware", sharing: "oracle", routers: 1 }, 5_000),
    ttft({ policy: "cache_aware", sharing: "none" }, 6_000),
    ttft({ policy: "cache_aware" }, 5),
  );
  expect(compareWithPublished(scenarioWith(published), rows)).toMatchObject([{ reproduced: 0.5, ours: undefined }]);
});

test("published results that say what was shared are compared with that", () => {
  const rows = medians(
    ttft({ policy: "cache_aware" }, 100),
    ttft({ policy: "cache_aware", sharing: "none" }, 10),
    ttft({ policy: "cache_aware", sharing: "oracle", routers: 1 }, 4),
  );
  const result = { ...published, baseline: "cache_aware", sharing: "oracle", baselineSharing: "none" } as const;
  expect(compareWithPublished(scenarioWith(result), rows)).toMatchObject([{ reproduced: 0.4 }]);
});

test("variants are compared with their own results; without a baseline there is nothing to say", () => {
  const rows = medians(
    ttft({ policy: "round_robin", variant: "small", engines: 4 }, 8),
    ttft({ policy: "cache_aware", variant: "small", engines: 4 }, 2),
  );
  const results = [published, { ...published, variant: "small" }];
  expect(compareWithPublished(scenarioWith(...results), rows)).toMatchObject([{ variant: "small", reproduced: 0.25 }]);
});

test("a ratio off by more than a quarter is not reproduced, and the table says so", () => {
  const rows = (seconds: number) =>
    medians(ttft({ policy: "round_robin" }, 100), ttft({ policy: "cache_aware" }, seconds));
  const deviation = (seconds: number) => extraTables(scenarioWith(published), [], rows(seconds))[0]?.lines[0]?.[6];
  expect([deviation(31.25), deviation(18.75)]).toEqual(["25 %", "-25 %"]);
  expect([deviation(31.5), deviation(18.5)]).toEqual(["26 % (not reproduced)", "-26 % (not reproduced)"]);
});

test("what a source leaves open stands beside its results, where one of them has something to say", () => {
  const rows = medians(ttft({ policy: "round_robin" }, 100), ttft({ policy: "cache_aware" }, 30));
  const tableOf = (...results: readonly PublishedResult[]) => extraTables(scenarioWith(...results), [], rows)[0];
  const last = (...results: readonly PublishedResult[]) => tableOf(...results)?.lines.map((line) => line.at(-1));
  expect(last({ ...published, note: "the engine" }, published)).toEqual(["the engine", ""]);
  expect(tableOf({ ...published, note: "the engine" })?.headers.at(-1)).toBe("what the source leaves open");
  expect(tableOf(published)?.headers.at(-1)).toBe("is");
});

test("nothing beside the rows: no tables", () => {
  const outcome = outcomeOf(jobOf());
  expect(extraTables(scenarioWith(), [outcome], medians(outcome))).toEqual([]);
});

test("phases of a fault, medians over seeds, and whether quality came back", () => {
  const phase = {
    from_s: 0,
    to_s: 9,
    requests: 50,
    errors: 0,
    ttft_mean_s: 1,
    ttft_p99_s: 4,
    followup_cached_share: 0.5,
  };
  const outcomes = [1, 2, 3].map((seed) => ({
    ...outcomeOf(jobOf({ seed })),
    phases: { before: phase, during: { ...phase, errors: seed * 10 }, after: phase, seconds_to_recover: seed * seed },
  }));
  const [table] = extraTables(scenarioWith(), outcomes, []);
  expect(table?.lines).toEqual([
    ["least_work, mesh, 2 routers", "before", "50", "0", "1.000", "4.000", "50.0", "-", ""],
    ["least_work, mesh, 2 routers", "during", "50", "20", "1.000", "4.000", "50.0", "-", ""],
    ["least_work, mesh, 2 routers", "after", "50", "0", "1.000", "4.000", "50.0", "-", "4"],
  ]);
  const { seconds_to_recover: _, ...never } = outcomes[0]!.phases;
  const [partly] = extraTables(scenarioWith(), [{ ...outcomes[0]!, phases: never }, outcomes[1]!], []);
  expect(partly?.lines.at(-1)?.at(-1)).toBe("-");
});

test("sessions of users have lines of their own, with the bound of their own requests", () => {
  const costs = { uncached_tokens_per_session: 1_234.4, engine_ms_per_session: 567.8, e2e_p50_s: 2, e2e_p99_s: 30 };
  const outcome = outcomeOf(jobOf({ users: 50 }), { users: 50, ...costs });
  const [table] = extraTables({ ...scenarioWith(), users: 200 }, [outcome], medians(outcome));
  expect(table?.lines).toEqual([
    ["least_work", "-", "50", "2", "mesh", "40", "1234", "568", "2.00", "30.00", "50.0", "75.0"],
  ]);
  expect(extraTables(scenarioWith(), [outcome], medians(outcome))).toEqual([]);
});

test("classes of requests have lines of their own", () => {
  const byClass = {
    interactive: { requests: 5, errors: 0, ttft_mean_s: 0.25, ttft_p50_s: 0.2, ttft_p99_s: 1, e2e_mean_s: 3 },
    batch: { requests: 5, errors: 0, ttft_mean_s: 9, output_tokens_per_s: 512.4 },
  };
  const outcome = outcomeOf(jobOf({ load: 0.9 }), { by_class: byClass });
  const [table] = extraTables(scenarioWith(), [outcome], medians(outcome));
  expect(table?.lines).toEqual([
    ["least_work", "-", "0.9", "2", "mesh", "interactive", "0.250", "0.200", "1.000", "3.00", "-"],
    ["least_work", "-", "0.9", "2", "mesh", "batch", "9.000", "-", "-", "-", "512"],
  ]);
});

test("bounds are told once for each fleet and load", () => {
  const rows = medians(
    outcomeOf(jobOf({ policy: "random" })),
    outcomeOf(jobOf()),
    outcomeOf(jobOf({ engines: 4 }), { bounds: { infinite_cache: 0.5 } }),
    outcomeOf(jobOf({ variant: "small", load: 0.5 })),
  );
  expect(boundsNotes(rows)).toEqual([
    "8 engines: an infinite shared cache would hold 75.0 % (90.0 % of follow-ups), one cache of the size of all 60.0 %",
    "4 engines: an infinite shared cache would hold 50.0 %",
    "small, 8 engines, 0.5 of the knee: an infinite shared cache would hold 75.0 % (90.0 % of follow-ups), one cache of the size of all 60.0 %",
  ]);
  // Once the bound of the first row stood for all: a policy whose clients sent more requests had more cached than it.
  const others = medians(
    outcomeOf(jobOf({ policy: "random" })),
    outcomeOf(jobOf(), { bounds: { infinite_cache: 0.882 } }),
  );
  expect(boundsNotes(others)).toEqual([
    "8 engines, random (routers: 2, sharing: mesh): an infinite shared cache would hold 75.0 % (90.0 % of follow-ups), one cache of the size of all 60.0 %",
    "8 engines, least_work (routers: 2, sharing: mesh): an infinite shared cache would hold 88.2 %",
  ]);
  const { bounds: _, ...row } = outcomeOf(jobOf()).row;
  expect(boundsNotes(medianRows([row]))).toEqual([]);
});
