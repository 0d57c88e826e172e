import { enginePresets, presetNames } from "@espalier/engine-model";
import { policyNames } from "@espalier/policies";
import { describe, expect, test } from "vitest";
import { faultNames } from "../../src/faults.ts";
import { rivalNames } from "../../src/rivals/rivals.ts";
import { scenario, scenarioNames } from "../../src/scenarios/catalogue.ts";
import type { Scenario, WorkloadOptions } from "../../src/scenarios/scenario.ts";
import type { TraceRequest } from "../../src/workload/index.ts";
import {
  bySession,
  hashesOf,
  infiniteCacheShare,
  recordRun,
  type SentRequest,
  sharedBlocks,
} from "../clients/recorded-run.ts";

const trace: readonly TraceRequest[] = Array.from({ length: 300 }, (_, index) => ({
  index,
  arrivalMs: Math.floor(index / 10) * 3_000,
  inputTokens: 1_024,
  outputTokens: 20,
  blockIds: [0, index % 50],
  blockTokens: 512,
  session: `session-${index % 50}`,
  turn: Math.floor(index / 50),
  wait: { after: Math.floor(index / 50) === 0 ? [] : [Math.floor(index / 50) - 1], thinkMs: 1_000 },
}));

const run = (one: Scenario, options: Partial<WorkloadOptions> = {}) => {
  const { engines, parameters, preset } = one.fleet;
  const kvTokens = 16 * (parameters.blockCount ?? enginePresets[preset].parameters.blockCount);
  const workload = one.createWorkload({ seed: 1, engines, kvTokens, scale: 1, trace, ...options });
  return { workload, ...recordRun(workload, { answerMs: 2_000 }) };
};

/** Of the first so many blocks. */
const lastHash = (chain: Uint32Array, blocks = chain.length / 2): number =>
  hashesOf(chain.subarray(2 * blocks - 2, 2 * blocks))[0]!;

const outline = (sent: readonly SentRequest[]) =>
  sent.map(({ sentMs, session, turn, promptTokens, outputTokens, className, chain }) =>
    [sentMs, session, turn, promptTokens, outputTokens, className, lastHash(chain)].join(" "),
  );

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

const kvTokensOf = ({ fleet }: Scenario): number =>
  16 * (fleet.parameters.blockCount ?? enginePresets[fleet.preset].parameters.blockCount);

/** Closed loops whose clients begin one after the other. */
const oneByOne = ["session-affinity", "baseten-4", "pull-192x48k"];

describe.each(scenarioNames)("%s", (name) => {
  const one = scenario(name);

  test("is data that holds together", () => {
    expect(one.name).toBe(name);
    expect(one.summary).toMatch(/^\S.*\.$/);
    expect(presetNames).toContain(one.fleet.preset);
    expect(one.fleet.engines).toBeGreaterThanOrEqual(1);
    const known = [...policyNames, "clusterip", ...rivalNames];
    for (const policy of one.policies) expect(known).toContain(policy);
    expect(one.policies.at(-1)).toBe("predicted_latency");
    const variants = one.variants.map((variant) => variant.name);
    expect(new Set(variants).size).toBe(variants.length);
    for (const { policy, baseline, variant, policyValue, baselineValue } of one.published) {
      expect(one.policies).toContain(policy);
      expect(one.policies).toContain(baseline);
      if (variant !== undefined) expect(variants).toContain(variant);
      expect(policyValue).toBeGreaterThan(0);
      expect(baselineValue).toBeGreaterThan(0);
    }
    for (const parameters of [one.fleet.parameters, ...one.variants.map((variant) => variant.parameters)]) {
      expect(Number.isInteger(parameters?.blockCount ?? 1)).toBe(true);
    }
  });

  test("sends requests that its engines can take, as many as it says, and the same again", () => {
    const first = run(one, { requests: 200 });
    expect(first.sent).toHaveLength(Math.min(200, first.workload.expectedRequests));
    expect([first.finishedCalls, first.sentWhenFinished]).toEqual([1, first.sent.length]);
    const { maxModelLength } = enginePresets[one.fleet.preset].parameters;
    for (const [at, { index, promptTokens, outputTokens, chain }] of first.sent.entries()) {
      expect(index).toBe(at);
      expect(Math.min(promptTokens, outputTokens)).toBeGreaterThanOrEqual(1);
      expect(chain.length).toBe(2 * Math.floor((promptTokens + outputTokens) / 16));
      expect(promptTokens + outputTokens).toBeLessThanOrEqual(Math.min(maxModelLength, kvTokensOf(one)));
    }
    expect(outline(run(one, { requests: 200 }).sent)).toEqual(outline(first.sent));
    expect(outline(run(one, { requests: 200, seed: 2 }).sent)).not.toEqual(outline(first.sent));
  });

  test("ends after so many seconds", () => {
    const { sent, finishedCalls } = run(one, { durationS: 4 });
    for (const { sentMs } of sent) expect(sentMs).toBeLessThan(4_000);
    expect(finishedCalls).toBe(1);
  });

  test("has twice the load at twice the scale", () => {
    // Long enough for the rate to show, and for a closed loop only its first requests.
    const openS = one.split || ["bursts", "gorgo"].includes(name) ? 90 : one.fleet.engines > 100 ? 2 : 9;
    const durationS = one.isOpenLoop ? openS : 0.001;
    const [once, twice] = [1, 2].map((scale) => run(one, { scale, durationS }));
    if (!one.isOpenLoop && !oneByOne.includes(name)) {
      expect(twice!.sent.length).toBe(2 * once!.sent.length);
    } else if (one.isOpenLoop) {
      expect(Math.abs(twice!.sent.length / once!.sent.length - 2)).toBeLessThan(0.6);
    }
  });
});

