import { existsSync, readFileSync } from "node:fs";
import { EspalierError } from "@espalier/core";
import { beforeEach, expect, test, vi } from "vitest";
import { registerSimulate } from "../../src/commands/simulate.ts";
import type { RunJob, SimJob } from "../../src/simulate/run-job.ts";
import { runTasks } from "../../src/simulate/run-tasks.ts";
import { isUsageRefusal, runCommand } from "../run-command.ts";
import { temporaryFile } from "../temporary.ts";
import { outcomeOf } from "./fake-outcome.ts";

// Runs are processes; here each ends at once as a test wants it, and what was asked is looked at.
vi.mock(import("../../src/simulate/run-tasks.ts"), () => ({ runTasks: vi.fn() }));

const asked: SimJob[] = [];
let sizes: number[] = [];
let figuresOf: (job: RunJob) => object = () => ({});

beforeEach(() => {
  asked.length = 0;
  sizes = [];
  figuresOf = () => ({});
  vi.mocked(runTasks).mockImplementation(async (tasks, options) => {
    sizes.push(options.size);
    // The last to begin is the first to end.
    for (const [at, task] of [...tasks.entries()].reverse()) {
      const job = task as SimJob;
      asked.push(job);
      options.onProgress(at, 0.5);
      try {
        const knee = { scale: 2, position: "between", runs: [{ scale: 2, load: { offeredPerS: 20 } }] };
        options.onResult(at, (job.kind === "knee" ? knee : outcomeOf(job, figuresOf(job))) as never);
      } catch (error) {
        options.onFailure(at, error as Error);
      }
    }
  });
});

const simulate = (...written: readonly string[]) => runCommand(registerSimulate, "simulate", ...written);
const runs = (): readonly RunJob[] => asked.filter((job) => job.kind === "run").reverse();
const lines = (text: string): readonly string[] => text.trimEnd().split("\n");
const firstCells = (text: string): readonly string[] => lines(text).map((line) => line.split(/ {2,}/)[0]!);

test("a table with a line for each policy in the order of the plan, though the runs ended in another", async () => {
  const { stdout, stderr, error, exitCode } = await simulate(
    "sglang-prefix-groups",
    "--variant",
    "v0.4",
    "--routers",
    "2",
    "--jobs",
    "3",
  );
  expect(error).toBeUndefined();
  expect(exitCode).toBeUndefined();
  expect(firstCells(stdout).slice(0, 7)).toEqual([
    ...["policy", "random", "round_robin", "cache_aware", "cache_aware", "least_work", "least_work"],
  ]);
  expect(stdout).toContain("8 engines: an infinite shared cache would hold 75.0 %");
  expect(stdout).toContain("SGLang v0.4");
  expect(stderr).toContain("sglang-prefix-groups █");
  expect(stderr).toContain("100/100");
  expect(sizes).toEqual([3]);
});

test("JSON stands alone on standard output, with rows of every seed, gaps, medians and bounds", async () => {
  const { stdout } = await simulate("rag", "--policy", "least_work", "--routers", "4", "--seeds", "3", "--json");
  const { name, params, rows, medians, ...rest } = JSON.parse(stdout);
  expect([name, params]).toEqual([
    "simulate",
    { scenario: "rag", policy: "least_work", routers: "4", seeds: "3", json: true },
  ]);
  const combinations = rows.map(({ policy, routers, sharing, seed }: Record<string, unknown>) => [
    policy,
    routers,
    sharing,
    seed,
  ]);
  expect(combinations).toEqual(
    [
      ["random", 4, "none"],
      ["least_work", 1, "oracle"],
      ["least_work", 4, "mesh"],
    ].flatMap((combination) => [1, 2, 3].map((seed) => [...combination, seed])),
  );
  expect(rows[8].oracle_gap_ttft).toBeCloseTo(4.3 / 1.3, 9);
  expect(rows[0]).not.toHaveProperty("oracle_gap_ttft");
  expect(medians).toHaveLength(3);
  expect(medians[2]).toMatchObject({ seeds: [1, 2, 3], figures: { ttft_mean_s: { median: 4.2, min: 4.1, max: 4.3 } } });
  expect(rows[0].bounds).toEqual({ infinite_cache: 0.75, infinite_cache_followup: 0.9, pooled_lru: 0.6 });
  expect(rest).toEqual({});
});

