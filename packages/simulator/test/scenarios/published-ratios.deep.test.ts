import { describe, expect, test, vi } from "vitest";
import type { SimulateRow } from "../../src/measure/rows.ts";
import { scenario } from "../../src/scenarios/catalogue.ts";
import type { PublishedResult } from "../../src/scenarios/scenario.ts";
import { type MeasuredRun, measured } from "./measured-run.ts";

// A run takes a few seconds of a core, which busy machines make a minute of.
vi.setConfig({ testTimeout: 180_000 });

/** How far a reproduced ratio may be from the published one. */
const tolerance = 0.25;

type Figure =
  | "ttft_p95_s"
  | "cached_share"
  | "duration_s"
  | "output_tokens_per_s"
  | "total_tokens_per_s"
  | "ttft_mean_s"
  | "e2e_mean_s";

const figureOf = (row: SimulateRow, figure: Figure): number => {
  const value = row[figure];
  if (value === undefined) throw new Error(`${row.scenario} has no ${figure}`);
  return value;
};

const ratio = (row: SimulateRow, baseline: SimulateRow, figure: Figure): number =>
  figureOf(row, figure) / figureOf(baseline, figure);

const publishedOf = (name: string, metric: string): PublishedResult => {
  const found = scenario(name).published.find((result) => result.metric === metric);
  if (found === undefined) throw new Error(`nothing is published of the ${metric} of ${name}`);
  return found;
};

/** Reproduced over published, less 1. */
const deviation = (name: string, metric: Figure, rows: readonly [SimulateRow, SimulateRow]): number => {
  const { policyValue, baselineValue } = publishedOf(name, metric);
  return ratio(rows[0], rows[1], metric) / (policyValue / baselineValue) - 1;
};

/** The published policy and its baseline, in that order. */
const pair = async (run: Omit<MeasuredRun, "policy">): Promise<readonly [SimulateRow, SimulateRow]> => {
  const { policy, baseline, variant } = scenario(run.name).published[0]!;
  const of = { ...run, ...(variant === undefined ? {} : { variant }) };
  return [await measured({ ...of, policy }), await measured({ ...of, policy: baseline })];
};

describe("published ratios come out within a quarter", () => {
  test("sglang-prefix-groups: throughput and hits of the whole run", async () => {
    const rows = await pair({ name: "sglang-prefix-groups" });
    for (const metric of ["total_tokens_per_s", "cached_share"] as const) {
      expect(Math.abs(deviation("sglang-prefix-groups", metric, rows))).toBeLessThan(tolerance);
    }
    // The published share of its round robin, which the number of kept prefixes is set for.
    expect(Math.abs(rows[1].cached_share! - 0.2)).toBeLessThan(0.03);
  });

  test("a10g-8: the duration of the first 2,000 of 9,000 requests", async () => {
    const rows = await pair({ name: "a10g-8", requests: 2_000 });
    expect(Math.abs(deviation("a10g-8", "duration_s", rows))).toBeLessThan(tolerance);
    // The source says that its plain service gives the traffic of round robin.
    const roundRobin = await measured({ name: "a10g-8", policy: "round_robin", requests: 2_000 });
    expect(Math.abs(ratio(rows[1], roundRobin, "duration_s") - 1)).toBeLessThan(0.1);
  });

  test("session-affinity: time to first token; and answers come faster, too", async () => {
    const rows = await pair({ name: "session-affinity" });
    expect(Math.abs(deviation("session-affinity", "ttft_mean_s", rows))).toBeLessThan(tolerance);
    expect(ratio(...rows, "output_tokens_per_s")).toBeGreaterThan(1.4);
    expect(ratio(...rows, "e2e_mean_s")).toBeLessThan(0.6);
  });

  test("baseten-4: hits of the first 500 requests", async () => {
    const rows = await pair({ name: "baseten-4", requests: 500 });
    expect(Math.abs(deviation("baseten-4", "cached_share", rows))).toBeLessThan(tolerance);
  });
});

describe("published systems for several regions", () => {
  test("gorgo: p95 of the time to first token beside its baselines", async () => {
    const own = await measured({ name: "gorgo", policy: "gorgo" });
    for (const { baseline, metric, policyValue, baselineValue } of scenario("gorgo").published) {
      if (metric !== "ttft_p95_s") continue;
      const reproduced = ratio(own, await measured({ name: "gorgo", policy: baseline }), metric);
      expect(Math.abs(reproduced / (policyValue / baselineValue) - 1)).toBeLessThan(tolerance);
    }
  });

  test("skywalker: nine engines do what twelve do whose regions keep to themselves", async () => {
    const shared = await measured({ name: "skywalker", variant: "uneven-chats-9", policy: "skywalker" });
    const local = await measured({ name: "skywalker", variant: "uneven-chats", policy: "skywalker_region_local" });
    expect(Math.abs(ratio(shared, local, "total_tokens_per_s") - 1)).toBeLessThan(0.1);
  });

  test("p2p-anti-entropy: gains between near nodes, less where all ask about one subject, and loses between far ones", async () => {
    const gainOf = async (variant: string): Promise<number> => {
      const run = { name: "p2p-anti-entropy", variant, durationS: 60 };
      const local = await measured({ ...run, policy: "p2p_local" });
      return ratio(await measured({ ...run, policy: "p2p_anti_entropy" }), local, "ttft_mean_s");
    };
    const near = await gainOf("near-skewed");
    expect(near).toBeLessThan(0.6);
    expect(await gainOf("near-hotspot")).toBeGreaterThan(1.2 * near);
    expect(await gainOf("far-skewed")).toBeGreaterThan(1.1);
  });
});

