import { maxFleetEngines, maxFleetRouters } from "@espalier/simulator";
import { expect, test } from "vitest";
import {
  maxJobs,
  maxSeeds,
  maxSimulatedRequests,
  maxSimulatedUsers,
  type RunCommand,
  readSimulateOptions,
  type SimulateFlags,
} from "../../src/simulate/simulate-options.ts";

const read = (flags: SimulateFlags, scenario: string | undefined = "rag"): RunCommand => {
  const command = readSimulateOptions(scenario, flags);
  if (command.kind !== "run") throw new Error(`it is a ${command.kind}`);
  return command;
};

test("without flags everything is as the scenario has it, once", () => {
  const { selection, jobs, plot } = read({});
  expect(selection).toEqual({
    source: { name: "rag", trace: undefined, format: undefined, fleet: undefined },
    policies: undefined,
    routers: undefined,
    engines: undefined,
    sharing: undefined,
    links: ["real"],
    seeds: 1,
    loads: undefined,
    variants: undefined,
    requests: undefined,
    durationS: undefined,
  });
  expect(jobs).toBeGreaterThanOrEqual(1);
  expect(jobs).toBeLessThanOrEqual(maxJobs);
  expect(plot).toBeUndefined();
});

test("every flag is read", () => {
  const command = read(
    {
      policy: "round_robin, least_work,clusterip",
      routers: "1,2, 4",
      engines: "8,16",
      sharing: "mesh,none,events-only,gossip-1s,oracle",
      links: "delays,real",
      linkDelay: "50ms,0.15s",
      seeds: "3",
      load: "0.5,0.95",
      kneeOf: "lmetric",
      admission: "off",
      variant: "2x,3x",
      requests: "500",
      duration: "1.5m",
      trace: "t.jsonl",
      format: "azure",
      jobs: "5",
      plot: "out.svg",
      json: true,
    },
    "evict",
  );
  expect(command).toEqual({
    kind: "run",
    jobs: 5,
    plot: "out.svg",
    selection: {
      source: { name: "evict", trace: "t.jsonl", format: "azure", fleet: undefined },
      policies: ["round_robin", "least_work", "clusterip"],
      routers: [1, 2, 4],
      engines: [8, 16],
      sharing: ["mesh", "none", "events-only", "gossip-1s", "oracle"],
      links: ["delays", "real"],
      linkDelaysMs: [50, 150],
      seeds: 3,
      loads: [0.5, 0.95],
      kneePolicy: "lmetric",
      admission: false,
      variants: ["2x", "3x"],
      requests: 500,
      durationS: 90,
    },
  });
});

test("all policies, all variants", () => {
  const { policies, variants } = read({ policy: "all", variant: " all " }).selection;
  expect(policies).toEqual(expect.arrayContaining(["random", "cache_aware", "least_work", "clusterip"]));
  expect(new Set(policies).size).toBe(policies?.length);
  expect(variants).toBe("all");
});

test("what is named twice is run once", () => {
  const { policies, routers } = read({ policy: "random,random", routers: "2,1,2" }).selection;
  expect([policies, routers]).toEqual([["random"], [2, 1]]);
});

test.each([
  { flag: "routers", most: maxFleetRouters },
  { flag: "engines", most: maxFleetEngines },
  { flag: "seeds", most: maxSeeds },
  { flag: "users", most: maxSimulatedUsers },
  { flag: "requests", most: maxSimulatedRequests },
  { flag: "jobs", most: maxJobs },
])("--$flag goes from 1 to $most", ({ flag, most }) => {
  expect(() => read({ [flag]: "1" })).not.toThrow();
  expect(() => read({ [flag]: String(most) })).not.toThrow();
  for (const text of ["0", String(most + 1), "1.5", "", "x"]) {
    expect(() => read({ [flag]: text })).toThrow(
      `--${flag} must be a whole number from 1 to ${most}, not ${JSON.stringify(text)}`,
    );
  }
});

test("one wrong number among good ones is told", () => {
  expect(() => read({ routers: "1,2,0" })).toThrow('--routers must be a whole number from 1 to 1024, not "0"');
  expect(() => read({ engines: "1,,2" })).toThrow("--engines must be a whole number");
});

test.each([
  [undefined, undefined],
  ["ttft=500ms", { ttftMs: 500, tpotMs: 50 }],
  ["tpot=30ms, ttft=1s", { ttftMs: 1_000, tpotMs: 30 }],
  ["tpot=none", { ttftMs: 2_000, tpotMs: Number.POSITIVE_INFINITY }],
] as const)("--slo %s: what is not named is the usual objective", (slo, objectives) => {
  expect(read(slo === undefined ? {} : { slo }).selection.objectives).toEqual(objectives);
});

