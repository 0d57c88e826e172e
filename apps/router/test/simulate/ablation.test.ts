import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultPolicyParts } from "@espalier/policies";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { registerSimulate } from "../../src/commands/simulate.ts";
import { runAblation } from "../../src/simulate/ablation.ts";
import type { RunJob } from "../../src/simulate/run-job.ts";
import { runTasks } from "../../src/simulate/run-tasks.ts";
import { type AblationCommand, readSimulateOptions, type SimulateFlags } from "../../src/simulate/simulate-options.ts";
import { runCommand } from "../run-command.ts";
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
        if (figures)
          options.onResult(at, outcomeOf(job, { requests: 1_000, total_tokens_per_s: 50, ...figures }) as never);
      } catch (error) {
        options.onFailure(at, error as Error);
      }
    }
  });
});

const simulate = (...written: readonly string[]) => runCommand(registerSimulate, "simulate", "ablation", ...written);
const read = (flags: SimulateFlags) => readSimulateOptions("ablation", flags) as AblationCommand;
const names = () => asked.map(({ seed, routers, without = "whole" }) => `${seed} ${routers} ${without}`);

test("without flags: each part, one router and eight, three seeds, for a quick one too", () => {
  expect(read({})).toEqual({
    ...{ kind: "ablation", without: defaultPolicyParts, trace: ".", isJson: false, isReport: false },
    cases: { routers: [1, 8], seeds: 3, isQuick: false, only: undefined },
    jobs: expect.any(Number),
  });
  expect(read({ quick: true }).cases).toMatchObject({ seeds: 3, isQuick: true });
  expect(read({ without: "second_copy, near_ties", routers: "4", seeds: "2", only: "bursts,rag" })).toMatchObject({
    without: ["second_copy", "near_ties"],
    cases: { routers: [4], seeds: 2, only: ["bursts", "rag"] },
  });
});

test.each([
  { flags: { without: "luck" }, says: '--without: "luck" is not one of' },
  { flags: { policy: "random" }, says: "--policy: does not go with ablation" },
  { flags: { json: true, report: true }, says: "--json: does not go with --report" },
] as const)("$flags is refused: $says", ({ flags, says }) => {
  expect(() => read(flags)).toThrow(
    expect.objectContaining({ name: "UsageError", message: expect.stringContaining(says) }),
  );
});

test("more runs than the bound are refused before any is made", async () => {
  const { error } = await simulate("--seeds", "100");
  expect(error).toMatchObject({ name: "UsageError", message: expect.stringMatching(/runs are more than 8000/) });
  expect(asked).toEqual([]);
});

test("the whole policy and the one without each part run in the same cases, and every part with the same seeds", async () => {
  figuresOf = ({ without }) => (without ? { e2e_mean_s: 12 } : {});
  await simulate("--quick", "--only", "bursts", "--without", "requests,near_ties", "--seeds", "2");
  expect(asked.every(({ policy, source }) => policy === "predicted_latency" && source.name === "bursts")).toBe(true);
  expect(names()).toEqual([
    ...["1 1 whole", "1 1 requests", "1 1 near_ties", "1 8 whole", "1 8 requests", "1 8 near_ties"],
    ...["2 1 whole", "2 1 requests", "2 1 near_ties", "2 8 whole", "2 8 requests", "2 8 near_ties"],
  ]);
});

test("a part that the first seed does not reach is not run with others, and counts as one that changes nothing", async () => {
  figuresOf = ({ without, routers }) => (without === "near_ties" && routers === 8 ? { e2e_mean_s: 12 } : {});
  const { stdout } = await simulate("--quick", "--only", "bursts", "--without", "requests,near_ties", "--json");
  expect(names().filter((name) => !name.startsWith("1 "))).toEqual([
    ...["2 1 whole", "2 8 whole", "2 8 near_ties", "3 1 whole", "3 8 whole", "3 8 near_ties"],
  ]);
  const { parts } = JSON.parse(stdout);
  expect(
    parts.map((one: Record<string, unknown>) => [one.part, one.routers, one.reached, one.cases, one.earns]),
  ).toEqual([
    ["near_ties", 1, 0, 1, 0],
    ["near_ties", 8, 1, 1, 1],
    ["requests", 1, 0, 1, 0],
    ["requests", 8, 0, 1, 0],
  ]);
});