test("sglang-prefix-groups: each prompt of each group once, in random order, 256 at a time", () => {
  const { sent, mostInFlight, finishedMs } = run(scenario("sglang-prefix-groups"));
  const [groups, promptsPerGroup] = [64, 16];
  expect(sent).toHaveLength(groups * promptsPerGroup);
  expect([mostInFlight, finishedMs]).toEqual([256, 8_000]);
  const sizes = new Map<number, number>();
  for (const { chain } of sent) sizes.set(lastHash(chain, 128), (sizes.get(lastHash(chain, 128)) ?? 0) + 1);
  expect([...sizes.values()]).toEqual(new Array(groups).fill(promptsPerGroup));
  expect(infiniteCacheShare(sent)).toBeCloseTo((2_048 / 2_176) * (15 / 16), 5);
});

test("session-affinity: eight turns of each chat, nothing in common, half of the chats in one engine", () => {
  const one = scenario("session-affinity");
  const { sent, workload } = run(one);
  expect([workload.expectedRequests, sent.length]).toEqual([3_200, 3_200]);
  const sessions = bySession(sent);
  expect(sessions.size).toBe(400);
  expect(sessions.get(0)!.map(({ promptTokens }) => promptTokens)).toEqual([
    400, 800, 1_200, 1_600, 2_000, 2_400, 2_800, 3_200,
  ]);
  expect(sharedBlocks(sessions.get(0)![7]!.chain, sessions.get(1)![7]!.chain)).toBe(0);
  const lengths = [...sessions.values()].flatMap((requests) => requests.map((request) => request.promptTokens + 250));
  expect(kvTokensOf(one) / (400 * mean(lengths))).toBeCloseTo(0.5, 2);
});

test("a10g-8: 9,000 requests and 2.3 M output tokens, 512 at a time, on 60k KV tokens", () => {
  const one = scenario("a10g-8");
  const { sent, mostInFlight } = run(one);
  expect([sent.length, mostInFlight, kvTokensOf(one)]).toEqual([9_000, 512, 60_000]);
  expect(sent.reduce((sum, { outputTokens }) => sum + outputTokens, 0)).toBe(2_304_000);
});

