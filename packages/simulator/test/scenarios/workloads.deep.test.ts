import { enginePresets } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { blockTokens } from "../../src/clients/workload.ts";
import { scenario, scenarioNames } from "../../src/scenarios/catalogue.ts";
import type { WorkloadOptions } from "../../src/scenarios/scenario.ts";
import type { TraceRequest } from "../../src/workload/index.ts";
import { bySession, hashesOf, recordRun, type SentRequest, sharedBlocks } from "../clients/recorded-run.ts";

/** Twelve sessions of five rows each, in steps of 3 s. */
const trace: readonly TraceRequest[] = Array.from({ length: 60 }, (_, index) => ({
  index,
  arrivalMs: Math.floor(index / 6) * 3_000,
  inputTokens: 512 * (2 + Math.floor(index / 12)),
  outputTokens: 30,
  blockIds: [0, ...Array.from({ length: 1 + Math.floor(index / 12) }, (_, at) => 1 + (index % 12) + 100 * at)],
  blockTokens: 512,
  session: `session-${index % 12}`,
  turn: Math.floor(index / 12),
  wait: { after: Math.floor(index / 12) === 0 ? [] : [Math.floor(index / 12) - 1], thinkMs: 1_000 },
}));

const sentBy = (name: string, answerMs: number, options: Partial<WorkloadOptions> = {}): readonly SentRequest[] => {
  const one = scenario(name);
  const { engines, parameters, preset } = one.fleet;
  const kvTokens = 16 * (parameters.blockCount ?? enginePresets[preset].parameters.blockCount);
  const workload = one.createWorkload({ seed: 1, engines, kvTokens, scale: 1, trace, ...options });
  return recordRun(workload, { answerMs }).sent;
};

/** What a request is, by session and turn, whenever it was sent. */
const contents = (sent: readonly SentRequest[]): ReadonlyMap<string, string> =>
  new Map(
    sent.map(({ session, turn, promptTokens, outputTokens, className, chain }) => [
      `${session}/${turn}`,
      [promptTokens, outputTokens, className, hashesOf(chain.slice(-2))[0]].join(" "),
    ]),
  );

/** Whose requests are single, or come back with a prompt from scratch. */
const withoutFollowups = [
  ...["sglang-prefix-groups", "a10g-8", "rag", "evict", "tiers", "kv-pools", "shared-prefix-150x5", "lora-64"],
  ...[
    "one-prompt",
    "tenants",
    "reasoning",
    "flash-crowd",
    "short-prompts",
    "few-slots",
    "hot-documents",
    "long-and-short",
    "decode-bound",
    "bursts",
    "pull-ladder",
    "pull-64x16k",
    "pull-surge",
    "p2p-anti-entropy",
  ],
];

/** Whose next prompt has an answer that is not the engine's, as in the recorded conversations that it is drawn from. */
const withOtherAnswers = ["gorgo"];

/** So many conversations begin at once in the largest fleet that no request of the first 1,500 is a second turn. */
const scaleOf = (name: string): number => (name === "mega" ? 0.01 : 1);