test("a table with a line for each part and number of routers: what it earns, where, and how sure that is", async () => {
  figuresOf = ({ without, source, seed }) =>
    without === "second_copy" && source.name === "rag" ? { e2e_mean_s: 18 + seed / 10, goodput_share: 0.9 } : {};
  const { stdout, exitCode } = await simulate("--quick", "--only", "bursts,rag", "--without", "second_copy,requests");
  expect(exitCode).toBeUndefined();
  const cells = stdout.split("\n").map((line) => line.trim().split(/ {2,}/));
  expect(cells[0]).toEqual([
    ...["without", "routers", "ttft", "e2e", "tokens/s", "goodput", "earns most", "costs most"],
    ...["earns > seeds", "costs > seeds", "reached", "failed"],
  ]);
  expect(cells[1]).toEqual([
    ...["second_copy", "1", "1.00 (1.000)", "2.02 (1.511)", "1.00 (1.000)", "-", "2.02 ±0.01 e2e, rag", "-"],
    ...["1", "0", "1 of 2", "0"],
  ]);
  expect(cells[3]!.slice(0, 2)).toEqual(["requests", "1"]);
});

test("JSON has parts and effects under their fixed keys", async () => {
  const { stdout } = await simulate("--only", "bursts", "--without", "requests", "--routers", "1", "--json");
  const { name, params, partial, parts, effects } = JSON.parse(stdout);
  expect([name, partial]).toEqual(["ablation", false]);
  expect(params).toEqual({
    ...{ policy: "predicted_latency", without: ["requests"], routers: [1], seeds: 3, quick: false, only: ["bursts"] },
  });
  expect(parts[0]).toEqual({
    ...{ part: "requests", routers: 1, failed_cases: 0, earns: 0, costs: 0, reached: 0, cases: 1 },
    ratios: Object.fromEntries(
      ["ttft_mean_s", "e2e_mean_s", "total_tokens_per_s"].map((figure) => [figure, { worst: 1, mean: 1 }]),
    ),
  });
  expect(effects[0]).toEqual({ case: "bursts", part: "requests", routers: 1, figure: "ttft_mean_s", ratio: 1 });
});

test("stopped before the end, or with a failed run: the rest is shown, and the exit code is 1", async () => {
  figuresOf = ({ seed }) => (seed === 1 ? {} : undefined);
  const stopped = await simulate("--quick", "--only", "bursts", "--without", "requests", "--routers", "1");
  expect([stopped.exitCode, stopped.stderr]).toEqual([1, expect.stringContaining("partial: 2 of 4 runs;")]);
  expect(stopped.stdout).toContain("partial: not all runs were made");
  figuresOf = ({ without }) => {
    if (without === "requests") throw new Error("it broke");
    return {};
  };
  const failed = await simulate("--quick", "--only", "bursts", "--without", "requests,near_ties", "--routers", "1");
  expect([failed.exitCode, failed.stderr]).toEqual([1, expect.stringContaining("failed: it broke")]);
  expect(failed.stdout).toContain("near_ties");
});

test("--report writes the page with its command, and none when runs are missing", async () => {
  const docs = mkdtempSync(join(tmpdir(), "espalier-ablation-"));
  onTestFinished(() => rmSync(docs, { recursive: true }));
  vi.spyOn(process.stdout, "write").mockReturnValue(true);
  vi.spyOn(process.stderr, "write").mockReturnValue(true);
  const command = read({ quick: true, only: "bursts", without: "requests", routers: "1", report: true });
  const report = () => runAblation(command, { docs, signal: new AbortController().signal });
  await expect(report()).rejects.toThrow("benchmarks is not there");
  expect(asked).toEqual([]);
  mkdirSync(join(docs, "benchmarks"));
  const page = join(docs, "benchmarks/ablation.md");
  figuresOf = ({ seed }) => (seed === 1 ? {} : undefined);
  expect(await report()).toBe(false);
  expect(existsSync(page)).toBe(false);
  figuresOf = () => ({});
  expect(await report()).toBe(true);
  const text = readFileSync(page, "utf8");
  expect(text).toContain(
    "npx espalier simulate ablation --quick --only bursts --without requests --routers 1 --seeds 3 --report\n",
  );
  expect(text).toContain("| requests | 1 | 1.00 (1.000) |");
});
