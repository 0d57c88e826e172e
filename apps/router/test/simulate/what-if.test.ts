import { medianRows, traceScenario } from "@espalier/simulator";
import { expect, test } from "vitest";
import { readSelection, readSimulateOptions, type SimulateFlags } from "../../src/simulate/simulate-options.ts";
import { compareWhatIfs, describeWhatIf, maxWhatIfs, planWhatIf, readWhatIfs } from "../../src/simulate/what-if.ts";
import { outcomeOf } from "./fake-outcome.ts";

const fleet = { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 } as const;
const scenario = traceScenario("trace.jsonl", fleet);
const source = { name: undefined, trace: "trace.jsonl", format: undefined, fleet: undefined };
const plan = (changes: string, flags: SimulateFlags = {}) =>
  planWhatIf(readWhatIfs(changes), readSelection(source, flags), scenario);

test("the fleet as it is and each change are run with every seed, and nothing else is", () => {
  const { jobs } = plan("engines+4,routers+1,policy=least_work", { engines: "4", seeds: "2" });
  expect(jobs.map(({ policy, engines, routers, sharing, seed }) => [policy, engines, routers, sharing, seed])).toEqual([
    ["predicted_latency", 4, 1, "mesh", 1],
    ["predicted_latency", 4, 1, "mesh", 2],
    ["predicted_latency", 8, 1, "mesh", 1],
    ["predicted_latency", 8, 1, "mesh", 2],
    ["predicted_latency", 4, 2, "mesh", 1],
    ["predicted_latency", 4, 2, "mesh", 2],
    ["least_work", 4, 1, "mesh", 1],
    ["least_work", 4, 1, "mesh", 2],
  ]);
});

test("without a mesh, and one router fewer", () => {
  const { jobs } = plan("sharing=none,routers-1", { routers: "2", policy: "least_work" });
  expect(jobs.map(({ routers, sharing }) => [routers, sharing])).toEqual([
    [2, "mesh"],
    [2, "none"],
    [1, "mesh"],
  ]);
});

test("what a change does is said in one sentence", () => {
  const planned = plan("engines+4,routers+1", { seeds: "3" });
  const rows = planned.jobs.map((job) => {
    const ttftS = 20 / job.engines;
    const figures = { ttft_p99_s: ttftS, ttft_p50_s: ttftS / 10, e2e_p99_s: 4, cached_share: job.engines / 20 };
    return outcomeOf(job, figures).row;
  });
  const [engines, routers] = compareWhatIfs(planned, medianRows(rows)).map(describeWhatIf);
  expect(engines).toBe(
    "4 more engines: time to first token p99 -33 % (2.50 to 1.67 s), p50 -33 %; answers p99 0 %; cached 40 to 60 %",
  );
  expect(routers).toMatch(/^1 more router: time to first token p99 0 %/);
});

test("a change whose runs failed is left out, and one without an answer says so", () => {
  const planned = plan("engines+4,engines-4");
  const rows = [planned.jobs[0]!, planned.jobs[2]!].map((job) => outcomeOf(job).row);
  const [base, few] = rows as [(typeof rows)[0], (typeof rows)[0]];
  const { ttft_p99_s: _, ...silent } = few;
  expect(compareWhatIfs(planned, medianRows([base, few])).map(({ change }) => change)).toEqual(["4 fewer engines"]);
  expect(compareWhatIfs(planned, medianRows([base, silent])).map(describeWhatIf)).toEqual([
    "4 fewer engines: no request succeeded",
  ]);
});

test.each([
  ["engines", "is not a change such as engines+4"],
  ["engines+0", "is not a change such as engines+4"],
  ["engines*2", "is not a change such as engines+4"],
  ["policy=robin", '"robin" is not one of'],
  ["sharing=all", '"all" is not one of'],
  ["engines-8", "0 engines are not between 1 and"],
  ["routers+9999", "10000 routers are not between 1 and"],
  ["policy=predicted_latency", "policy predicted_latency: that is the fleet as it is"],
  [Array.from({ length: maxWhatIfs + 1 }, (_, at) => `engines+${at + 1}`).join(","), "are more than 16"],
])("%s is refused", (changes, message) => {
  expect(() => plan(changes)).toThrow(message);
});

test("as many changes as there may be are planned", () => {
  const changes = Array.from({ length: maxWhatIfs }, (_, at) => `engines+${at + 1}`).join(",");
  expect(plan(changes).jobs).toHaveLength(maxWhatIfs + 1);
});

test.each([
  [{ engines: "4,8" }, "--engines: one of them"],
  [{ routers: "1,2" }, "--routers: one of them"],
  [{ policy: "random,least_work" }, "--policy: one of them"],
  [{ sharing: "mesh,none" }, "--sharing: one of them"],
  [{ links: "real,delays" }, "--links: one of them"],
] as const)("a comparison begins with one fleet, not with %j", (flags, message) => {
  expect(() => plan("engines+4", flags)).toThrow(message);
});

test.each(["load", "users", "variant"] as const)("--%s does not go with it", (flag) => {
  const flags = { trace: "trace.jsonl", whatIf: "engines+4", [flag]: "1" };
  expect(() => readSimulateOptions(undefined, flags)).toThrow(`--${flag}: does not go with --what-if`);
});