test("shared-prefix-150x5: users come round in 17 steps; all of them fill 73 % of the KV", () => {
  const one = scenario("shared-prefix-150x5");
  const [groups, promptsPerGroup] = [150, 5];
  const { sent } = run(one, { requests: 1_500 });
  const firstRound = sent.slice(0, 750);
  expect(new Set(firstRound.map(({ session }) => session)).size).toBe(groups * promptsPerGroup);
  expect(new Set(firstRound.map(({ chain }) => lastHash(chain, 375))).size).toBe(groups);
  const resident = new Set(firstRound.flatMap(({ chain }) => hashesOf(chain.subarray(0, 900)))).size * 16;
  expect(resident / (8 * kvTokensOf(one))).toBeCloseTo(0.73, 2);
  const [first, second] = bySession(sent).get(17)!;
  expect([first!.turn, second!.turn, sharedBlocks(first!.chain, second!.chain)]).toEqual([0, 1, 450]);
});

test("baseten-4: twelve teams of five, each with its repository", () => {
  const { sent } = run(scenario("baseten-4"));
  expect(sent).toHaveLength(20 * 60);
  const firsts = sent.filter(({ turn }) => turn === 0);
  const teams = new Map<number, number>();
  for (const { chain } of firsts) teams.set(lastHash(chain, 1_875), (teams.get(lastHash(chain, 1_875)) ?? 0) + 1);
  expect([...teams.values()]).toEqual(new Array(12).fill(5));
  expect(Math.max(...sent.map(({ promptTokens }) => promptTokens))).toBe(30_000 + 20 * 600 + 19 * 300);
});

test("agents-300: 300 at once, lengths as given, and memory that does not copy what was before", () => {
  const { sent, mostInFlight, workload } = run(scenario("agents-300"));
  expect([sent.length, mostInFlight]).toEqual([workload.expectedRequests, 300]);
  const trajectories = [...bySession(sent).values()];
  const steps = trajectories.map(({ length }) => length).toSorted((a, b) => a - b);
  expect([steps[0]! >= 10, steps.at(-1)! <= 60]).toEqual([true, true]);
  expect(Math.abs(steps[150]! - 30)).toBeLessThanOrEqual(3);
  expect(trajectories.every(([first]) => first!.promptTokens === 9_500)).toBe(true);
  expect(sharedBlocks(trajectories[0]!.at(-1)!.chain, trajectories[1]!.at(-1)!.chain)).toBe(500);
  const buffers = new Set(sent.map(({ chain }) => chain.buffer));
  expect(buffers.size).toBeLessThan(2.5 * trajectories.length);
});

test("mooncake-conversation: needs the trace, has each published fleet, and spreads the steps", () => {
  const one = scenario("mooncake-conversation");
  expect(() => run(one, { trace: [] })).toThrow(expect.objectContaining({ code: "config_invalid", param: "trace" }));
  expect(one.variants).toHaveLength(16);
  for (const { variant } of one.published) expect(one.variants.map(({ name }) => name)).toContain(variant);
  expect(one.variants.at(-1)).toEqual({ name: "8x3.15M-ordered", engines: 8, engineOrder: "shortest" });
  expect(one.variants.find((variant) => variant.name === "4x1.05M-x2")).toEqual({
    name: "4x1.05M-x2",
    engines: 4,
    scale: 2,
    parameters: { blockCount: 65_625 },
  });
  expect(kvTokensOf(one)).toBe(3_150_000);
  const { sent } = run(one);
  expect(sent).toHaveLength(trace.length);
  expect(new Set(sent.map(({ sentMs }) => sentMs)).size).toBe(trace.length);
});

test("smg-240: about 820 requests a second, 70 % with one of 200 system prompts, few follow-ups", () => {
  const { sent } = run(scenario("smg-240"), { durationS: 15 });
  const late = sent.filter(({ sentMs }) => sentMs > 10_000);
  expect(Math.abs(late.length / 5 / 820 - 1)).toBeLessThan(0.07);
  const firsts = sent.filter(({ turn }) => turn === 0);
  expect(Math.abs(firsts.length / 15 / 611 - 1)).toBeLessThan(0.03);
  const withPrompt = firsts.filter(({ promptTokens }) => promptTokens === 3_500);
  expect(Math.abs(withPrompt.length / firsts.length - 0.7)).toBeLessThan(0.02);
  expect(firsts.every(({ promptTokens }) => promptTokens === 3_500 || promptTokens === 1_500)).toBe(true);
  expect(new Set(withPrompt.map(({ chain }) => lastHash(chain, 125))).size).toBe(200);
});

