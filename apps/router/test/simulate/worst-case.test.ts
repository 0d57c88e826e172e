import { policyNames } from "@espalier/policies";
import { scenario } from "@espalier/simulator";
import { beforeEach, expect, test, vi } from "vitest";
import { registerSimulate } from "../../src/commands/simulate.ts";
import type { RunJob } from "../../src/simulate/run-job.ts";
import { runTasks } from "../../src/simulate/run-tasks.ts";
import type { WorstCaseCommand } from "../../src/simulate/simulate-options.ts";
import { readSimulateOptions, type SimulateFlags } from "../../src/simulate/simulate-options.ts";
import { casesOf, nameOf, planWorstCase, worstCasePlan } from "../../src/simulate/worst-case-plan.ts";
import { runCommand } from "../run-command.ts";
import { temporaryFile } from "../temporary.ts";
import { outcomeOf } from "./fake-outcome.ts";

vi.mock(import("../../src/simulate/run-tasks.ts"), () => ({ runTasks: vi.fn() }));

const asked: RunJob[] = [];
/** What a run comes to; an error fails it, undefined leaves it out. */
let figuresOf: (job: RunJob) => object | undefined = () => ({});

beforeEach(() => {
  asked.length = 0;
  figuresOf = () => ({});
  vi.mocked(runTasks).mockImplementation(async (tasks, options) => {
    for (const [at, task] of tasks.entries()) {
      const job = task as RunJob;
      asked.push(job);
      try {
        const figures = figuresOf(job);
        const measured = { requests: 1_000, total_tokens_per_s: 50, ...figures };
        if (figures) options.onResult(at, outcomeOf(job, measured) as never);
      } catch (error) {
        options.onFailure(at, error as Error);
      }
    }
  });
});

const simulate = (...written: readonly string[]) => runCommand(registerSimulate, "simulate", "worst-case", ...written);
const read = (flags: SimulateFlags) => readSimulateOptions("worst-case", flags) as WorstCaseCommand;

test("the plan is of scenarios and variants that there are, each case once, and none without an end", () => {
  expect(new Set(worstCasePlan.map(nameOf)).size).toBe(worstCasePlan.length);
  for (const { scenario: name, variant, requests, durationS, scale, load } of worstCasePlan) {
    const one = scenario(name);
    if (variant !== undefined) expect(one.variants.map((each) => each.name)).toContain(variant);
    if (one.isOpenLoop) expect(requests ?? durationS).toBeGreaterThan(0);
    expect(scale === undefined).toBe(load === undefined);
  }
});

test("a quick run has every scenario of the plan, and fewer cases", () => {
  const { selection } = read({ quick: true });
  const quick = casesOf(selection, worstCasePlan);
  const scenarios = (cases: typeof worstCasePlan) => new Set(cases.map((one) => one.scenario));
  expect(scenarios(quick)).toEqual(scenarios(worstCasePlan));
  expect(quick.length).toBeLessThan(worstCasePlan.length);
});

test("without flags: every policy, one router and eight, three seeds; quick: one", () => {
  expect(read({})).toEqual({
    kind: "worst-case",
    selection: { policies: policyNames, routers: [1, 8], seeds: 3, isQuick: false, only: undefined },
    ...{ trace: ".", isJson: false, jobs: expect.any(Number) },
  });
  expect(read({ quick: true }).selection).toMatchObject({ seeds: 1, isQuick: true });
  expect(read({ quick: true, seeds: "2" }).selection.seeds).toBe(2);
  expect(read({ policy: "all" }).selection.policies).toEqual(policyNames);
  expect(
    read({ policy: "lmetric, random", routers: "1", only: "bursts,rag", trace: "t", jobs: "2", json: true }),
  ).toMatchObject({
    selection: { policies: ["lmetric", "random"], routers: [1], only: ["bursts", "rag"] },
    ...{ trace: "t", jobs: 2, isJson: true },
  });
});

test.each([
  { flags: { policy: "clusterip" }, says: '--policy: "clusterip" is not one of' },
  { flags: { only: "burst" }, says: '--only: "burst" is not one of one-prompt' },
  { flags: { routers: "0" }, says: "--routers must be a whole number from 1" },
  { flags: { seeds: "101" }, says: "--seeds must be a whole number from 1 to 100" },
  { flags: { variant: "2x" }, says: "--variant: does not go with worst-case" },
  { flags: { kneeOf: "random" }, says: "--knee-of: does not go with worst-case" },
] as const)("$flags is refused: $says", ({ flags, says }) => {
  expect(() => read(flags)).toThrow(
    expect.objectContaining({ name: "UsageError", message: expect.stringContaining(says) }),
  );
});

test("more runs than the bound are refused, and so many are planned", () => {
  const [one] = casesOf(read({ only: "bursts" }).selection, worstCasePlan);
  const plan = (routers: number, seeds: number) =>
    planWorstCase(
      {
        ...read({ policy: "random,lmetric" }).selection,
        ...{ routers: Array.from({ length: routers }, (_, at) => at + 1), seeds },
      },
      [one!],
      () => undefined,
    );
  expect(plan(40, 100)).toHaveLength(8_000);
  expect(() => plan(41, 100)).toThrow("8200 runs are more than 8000");
});

