import type { Scenario } from "@espalier/simulator";
import { expect, test } from "vitest";
import type { RunJob } from "../../src/simulate/run-job.ts";
import { maxPlannedRuns, planKnees, planRuns } from "../../src/simulate/run-plan.ts";
import type { RunSelection } from "../../src/simulate/simulate-options.ts";

const scenario: Scenario = {
  name: "of-the-test",
  summary: "",
  fleet: { preset: "smg-generic", parameters: {}, engines: 8, routers: 2 },
  policies: ["round_robin", "cache_aware", "least_work"],
  variants: [
    { name: "small", engines: 4, routers: 1 },
    { name: "fast", scale: 2, parameters: { blockCount: 10 } },
  ],
  published: [],
  isOpenLoop: true,
  createWorkload: () => {
    throw new Error("nothing is run");
  },
};

const selection: RunSelection = {
  source: { name: "of-the-test", trace: undefined, format: undefined, fleet: undefined },
  policies: undefined,
  routers: undefined,
  engines: undefined,
  sharing: undefined,
  links: ["real"],
  linkDelaysMs: undefined,
  seeds: 1,
  loads: undefined,
  kneePolicy: undefined,
  users: undefined,
  admission: undefined,
  objectives: undefined,
  variants: undefined,
  requests: undefined,
  durationS: undefined,
};

const plan = (part: Partial<RunSelection>, of: Scenario = scenario): readonly RunJob[] =>
  planRuns({ ...selection, ...part }, of, () => 4);

const combinations = (jobs: readonly RunJob[]): readonly string[] =>
  jobs.map(({ policy, routers, sharing, links }) => `${policy} ${routers} ${sharing} ${links}`);

test("the scenario's own policies on its own fleet, random beside them, each with its all-knowing router", () => {
  const jobs = plan({});
  expect(combinations(jobs)).toEqual([
    "random 2 none delays",
    "round_robin 2 none delays",
    "cache_aware 1 oracle delays",
    "cache_aware 2 mesh real",
    "least_work 1 oracle delays",
    "least_work 2 mesh real",
  ]);
  for (const job of jobs) {
    expect(job).toMatchObject({ kind: "run", engines: 8, seed: 1, scale: 1 });
    expect([job.load, job.variant, job.requests, job.durationS]).toEqual([undefined, undefined, undefined, undefined]);
    expect(job.source).toBe(selection.source);
  }
});

test("each number of users is a load of its own, and a scale of the scenario's users", () => {
  const jobs = plan({ policies: ["random"], users: [50, 800] }, { ...scenario, users: 200 });
  expect(jobs.map(({ users, scale, load }) => [users, scale, load])).toEqual([
    [50, 0.25, undefined],
    [800, 4, undefined],
  ]);
  expect(() => plan({ users: [50] })).toThrow("--users: of-the-test has no number of users to choose");
});

test("a scenario may say what its routers share", () => {
  const jobs = plan({ policies: ["least_work"] }, { ...scenario, sharing: ["none"] });
  expect(combinations(jobs).slice(1)).toEqual(["least_work 1 oracle delays", "least_work 2 none delays"]);
});

test("the published comparison's kinds of sharing are run unless others are named", () => {
  const result = { source: "s", metric: "m", policyValue: 1, baselineValue: 2 };
  const published = [{ ...result, policy: "least_work", baseline: "least_work", baselineSharing: "none" } as const];
  const of = { ...scenario, published };
  expect(combinations(plan({ policies: ["least_work"] }, of))).toEqual([
    "random 2 none delays",
    "least_work 1 oracle delays",
    "least_work 2 mesh real",
    "least_work 2 none delays",
  ]);
  const ofAnother = { ...scenario, published: published.map((one) => ({ ...one, variant: "another" })) };
  expect(combinations(plan({ policies: ["least_work"] }, ofAnother)).at(-1)).toBe("least_work 2 mesh real");
  expect(combinations(plan({ policies: ["least_work"], sharing: ["gossip-1s"] }, of)).at(-1)).toBe(
    "least_work 2 gossip-1s delays",
  );
});

test("all kinds of sharing: what makes no difference is run once", () => {
  const sharing = ["mesh", "none", "events-only", "gossip-1s", "oracle"] as const;
  const jobs = plan({ policies: ["random", "clusterip", "least_work"], routers: [1, 4], sharing });
  expect(combinations(jobs)).toEqual([
    "random 1 none delays",
    "clusterip 1 none delays",
    "least_work 1 oracle delays",
    "least_work 1 mesh real",
    "least_work 1 none delays",
    "least_work 4 mesh real",
    "least_work 4 none delays",
    "least_work 4 events-only delays",
    "least_work 4 gossip-1s delays",
  ]);
});

test("a rotation depends on how many rotate, not on what they share", () => {
  expect(combinations(plan({ policies: ["round_robin"], routers: [1, 2], sharing: ["mesh", "oracle"] }))).toEqual([
    "random 1 none delays",
    "round_robin 1 none delays",
    "round_robin 2 none delays",
  ]);
});