test("rag: about 45 tokens in for one out, documents behind one system prompt", () => {
  const { sent } = run(scenario("rag"), { requests: 600 });
  const ratio = mean(sent.map(({ promptTokens }) => promptTokens)) / mean(sent.map(({ outputTokens }) => outputTokens));
  expect(Math.abs(ratio / 45 - 1)).toBeLessThan(0.15);
  expect(infiniteCacheShare(sent)).toBeGreaterThan(0.25);
});

test("scale-out: as many agents for each engine, a router for every four", () => {
  const one = scenario("scale-out");
  expect(one.variants.map(({ engines, routers }) => [engines, routers])).toEqual([
    [1, 1],
    [2, 1],
    [4, 1],
    [8, 2],
    [16, 4],
  ]);
  for (const engines of [1, 2, 4, 8, 16]) {
    const { sent } = run(one, { engines, durationS: 0.001 });
    expect(sent).toHaveLength(100 * engines);
  }
});

test("toolagent: prompts of 8,600 tokens, of which a cache without end holds 0.59", () => {
  const { sent } = run(scenario("toolagent"));
  expect(Math.abs(mean(sent.map(({ promptTokens }) => promptTokens)) / 8_600 - 1)).toBeLessThan(0.05);
  expect(Math.abs(infiniteCacheShare(sent) - 0.59)).toBeLessThan(0.02);
  expect(mean(sent.map(({ outputTokens }) => outputTokens))).toBeLessThan(100);
  expect(Math.abs(sent.length / (6.67 * 900) - 1)).toBeLessThan(0.05);
});

test("evict: the same working set, and engines that hold 2 to a third of it", () => {
  const one = scenario("evict");
  const setTokens = 400 * 8_000;
  const ratios = one.variants.map(({ parameters }) => setTokens / (parameters!.blockCount! * 16 * one.fleet.engines));
  for (const [at, ratio] of ratios.entries()) expect(ratio).toBeCloseTo([0.5, 1, 1.5, 2, 3][at]!, 3);
  const { sent } = run(one, { requests: 2_000 });
  expect(sent.every(({ promptTokens }) => promptTokens === 8_200)).toBe(true);
  expect(new Set(sent.map(({ chain }) => lastHash(chain, 1))).size).toBeGreaterThan(370);
});

test("slo-mix: chats and jobs of 10,000 tokens, each with its class", () => {
  const { sent } = run(scenario("slo-mix"), { durationS: 100 });
  const jobs = sent.filter(({ className }) => className === "batch");
  expect(jobs.every(({ promptTokens, turn }) => promptTokens === 10_000 && turn === 0)).toBe(true);
  expect(Math.abs(jobs.length / 100 / 4 - 1)).toBeLessThan(0.2);
  const chats = sent.filter(({ className }) => className === "interactive");
  expect(chats.length + jobs.length).toBe(sent.length);
  const starts = chats.filter(({ turn }) => turn === 0);
  expect(starts.every(({ promptTokens }) => promptTokens === 1_300)).toBe(true);
  expect(Math.abs(starts.length / 100 / 8 - 1)).toBeLessThan(0.15);
});

/** The clients of a variant. */
const runVariant = (one: Scenario, name: string, options: Partial<WorkloadOptions> = {}) => {
  const variant = one.variants.find((each) => each.name === name)!;
  const { engines = one.fleet.engines, scale = 1, createWorkload = one.createWorkload } = variant;
  const workload = createWorkload({ seed: 1, engines, kvTokens: 60_000, scale, ...options });
  return { variant, sent: recordRun(workload, { answerMs: 2_000 }).sent };
};

const isNear = (value: number, wanted: number, tolerance = 0.04): void =>
  expect(Math.abs(value / wanted - 1), `${value} for ${wanted}`).toBeLessThan(tolerance);

const promptMean = (sent: readonly SentRequest[]): number => mean(sent.map(({ promptTokens }) => promptTokens));
const outputMean = (sent: readonly SentRequest[]): number => mean(sent.map(({ outputTokens }) => outputTokens));