test("several seeds are medians for people", async () => {
  const { stdout } = await simulate("rag", "--policy", "random", "--seeds", "3");
  expect(firstCells(stdout).slice(0, 2)).toEqual(["policy", "random"]);
  expect(stdout).toContain("\nmedians of 3 seeds; --json has each\n");
});

test("loads are shares of a knee that is found first, and told", async () => {
  const { stdout } = await simulate("rag", "--policy", "random", "--load", "0.5,0.9");
  expect(asked[0]).toMatchObject({ kind: "knee", policy: "predicted_latency", sharing: "oracle", routers: 1 });
  expect(runs().map(({ load, scale }) => [load, scale])).toEqual([
    [0.5, 1],
    [0.9, 1.8],
  ]);
  expect(lines(stdout)[0]).toBe(
    "the knee of 8 engines by predicted_latency: 2.000 of the published rate, 20.0 requests/s",
  );
  const json = JSON.parse((await simulate("rag", "--policy", "random", "--load", "0.5", "--json")).stdout);
  expect(json.knees).toEqual([{ engines: 8, policy: "predicted_latency", scale: 2, requests_per_s: 20 }]);
});

test("a knee that is not found takes its runs with it", async () => {
  vi.mocked(runTasks).mockImplementationOnce(async (_, options) => options.onFailure(0, new Error("no knee is found")));
  const { stdout, stderr, exitCode } = await simulate("rag", "--policy", "random", "--load", "0.5");
  expect(runs()).toEqual([]);
  expect(stdout).toBe("");
  expect(stderr).toContain("the search for the knee (1 routers, 8 engines) failed: no knee is found");
  expect(exitCode).toBe(1);
});

test("a run that fails is told, the others are shown, and the exit code is 1", async () => {
  figuresOf = ({ policy }) => {
    if (policy === "round_robin") throw new EspalierError("config_invalid", "it does not fit");
    return {};
  };
  const { stdout, stderr, exitCode } = await simulate(
    "rag",
    "--policy",
    "random,round_robin,least_tokens",
    "--routers",
    "1",
  );
  expect(firstCells(stdout).slice(0, 3)).toEqual(["policy", "random", "least_tokens"]);
  expect(stderr).toContain("the run of round_robin, none, seed 1 (1 routers, 8 engines) failed: it does not fit");
  expect(exitCode).toBe(1);
});

test("a run without a request that succeeded is a failure", async () => {
  figuresOf = ({ policy }) => (policy === "random" ? { errors: 100 } : { errors: 99 });
  expect((await simulate("rag", "--policy", "round_robin")).exitCode).toBe(1);
  figuresOf = () => ({ errors: 99 });
  expect((await simulate("rag", "--policy", "round_robin")).exitCode).toBeUndefined();
});

test("Ctrl-C: what was measured is shown, and the exit code is 1", async () => {
  vi.mocked(runTasks).mockImplementation(async (tasks, options) => {
    options.onResult(0, outcomeOf(tasks[0] as RunJob) as never);
    process.emit("SIGINT");
    expect(options.signal.aborted).toBe(true);
  });
  const { stdout, exitCode } = await simulate("rag", "--policy", "random,least_work");
  expect(firstCells(stdout).slice(0, 2)).toEqual(["policy", "random"]);
  expect(stdout).not.toContain("least_work");
  expect(exitCode).toBe(1);
});

test("--plot writes a picture of the runs, and none of nothing", async () => {
  const path = temporaryFile("plot.svg", "");
  await simulate("rag", "--plot", path);
  expect(readFileSync(path, "utf8")).toMatch(/^<svg .*Time to first token/);
  const other = `${path}.other`;
  vi.mocked(runTasks).mockImplementation(async () => {});
  expect((await simulate("rag", "--plot", other)).exitCode).toBe(1);
  expect(existsSync(other)).toBe(false);
});

test("phases of a fault are in the table and in the rows", async () => {
  vi.mocked(runTasks).mockImplementation(async (tasks, options) => {
    const phase = { from_s: 0, to_s: 9, requests: 7, errors: 0 };
    const phases = { before: phase, during: phase, after: phase, seconds_to_recover: 3 };
    for (const [at, task] of tasks.entries()) options.onResult(at, { ...outcomeOf(task as RunJob), phases } as never);
  });
  const { stdout } = await simulate("partition");
  expect(stdout).toContain("Before, during and after the fault");
  const { rows } = JSON.parse((await simulate("partition", "--json")).stdout);
  expect(rows[0].phases.seconds_to_recover).toBe(3);
});