describe.each(scenarioNames)("clients of %s", (name) => {
  const one = scenario(name);
  const requests = 600;

  test("ask the same, however fast they are answered", () => {
    const fast = contents(sentBy(name, 200, { requests }));
    const slow = contents(sentBy(name, 20_000, { requests }));
    let both = 0;
    for (const [place, content] of fast) {
      if (!slow.has(place)) continue;
      both += 1;
      expect(slow.get(place), place).toBe(content);
    }
    expect(both).toBeGreaterThan(fast.size / 3);
  });

  test("wait for an answer before they go on with a session", () => {
    const answerMs = 5_000;
    // A trace is sent by its own times.
    if (one.trace !== undefined) return;
    for (const turns of bySession(sentBy(name, answerMs, { requests })).values()) {
      for (const [at, { sentMs, turn }] of turns.entries()) {
        expect(turn).toBe(at);
        const isVisit = name === "shared-prefix-150x5";
        // Times are sums of fractions of a millisecond.
        const gapMs = Number((sentMs - (turns[at - 1]?.sentMs ?? 0)).toFixed(6));
        if (at > 0 && !isVisit) expect(gapMs).toBeGreaterThanOrEqual(answerMs);
      }
    }
  });

  test("come back with all that was said before", () => {
    let followups = 0;
    for (const turns of bySession(sentBy(name, 300, { requests: 1_500, scale: scaleOf(name) })).values()) {
      for (const [at, { chain, promptTokens, outputTokens }] of turns.entries()) {
        const before = turns[at - 1];
        if (before === undefined || name === "shared-prefix-150x5") continue;
        followups += 1;
        if (one.trace !== undefined) continue;
        const hasAnswer = !withOtherAnswers.includes(name);
        // The chain of a request covers its answer, too.
        const saidBlocks = hasAnswer ? before.chain.length / 2 : Math.floor(before.promptTokens / blockTokens);
        expect(sharedBlocks(before.chain, chain)).toBe(saidBlocks);
        expect(promptTokens).toBeGreaterThan(before.promptTokens + (hasAnswer ? before.outputTokens : 0));
        expect(outputTokens).toBeGreaterThan(0);
      }
    }
    if (withoutFollowups.includes(name) || name.startsWith("pd-mix")) expect(followups).toBe(0);
    else expect(followups).toBeGreaterThan(10);
  });

  test("are at least one at the smallest scale, and stop at the request that was asked for", () => {
    const few = sentBy(name, 100, { requests: 7, scale: 0.01 });
    expect(few).toHaveLength(7);
    expect(few.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    if (one.isOpenLoop) return;
    const first = sentBy(name, 1_000, { durationS: 0.0001, scale: 1e-6 });
    // Regions have clients of their own.
    expect(first.length).toBeLessThanOrEqual(one.fleet.topology?.regions.length ?? 1);
  });

  test("end after the time that was asked for, not after the scenario's own", () => {
    const sent = sentBy(name, 100, { durationS: 2 });
    for (const { sentMs } of sent) expect(sentMs).toBeLessThan(2_000);
    // A number of requests goes on as long as they take.
    if (one.durationS !== undefined) {
      const slowly = sentBy(name, 100, { requests: 40, scale: 0.0005 });
      expect(slowly).toHaveLength(40);
    }
  });
});

describe("what is published of a scenario", () => {
  /** What the published policy pays for its other figures. */
  const price = "pull-192x48k ttft_p50_s";
  /** As much of it with a quarter fewer engines. */
  const equal = "skywalker total_tokens_per_s skywalker_region_local";
  const lowIsGood = /^(ttft|itl|e2e|duration|load_cov)/;

  test.each(scenarioNames)("%s: the source's policy beats its baseline in every figure", (name) => {
    const { published } = scenario(name);
    for (const result of published) {
      const { metric, policyValue, baselineValue, policy, baseline, sharing, baselineSharing, variant } = result;
      if (`${name} ${metric} ${baseline}` === equal) {
        expect(policyValue).toBe(baselineValue);
        continue;
      }
      const isBetter = lowIsGood.test(metric) ? policyValue < baselineValue : policyValue > baselineValue;
      expect([metric, isBetter]).toEqual([metric, `${name} ${metric}` !== price]);
      expect([policy, sharing, variant]).not.toEqual([baseline, baselineSharing, result.baselineVariant ?? variant]);
    }
  });

  test("shares lie between 0 and 1", () => {
    for (const { published } of scenarioNames.map(scenario)) {
      for (const { metric, policyValue, baselineValue } of published) {
        if (metric.endsWith("_share")) expect(Math.max(policyValue, baselineValue)).toBeLessThan(1);
      }
    }
  });

  test("a10g-8: output per second goes with the duration, as it must for the same 2.3 M tokens", () => {
    const of = (metric: string) => scenario("a10g-8").published.find((result) => result.metric === metric)!;
    const [duration, output] = [of("duration_s"), of("output_tokens_per_s")];
    expect((duration.policyValue * output.policyValue) / 2_304_000).toBeCloseTo(1, 3);
    expect((duration.baselineValue * output.baselineValue) / 2_304_000).toBeCloseTo(1, 3);
  });

  test("mooncake-conversation: the same baseline for both routers of a fleet, and hits below the pooled bound", () => {
    const byFleet = new Map<string, Set<number>>();
    for (const { variant, metric, baselineValue, policyValue } of scenario("mooncake-conversation").published) {
      const key = `${variant?.replace("-scale-2", "")} ${metric}`;
      byFleet.set(key, (byFleet.get(key) ?? new Set()).add(baselineValue));
      if (metric === "cached_share") expect(policyValue).toBeLessThan(0.354);
    }
    expect([...byFleet.values()].map(({ size }) => size)).toEqual(new Array(6).fill(1));
  });
});

test("session-affinity: all chats begin at once, and then drift apart", () => {
  const sent = sentBy("session-affinity", 8_000);
  const sentAt = (turn: number) => sent.filter((request) => request.turn === turn).map(({ sentMs }) => sentMs);
  expect(new Set(sentAt(0))).toEqual(new Set([0]));
  const second = sentAt(1);
  expect(new Set(second).size).toBe(400);
  const meanThinkMs = second.reduce((sum, sentMs) => sum + sentMs - 8_000, 0) / second.length;
  expect(Math.abs(meanThinkMs / 5_000 - 1)).toBeLessThan(0.15);
});

test("agents-300: bounds are two standard deviations away, so that few lengths are redrawn", () => {
  const trajectories = [...bySession(sentBy("agents-300", 1_000)).values()];
  const atBound = trajectories.filter(({ length }) => length === 10 || length === 60).length;
  expect(atBound / trajectories.length).toBeLessThan(0.03);
  const toolTokens = trajectories.flatMap((turns) =>
    turns.slice(1).map(({ promptTokens }, at) => promptTokens - turns[at]!.promptTokens - turns[at]!.outputTokens),
  );
  const sorted = toolTokens.toSorted((one, other) => one - other);
  expect(sorted[0]).toBeGreaterThanOrEqual(200);
  expect(sorted.at(-1)).toBeLessThanOrEqual(4_000);
  expect(Math.abs(sorted[sorted.length >> 1]! / 700 - 1)).toBeLessThan(0.06);
});

test("a10g-8: every prefix is asked for about as often, in no order", () => {
  const groups = new Map<number, number>();
  const order: number[] = [];
  for (const { chain } of sentBy("a10g-8", 1_000)) {
    const group = hashesOf(chain.subarray(248, 250))[0]!;
    groups.set(group, (groups.get(group) ?? 0) + 1);
    order.push(group);
  }
  const counts = [...groups.values()];
  expect(counts).toHaveLength(64);
  // Six standard deviations of a binomial count of 9,000 with odds of 1 in 64.
  for (const count of counts) expect(Math.abs(count - 9_000 / 64)).toBeLessThan(6 * Math.sqrt(9_000 / 64));
  const inTurn = order.filter((group, at) => at >= 64 && order[at - 64] === group).length;
  expect(inTurn / order.length).toBeLessThan(0.04);
});