test.each([
  ["30-per-s", 8_000, 8, 30],
  ["30-per-s-256-slots", 8_000, 8, 30],
  ["30-per-s-2k", 2_000, 8, 30],
  ["120-per-s-32-engines", 8_000, 32, 120],
] as const)("one-prompt, %s: %d tokens that all have, 100 of their own, 400 out", (name, shared, engines, perS) => {
  const { variant, sent } = runVariant(scenario("one-prompt"), name);
  isNear(promptMean(sent) - shared, 100);
  isNear(outputMean(sent), 400);
  isNear(sent.length / 120, perS, 0.06);
  expect(new Set(sent.map(({ chain }) => lastHash(chain, shared / 16))).size).toBe(1);
  expect([variant.engines ?? 8, variant.preset]).toEqual([engines, "h100-32b-tp2"]);
  expect(variant.parameters).toEqual(name.endsWith("slots") ? { maxRunning: 256 } : {});
});

/** What eight engines sustain with least_connections. */
const knees: readonly { preset: string; sharedTokens: number; slots?: number; perS: number }[] = [
  { preset: "h100-32b-tp2", sharedTokens: 0, slots: 64, perS: 65.6 },
  { preset: "h100-32b-tp2", sharedTokens: 2_000, perS: 79.7 },
  { preset: "h100-32b-tp2", sharedTokens: 2_000, slots: 256, perS: 71.9 },
  { preset: "h100-32b-tp2", sharedTokens: 8_000, perS: 32.1 },
  { preset: "h100-32b-tp2", sharedTokens: 8_000, slots: 256, perS: 32.6 },
  { preset: "h100-32b-tp2", sharedTokens: 8_000, slots: 64, perS: 26.6 },
  { preset: "h100-32b-tp2", sharedTokens: 32_000, perS: 8.3 },
  { preset: "h100-32b-tp2", sharedTokens: 32_000, slots: 256, perS: 8.4 },
  { preset: "a10g-7b", sharedTokens: 0, perS: 45.3 },
  { preset: "a10g-7b", sharedTokens: 8_000, perS: 12.4 },
  { preset: "a10g-7b", sharedTokens: 32_000, perS: 3.3 },
  { preset: "b200-moe", sharedTokens: 2_000, slots: 256, perS: 245.5 },
  { preset: "b200-moe", sharedTokens: 8_000, slots: 256, perS: 144.8 },
];

test("one-prompt: half and four fifths of what each fleet sustains, within the length that its engines take", () => {
  const one = scenario("one-prompt");
  for (const { preset, sharedTokens, slots, perS } of knees) {
    for (const load of [0.5, 0.8]) {
      const name = `${preset}-${sharedTokens / 1_000}k${slots === undefined ? "" : `-${slots}-slots`}-${load}`;
      const { variant, sent } = runVariant(one, name, { durationS: 60 });
      isNear(sent.length / 60, load * perS, 0.2);
      const { maxModelLength } = { ...enginePresets[variant.preset!].parameters, ...variant.parameters };
      expect(variant.parameters?.maxRunning).toBe(slots);
      // Lengths are at most ten times their means.
      expect(sharedTokens + 10 * 100 + 10 * 400).toBeLessThan(maxModelLength);
    }
  }
  expect(one.variants.filter(({ engines }) => engines === 32).length).toBeGreaterThanOrEqual(3);
});

test("hot-documents: 50 documents of 16,000 tokens, the first one before a quarter of the questions", () => {
  const { sent } = run(scenario("hot-documents"), { requests: 4_000 });
  const often = new Map<number, number>();
  for (const { chain } of sent) often.set(lastHash(chain, 1_000), (often.get(lastHash(chain, 1_000)) ?? 0) + 1);
  expect(often.size).toBe(50);
  isNear(Math.max(...often.values()) / sent.length, 0.29, 0.1);
  isNear(promptMean(sent), 16_125);
});