test("the scenarios are listed, for people and for programs", async () => {
  const { stdout } = await simulate("--list");
  expect(firstCells(stdout)).toEqual(expect.arrayContaining(["scenario", "smg-240", "rag", "partition"]));
  const listed = JSON.parse((await simulate("--list", "--json")).stdout);
  expect(listed).toContainEqual(
    expect.objectContaining({ name: "smg-240", fleet: expect.objectContaining({ engines: 240 }) }),
  );
  expect(asked).toEqual([]);
});

const trace = (): string =>
  temporaryFile("mine.jsonl", '{"timestamp":0,"input_length":512,"output_length":2,"hash_ids":[1]}\n');

test("a trace and a fleet of one's own", async () => {
  const fleet = temporaryFile("fleet.json", '{"engines":3,"routers":2,"preset":"a10g-7b"}');
  const path = trace();
  await simulate("--trace", path, "--fleet", fleet);
  expect(runs()[0]).toMatchObject({ source: { name: undefined, trace: path, fleet }, engines: 3, routers: 2 });
  await simulate("rag", "--fleet", fleet, "--policy", "random");
  expect(runs()[0]).toMatchObject({ source: { name: "rag", fleet }, engines: 3, routers: 2 });
});

test("the scenario that replays a trace is given it", async () => {
  const path = trace();
  await simulate("mooncake-conversation", "--trace", path, "--policy", "random");
  expect(runs()).toMatchObject([{ source: { name: "mooncake-conversation", trace: path } }]);
});

test.each([
  { written: [], says: "name a scenario" },
  { written: ["smg-24"], says: "did you mean smg-240?" },
  { written: ["mooncake-conversation"], says: "replays a trace: give it with --trace" },
  { written: ["rag", "--trace", "x.jsonl"], says: "--trace: rag makes its own requests" },
  { written: ["session-affinity", "--load", "0.5"], says: "is a closed loop" },
  { written: ["rag", "--variant", "2x"], says: '--variant: "2x" of rag: it has none' },
  { written: ["rag", "--policy", "robin"], says: '--policy: "robin" is not one of' },
])("$written: a mistake is told before anything is run: $says", async ({ written, says }) => {
  const { error, stdout } = await simulate(...written);
  expect(error).toMatchObject({ name: "UsageError", message: expect.stringContaining(says) });
  expect([stdout, asked]).toEqual(["", []]);
});

test("what is wrong with a file is told before anything is run", async () => {
  const bad = temporaryFile("bad.jsonl", '{"timestamp":0,"input_length":"x","output_length":2,"hash_ids":[1]}\n');
  expect((await simulate("--trace", bad)).error).toMatchObject({ code: "trace_invalid" });
  expect((await simulate("--trace", "/nowhere")).error).toMatchObject({ code: "trace_unreadable" });
  expect((await simulate("rag", "--fleet", "/nowhere")).error).toMatchObject({ code: "config_unreadable" });
  const fleet = temporaryFile("fleet.json", '{"engines":0,"preset":"a10g-7b"}');
  expect((await simulate("rag", "--fleet", fleet)).error).toMatchObject({ code: "config_invalid", param: "engines" });
  expect(asked).toEqual([]);
});

test("a format that is not known is refused", async () => {
  const { error, stderr } = await simulate("--trace", "x", "--format", "yaml");
  expect(isUsageRefusal(error)).toBe(true);
  expect(stderr).toContain("Allowed choices are mooncake, bailian, azure, prompts");
});

test("what a change of the fleet would do is said below the table, and in JSON", async () => {
  figuresOf = ({ engines }) => ({ ttft_p99_s: 20 / engines });
  const args = ["sglang-prefix-groups", "--engines", "4", "--what-if", "engines+4"];
  const { stdout, error } = await simulate(...args);
  expect(error).toBeUndefined();
  expect(runs().map(({ policy, engines }) => [policy, engines])).toEqual([
    ["predicted_latency", 4],
    ["predicted_latency", 8],
  ]);
  expect(lines(stdout).at(-1)).toMatch(/^4 more engines: time to first token p99 -50 % \(5\.00 to 2\.50 s\)/);
  const { what_if: compared } = JSON.parse((await simulate(...args, "--json")).stdout);
  expect(compared).toMatchObject([{ change: "4 more engines", ttft_p99_s: { from: 5, to: 2.5 } }]);
});