describe("what a scenario is for shows in a short run", () => {
  test("agents-300: hits, and how fast steps are, from plain connections over weights to least work", async () => {
    const rows: SimulateRow[] = [];
    for (const policy of scenario("agents-300").policies) {
      rows.push(await measured({ name: "agents-300", policy, requests: 5_000 }));
    }
    const [without, weighted, ours] = rows as [SimulateRow, SimulateRow, SimulateRow];
    expect(without.policy).toBe("clusterip");
    expect(ratio(weighted, without, "cached_share")).toBeGreaterThan(1.05);
    expect(ratio(weighted, without, "e2e_mean_s")).toBeLessThan(0.95);
    expect(ours.cached_share).toBeGreaterThan(weighted.cached_share!);
    expect(ratio(ours, without, "e2e_mean_s")).toBeLessThan(0.7);
  });

  test("toolagent: at least the published 76 % of what a cache without end holds", async () => {
    const run = { name: "toolagent", durationS: 120 };
    const [blind, ours] = [
      await measured({ ...run, policy: "round_robin" }),
      await measured({ ...run, policy: "least_work" }),
    ];
    expect(ours.cached_share! / ours.bounds!.infinite_cache!).toBeGreaterThan(0.84);
    expect(blind.cached_share! / blind.bounds!.infinite_cache!).toBeLessThan(0.76);
  });

  test("rag: documents that are found where they were last time are not read again", async () => {
    const run = { name: "rag", durationS: 40 };
    const [blind, ours] = [
      await measured({ ...run, policy: "round_robin" }),
      await measured({ ...run, policy: "least_work" }),
    ];
    expect(ratio(ours, blind, "cached_share")).toBeGreaterThan(1.1);
    expect(ratio(ours, blind, "ttft_mean_s")).toBeLessThan(0.95);
  });

  test("scale-out: round robin hits less with every engine, and least work as much as with one", async () => {
    const shareOf = async (policy: string, variant: string): Promise<number> =>
      (await measured({ name: "scale-out", policy, variant, scale: 0.1, durationS: 200 })).cached_share!;
    const blind = [await shareOf("round_robin", "1-engines"), await shareOf("round_robin", "4-engines")];
    const ours = [await shareOf("least_work", "1-engines"), await shareOf("least_work", "4-engines")];
    expect(blind[1]! / blind[0]!).toBeLessThan(0.95);
    expect(Math.abs(ours[1]! / ours[0]! - 1)).toBeLessThan(0.02);
    expect(ours[0]!).toBeCloseTo(blind[0]!, 2);
  });

  test("evict: the more of the working set the engines hold, the more is found, with any policy", async () => {
    for (const policy of ["round_robin", "cache_aware", "least_work"]) {
      const shares: number[] = [];
      for (const variant of ["0.5x", "1x", "3x"]) {
        shares.push((await measured({ name: "evict", policy, variant, requests: 1_000 })).cached_share!);
      }
      expect(shares).toEqual(shares.toSorted((one, other) => other - one));
      expect(shares[2]! / shares[0]!).toBeLessThan(0.7);
    }
  });

  test("slo-mix: both classes are told apart in the row, and more load makes both wait longer", async () => {
    const run = { name: "slo-mix", policy: "least_work", durationS: 40 };
    const [light, heavy] = [
      await measured({ ...run, variant: "load-0.7" }),
      await measured({ ...run, variant: "load-1.1" }),
    ];
    for (const row of [light, heavy])
      expect(Object.keys(row.by_class ?? {}).toSorted()).toEqual(["batch", "interactive"]);
    expect(heavy.requests).toBeGreaterThan(1.2 * light.requests);
    expect(heavy.ttft_mean_s!).toBeGreaterThan(light.ttft_mean_s!);
  });
});

describe("a measured run", () => {
  test("is the same again under its seed, and another under another one", async () => {
    const run = { name: "session-affinity", policy: "consistent_hashing", requests: 800 };
    const first = await measured(run);
    expect(await measured(run)).toEqual(first);
    expect((await measured({ ...run, seed: 2 })).ttft_mean_s).not.toBe(first.ttft_mean_s);
  });

  test("has no error and answers everything, whatever the policy", async () => {
    for (const policy of scenario("baseten-4").policies) {
      const row = await measured({ name: "baseten-4", policy, requests: 100 });
      expect([row.requests, row.errors]).toEqual([100, 0]);
    }
  });

  test("is of a variant that there is", async () => {
    await expect(measured({ name: "evict", policy: "random", variant: "9x" })).rejects.toThrow(RangeError);
  });
});