test("long-and-short: a tenth of the prompts has 128,000 tokens, and nobody shares them", () => {
  const { sent } = run(scenario("long-and-short"), { requests: 3_000 });
  const longs = sent.filter(({ promptTokens }) => promptTokens === 128_000);
  isNear(longs.length / sent.length, 0.1, 0.15);
  expect(sharedBlocks(longs[0]!.chain, longs[1]!.chain)).toBe(0);
  const chats = sent.filter(({ promptTokens }) => promptTokens < 128_000);
  isNear(promptMean(chats), 1_300);
  expect(sharedBlocks(chats[0]!.chain, chats[1]!.chain)).toBeGreaterThanOrEqual(62);
});

test("decode-bound: 100 tokens in, 1,500 out, nothing in common", () => {
  const { sent } = run(scenario("decode-bound"), { requests: 4_000 });
  isNear(promptMean(sent), 100);
  isNear(outputMean(sent), 1_500);
  expect(infiniteCacheShare(sent)).toBe(0);
});

test("bursts: 50 requests at each moment, behind 16 prompts", () => {
  const { sent, workload } = run(scenario("bursts"));
  const moments = new Map<number, number>();
  for (const { sentMs } of sent) moments.set(sentMs, (moments.get(sentMs) ?? 0) + 1);
  expect(new Set(moments.values())).toEqual(new Set([50]));
  expect(sent).toHaveLength(workload.expectedRequests);
  expect(new Set(sent.map(({ chain }) => lastHash(chain, 125))).size).toBe(16);
  isNear(sent.length / 240, 90, 0.15);
});

test("uneven fleets: the same chats on engines that are not alike", () => {
  const [mixed, slow, small] = ["mixed-engines", "slow-engines", "quarter-memory"].map(scenario);
  const { parameters } = enginePresets["h100-32b-tp2"];
  const [first, second, ...more] = mixed!.fleet.perEngine!;
  expect([first, more]).toEqual([{}, []]);
  expect(second!.stepBaseMs).toBe(3 * parameters.stepBaseMs);
  expect(second!.decodeMsPerContextToken).toBe(3 * parameters.decodeMsPerContextToken);
  expect(small!.fleet.perEngine).toEqual([{}, { blockCount: parameters.blockCount / 4 }]);
  expect([slow!.fault, slow!.fleet.perEngine]).toEqual(["slow-engines", undefined]);
  const { sent } = run(mixed!, { durationS: 100 });
  isNear(sent.filter(({ turn }) => turn === 0).length / 100, 6, 0.15);
  expect(new Set(sent.map(({ chain }) => lastHash(chain, 125))).size).toBe(20);
});

test("faults: smg-240 with each of them, each engine as busy in a quarter of the fleet", () => {
  const ofTier = faultNames.filter((name) => name !== "slow-engines" && name !== "slowing-engine");
  for (const fault of ofTier) {
    expect(scenario(fault)).toMatchObject({
      fault,
      durationS: 180,
      fleet: { ...scenario("smg-240").fleet, engines: 60 },
    });
  }
  expect(scenarioNames.flatMap((name) => scenario(name).fault ?? []).sort()).toEqual([...faultNames].sort());
  const [plain, faulty] = ["smg-240", "partition"].map((name) => run(scenario(name), { requests: 200, engines: 240 }));
  expect(outline(faulty!.sent)).toEqual(outline(plain!.sent));
});

describe("the catalogue", () => {
  test("has every scenario once", () => {
    expect(scenarioNames.length).toBeGreaterThanOrEqual(20);
    expect(new Set(scenarioNames).size).toBe(scenarioNames.length);
  });

  test.each([
    ["smg-24", "smg-240"],
    ["agent-300", "agents-300"],
    ["Partition", "partition"],
  ])("names the nearest of an unknown one: %s", (written, nearest) => {
    expect(() => scenario(written)).toThrow(
      expect.objectContaining({
        code: "config_invalid",
        param: "scenario",
        message: expect.stringContaining(`did you mean ${nearest}?`),
      }),
    );
  });

  test.each(["", "something else altogether", "x".repeat(101)])("names none when none is near: %s", (written) => {
    expect(() => scenario(written)).toThrow(
      expect.objectContaining({ message: expect.stringMatching(/engine-churn$/) }),
    );
  });
});