test("schedulers that share nothing differ by their number", () => {
  expect(combinations(plan({ policies: ["dualmap"], routers: [1, 8], sharing: ["mesh", "none"] }))).toEqual([
    "random 1 none delays",
    "dualmap 1 none delays",
    "dualmap 8 none delays",
  ]);
});

test("one router has no gap", () => {
  expect(combinations(plan({ policies: ["least_work"], routers: [1] }))).toEqual([
    "random 1 none delays",
    "least_work 1 mesh real",
  ]);
});

test("models of links are a matter of the mesh", () => {
  expect(
    combinations(plan({ policies: ["least_work"], sharing: ["mesh", "gossip-1s"], links: ["real", "delays"] })).slice(
      1,
    ),
  ).toEqual([
    "least_work 1 oracle delays",
    "least_work 2 mesh real",
    "least_work 2 mesh delays",
    "least_work 2 gossip-1s delays",
  ]);
});

test("seeds are next to each other, fleets apart", () => {
  const jobs = plan({ policies: ["random"], engines: [4, 2], seeds: 3 });
  expect(jobs.map(({ engines, seed }) => [engines, seed])).toEqual([
    [4, 1],
    [4, 2],
    [4, 3],
    [2, 1],
    [2, 2],
    [2, 3],
  ]);
});

test("variants bring their fleets and scales, which flags override", () => {
  const of = (part: Partial<RunSelection>) =>
    plan({ policies: ["random"], ...part }).map(({ variant, engines, routers, scale }) => [
      variant,
      engines,
      routers,
      scale,
    ]);
  expect(of({ variants: "all" })).toEqual([
    [undefined, 8, 2, 1],
    ["small", 4, 1, 1],
    ["fast", 8, 2, 2],
  ]);
  expect(of({ variants: ["small"], engines: [3], routers: [5] })).toEqual([["small", 3, 5, 1]]);
});

test("a variant that is not there is told, with those that are", () => {
  expect(() => plan({ variants: ["large"] })).toThrow(
    expect.objectContaining({
      name: "UsageError",
      message: '--variant: "large" of of-the-test: not one of small, fast',
    }),
  );
  expect(() => plan({ variants: ["large"] }, { ...scenario, variants: [] })).toThrow("it has none");
});

test("loads are shares of the knee of each fleet", () => {
  const part = { policies: ["random"], engines: [4, 8], loads: [0.5, 0.95], requests: 70, durationS: 9 };
  const jobs = planRuns({ ...selection, ...part }, scenario, ({ engines }) => engines * 10);
  expect(jobs.map(({ engines, load, scale }) => [engines, load, scale])).toEqual([
    [4, 0.5, 20],
    [4, 0.95, 38],
    [8, 0.5, 40],
    [8, 0.95, 76],
  ]);
  expect(planKnees({ ...selection, ...part }, scenario)).toEqual(
    [4, 8].map((engines) => ({
      ...{ kind: "knee", source: selection.source, variant: undefined, policy: "least_work", engines, seed: 1 },
      ...{ requests: 70, durationS: 9, routers: 1, sharing: "oracle", links: "delays" },
      linkDelayMs: undefined,
    })),
  );
});

test("delays between routers vary what is shared, beside one router that knows everything and routers that share nothing", () => {
  const setups = (part: Partial<RunSelection>) =>
    plan({ policies: ["least_work"], linkDelaysMs: [50, 150], ...part })
      .filter(({ policy }) => policy === "least_work")
      .map(({ routers, sharing, linkDelayMs }) => [routers, sharing, linkDelayMs]);
  expect(setups({ routers: [4] })).toEqual([
    [1, "oracle", undefined],
    [4, "none", undefined],
    [4, "mesh", 50],
    [4, "mesh", 150],
  ]);
  expect(setups({ routers: [4], sharing: ["gossip-1s", "events-only"] })).toEqual([
    [1, "oracle", undefined],
    [4, "gossip-1s", 50],
    [4, "gossip-1s", 150],
    [4, "events-only", undefined],
  ]);
});

test("no loads, no search; a closed loop has no knee", () => {
  expect(planKnees(selection, scenario)).toEqual([]);
  const closed = { ...scenario, isOpenLoop: false };
  expect(planKnees(selection, closed)).toEqual([]);
  expect(() => planKnees({ ...selection, loads: [0.5] }, closed)).toThrow("--load: of-the-test is a closed loop");
});

test("a plan is bounded, and a much too large one is not made", () => {
  const engines = Array.from({ length: maxPlannedRuns / 50 }, (_, at) => at + 1);
  expect(plan({ policies: ["random"], engines, seeds: 50 })).toHaveLength(maxPlannedRuns);
  expect(() => plan({ policies: ["random"], engines: [...engines, 999], seeds: 50 })).toThrow(
    `${maxPlannedRuns + 50} runs are more than ${maxPlannedRuns}`,
  );
  const part = { policies: ["random"], seeds: 100, routers: [1], sharing: ["mesh"] as const };
  const many = Array.from({ length: 10_000 }, (_, at) => at + 1);
  expect(() => plan({ ...part, engines: many, loads: [0.1, 0.2] })).toThrow("2000000 runs are more than");
  expect(() => plan({ policies: ["least_work"], seeds: 100, routers: many.slice(0, 90) })).toThrow(
    "runs are more than",
  );
});