test.each([
  { text: "0.01", fits: true },
  { text: "3", fits: true },
  { text: "0.009", fits: false },
  { text: "3.01", fits: false },
  { text: "half", fits: false },
])("--load $text: $fits", ({ text, fits }) => {
  const reading = () => read({ load: `0.5,${text}` });
  if (fits) expect(reading).not.toThrow();
  else expect(reading).toThrow(`--load must be a number from 0.01 to 3, not ${JSON.stringify(text)}`);
});

test.each([
  { flags: { policy: "random,robin" }, says: '--policy: "robin" is not one of random, round_robin' },
  {
    flags: { sharing: "mesh,redis" },
    says: '--sharing: "redis" is not one of mesh, none, events-only, gossip-1s, oracle',
  },
  { flags: { links: "ideal" }, says: '--links: "ideal" is not one of real, delays' },
  { flags: { slo: "ttft=2" }, says: '--slo: ttft must be a length of time such as 500ms, 30s or 2m, not "2"' },
  { flags: { slo: "itl=2s" }, says: '--slo: "itl" is not one of ttft, tpot' },
  { flags: { linkDelay: "50" }, says: "--link-delay must be a length of time" },
  { flags: { linkDelay: "10s,11s" }, says: '--link-delay: at most 10s, not "11s"' },
  { flags: { duration: "60" }, says: "--duration must be a length of time" },
  { flags: { duration: "25h", seeds: "x" }, says: "--seeds" },
  { flags: { quick: true }, says: "--quick: goes with --report, worst-case and ablation only" },
  { flags: { writeTrace: "t", seeds: "2" }, says: "--seeds: does not go with --write-trace" },
  { flags: { writeTrace: "t", requests: "1000001" }, says: "--requests must be a whole number from 1 to 1000000" },
  { flags: { only: "rag" }, says: "--only: goes with worst-case and ablation only" },
  { flags: { without: "second_copy" }, says: "--without: goes with ablation only" },
  { flags: { users: "50", load: "1" }, says: "--users: does not go with --load" },
  { flags: { kneeOf: "random" }, says: "--knee-of: goes with --load only" },
  { flags: { kneeOf: "robin", load: "1" }, says: '--knee-of: "robin" is not one of random' },
  { flags: { format: "azure" }, says: "--format: goes with --trace only" },
  { flags: { fleet: "f.json", variant: "2x" }, says: "--variant: is about the scenario's own fleet" },
] as const)("$flags is refused: $says", ({ flags, says }) => {
  expect(() => read(flags)).toThrow(
    expect.objectContaining({ name: "UsageError", message: expect.stringContaining(says) }),
  );
});

test("a scenario, or a trace of one's own", () => {
  expect(() => readSimulateOptions(undefined, {})).toThrow("name a scenario (--list shows them)");
  expect(() => readSimulateOptions(undefined, { fleet: "f.json" })).toThrow("name a scenario");
  const own = readSimulateOptions(undefined, { trace: "t.jsonl", fleet: "f.json" }) as RunCommand;
  expect(own.selection.source).toEqual({ name: undefined, trace: "t.jsonl", format: undefined, fleet: "f.json" });
});

test("a trace is written of a scenario, a variant, a part of it", () => {
  const flags = { writeTrace: "t.jsonl", variant: "30-per-s", requests: "5", duration: "1m" };
  expect(readSimulateOptions("one-prompt", flags)).toEqual({
    ...{
      kind: "write-trace",
      scenario: "one-prompt",
      variant: "30-per-s",
      file: "t.jsonl",
      requests: 5,
      durationS: 60,
    },
  });
  expect(() => readSimulateOptions(undefined, { writeTrace: "t" })).toThrow("--write-trace: name a scenario");
});

test("a list and a report take nothing that is about runs", () => {
  expect(readSimulateOptions(undefined, { list: true, json: true })).toEqual({ kind: "list" });
  expect(() => readSimulateOptions("rag", { list: true })).toThrow('--list: takes no scenario, not "rag"');
  expect(() => readSimulateOptions(undefined, { list: true, seeds: "3" })).toThrow("--seeds: does not go with --list");
  expect(readSimulateOptions(undefined, { report: true, jobs: "2" })).toEqual({
    kind: "report",
    scenario: undefined,
    isQuick: false,
    jobs: 2,
    traces: ".",
  });
  const trace = "traces/conversation_trace.jsonl.gz";
  expect(readSimulateOptions(undefined, { report: true, trace })).toMatchObject({ kind: "report", traces: "traces" });
  expect(readSimulateOptions(undefined, { report: true, quick: true })).toMatchObject({
    kind: "report",
    isQuick: true,
  });
  expect(readSimulateOptions("rag", { report: true })).toMatchObject({ kind: "report", scenario: "rag" });
  expect(() => readSimulateOptions("rug", { report: true })).toThrow(/--report.*rug/);
  expect(() => readSimulateOptions(undefined, { report: true, policy: "all" })).toThrow("--policy: does not go with");
  expect(() => readSimulateOptions(undefined, { report: true, jobs: "65" })).toThrow("--jobs must be");
});