test("admission is on in every run, and a case is run seed by seed, in each all policies", async () => {
  const { stdout } = await simulate("--only", "bursts,a10g-8", "--policy", "random,lmetric", "--seeds", "2", "--quick");
  expect(asked).toHaveLength(16);
  expect(asked.every(({ admission, links, sharing }) => admission && links === "delays" && sharing === "mesh")).toBe(
    true,
  );
  expect(asked.slice(0, 8).map(({ policy, routers, seed }) => `${seed} ${routers} ${policy}`)).toEqual([
    ...["1 1 random", "1 1 lmetric", "1 8 random", "1 8 lmetric"],
    ...["2 1 random", "2 1 lmetric", "2 8 random", "2 8 lmetric"],
  ]);
  expect(asked[0]).toMatchObject({ source: { name: "bursts" }, durationS: 8, scale: 1, engines: 8 });
  expect(stdout).toContain("1 is the best");
});

test("a table with a line for each policy and number of routers, the best first", async () => {
  figuresOf = ({ policy, source }) => (policy === "random" && source.name === "rag" ? { e2e_mean_s: 27 } : {});
  const { stdout, exitCode } = await simulate("--only", "bursts,rag", "--policy", "random,lmetric");
  expect(exitCode).toBeUndefined();
  const cells = stdout.split("\n").map((line) => line.trim().split(/ {2,}/));
  expect(cells[0]!.slice(0, 4)).toEqual(["policy", "routers", "worst", "in"]);
  expect(cells.slice(1, 5).map((line) => line.slice(0, 4).join(" "))).toEqual([
    ...["lmetric 1 1.00 bursts", "lmetric 8 1.00 bursts", "random 1 3.00 rag", "random 8 3.00 rag"],
  ]);
  expect(cells[3]).toContain("3.00 (2.000)");
});

test("JSON has the rows under their fixed keys, and the cases that they come from", async () => {
  const { stdout } = await simulate("--only", "bursts", "--policy", "random,lmetric", "--routers", "1", "--json");
  const { name, params, partial, rows, cases } = JSON.parse(stdout);
  expect([name, partial]).toEqual(["worst-case", false]);
  expect(params).toMatchObject({ policies: ["random", "lmetric"], routers: [1], seeds: 3, quick: false });
  expect(rows).toHaveLength(8);
  expect(rows[0]).toEqual({
    ...{ policy: "random", routers: 1, figure: "ttft_mean_s", worst_ratio: 1, worst_scenario: "bursts" },
    ...{ mean_ratio: 1, cases: 1, failed_cases: 0 },
  });
  expect(cases[1]).toMatchObject({
    ...{ case: "bursts", policy: "lmetric", routers: 1, seeds: [1, 2, 3], requests: 3_000, errors: 0 },
    ...{ total_tokens_per_s: 50, ratios: { ttft_mean_s: 1 } },
  });
});

test("a trace that is not there leaves its cases out, and that is said once", async () => {
  const { stderr } = await simulate("--only", "mooncake-conversation,bursts", "--policy", "random", "--seeds", "1");
  expect(asked.map(({ source }) => source.name)).toEqual(["bursts", "bursts"]);
  expect(stderr.match(/mooncake-conversation skipped: conversation_trace/g)).toHaveLength(1);
});

test("a trace is named, or the directory that it is in", async () => {
  const path = temporaryFile("conversation_trace.jsonl.gz", "");
  for (const trace of [path, path.slice(0, path.lastIndexOf("/"))]) {
    asked.length = 0;
    await simulate("--only", "mooncake-conversation", "--policy", "random", "--quick", "--trace", trace);
    expect(asked.map(({ source, scale }) => [source.trace, scale])).toEqual(Array(2).fill([path, 0.85 * 9.38]));
  }
});

test("stopped before the end: what is whole is shown, said to be partial, and the exit code is 1", async () => {
  figuresOf = ({ source, policy }) => (source.name === "rag" && policy === "lmetric" ? undefined : {});
  const { stdout, stderr, exitCode } = await simulate("--only", "bursts,rag", "--policy", "random,lmetric", "--json");
  expect(exitCode).toBe(1);
  expect(stderr).toContain("partial: 18 of 24 runs;");
  const { partial, cases } = JSON.parse(stdout);
  expect(partial).toBe(true);
  expect(new Set(cases.map((one: { case: string }) => one.case))).toEqual(new Set(["bursts"]));
  expect((await simulate("--only", "rag", "--policy", "lmetric")).stdout).toContain("partial: not all runs were made");
});

test("a run that fails is told, and the others are judged", async () => {
  figuresOf = ({ policy }) => {
    if (policy === "lmetric") throw new Error("it broke");
    return {};
  };
  const { stdout, stderr, exitCode } = await simulate("--only", "bursts", "--policy", "random,lmetric", "--seeds", "1");
  expect(exitCode).toBe(1);
  expect(stderr).toContain("failed: it broke");
  expect(stdout).toMatch(/random +1 +1\.00 +bursts/);
  expect(stdout).not.toContain("lmetric");
});

test("--only belongs to worst-case", async () => {
  const { error } = await runCommand(registerSimulate, "simulate", "rag", "--only", "rag");
  expect(error).toMatchObject({ name: "UsageError" });
});
