/** `tiers`: what its clients ask for, and that routers which know of CPU memory make use of it. */
import { beforeAll, describe, expect, test } from "vitest";
import { createRow, type SimulateRow } from "../../src/measure/rows.ts";
import type { RunOptions } from "../../src/run.ts";
import { scenario } from "../../src/scenarios/catalogue.ts";
import { simulate } from "../../src/simulate.ts";
import { recordRun } from "../clients/recorded-run.ts";

const tiers = scenario("tiers");
const [workingSet, cpuShare, engines, ratePerS] = [4, 4, 8, 10];
const { blockCount, cpuBlocks, cpuLoadMsPerBlock } = tiers.fleet.parameters;

describe("its fleet and its clients", () => {
  test("GPU memory holds a quarter of the documents, CPU memory each of them once", () => {
    const documentBlocks = (400 * 8_000) / 16;
    expect(documentBlocks / (blockCount! * engines)).toBeCloseTo(workingSet, 3);
    expect(cpuBlocks! * engines).toBeGreaterThanOrEqual(documentBlocks);
    expect(cpuBlocks! / blockCount!).toBe(cpuShare);
    expect(cpuLoadMsPerBlock).toBeGreaterThan(0);
  });

  test("questions are about one document each, at the rate that is said", () => {
    const workload = tiers.createWorkload({ seed: 2, engines, kvTokens: 100_000, scale: 1, durationS: 60 });
    const { sent } = recordRun(workload, { answerMs: 100 });
    expect(sent.every(({ promptTokens, outputTokens }) => promptTokens === 8_200 && outputTokens === 100)).toBe(true);
    expect(Math.abs(sent.length / 60 / ratePerS - 1)).toBeLessThan(0.15);
    const documents = new Set(sent.map(({ chain }) => chain[0]));
    expect(documents.size).toBeGreaterThan(200);
  });

  test("every variant has a name of its own, and options that some policy has", () => {
    const names = tiers.variants.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(names).toEqual(["cpu-credit", "gpu-credit", "full-credit", "no-cpu", "slow-link", "slower-than-computing"]);
  });
});

/** Runs of seconds, on machines that do other things beside. */
const timeoutMs = 120_000;
const requests = 1_000;

async function run(policy: string, variantName?: string, options: Partial<RunOptions> = {}): Promise<SimulateRow> {
  const variant = tiers.variants.find(({ name }) => name === variantName);
  const all: RunOptions = {
    ...{ scenario: tiers, policy, routers: 2, engines, sharing: "mesh", links: "delays", seed: 1, scale: 1, requests },
    ...(variant && { variant: variant.name }),
    ...(variant?.parameters && { parameters: variant.parameters }),
    ...options,
  };
  return createRow(await simulate(all, () => 0), all);
}

describe("runs of two routers", () => {
  const rows = new Map<string, SimulateRow>();
  const row = (policy: string, variant = "all"): SimulateRow => rows.get(`${policy} ${variant}`)!;

  beforeAll(async () => {
    for (const policy of ["round_robin", "least_work"]) {
      for (const variant of [undefined, "gpu-credit", "no-cpu"]) {
        rows.set(`${policy} ${variant ?? "all"}`, await run(policy, variant));
      }
    }
  }, timeoutMs);

  test("all requests are answered", () => {
    for (const { errors } of rows.values()) expect(errors).toBe(0);
  });

  test(
    "who credits CPU memory finds more and answers sooner than who credits GPU memory alone",
    async () => {
      // Seeds differ by a quarter.
      const sums = { credited: { cached: 0, ttft: 0 }, uncredited: { cached: 0, ttft: 0 } };
      for (const [name, variant] of [
        ["credited", undefined],
        ["uncredited", "gpu-credit"],
      ] as const) {
        const others = [await run("least_work", variant, { seed: 2 }), await run("least_work", variant, { seed: 3 })];
        for (const { cached_share, ttft_mean_s } of [row("least_work", variant), ...others]) {
          sums[name].cached += cached_share!;
          sums[name].ttft += ttft_mean_s!;
        }
      }
      expect(sums.credited.cached).toBeGreaterThan(1.3 * sums.uncredited.cached);
      expect(sums.credited.ttft).toBeLessThan(0.8 * sums.uncredited.ttft);
    },
    timeoutMs,
  );

  test("CPU memory helps even those who do not know of it", () => {
    for (const policy of ["round_robin", "least_work"]) {
      const variant = policy === "round_robin" ? undefined : "gpu-credit";
      expect(row(policy, variant).cached_share).toBeGreaterThan(row(policy, "no-cpu").cached_share!);
      expect(row(policy, variant).ttft_mean_s).toBeLessThan(row(policy, "no-cpu").ttft_mean_s!);
    }
  });

  test("what engines find stays below what one cache of both memories would", () => {
    for (const { bounds, cached_share } of rows.values()) expect(cached_share).toBeLessThanOrEqual(bounds!.pooled_lru!);
    const [both, gpuOnly] = [row("least_work"), row("least_work", "no-cpu")].map(({ bounds }) => bounds!.pooled_lru!);
    expect(both).toBeGreaterThan(1.2 * gpuOnly!);
  });

  test("a policy without the option runs as ever in a variant that sets it", () => {
    expect(row("round_robin", "gpu-credit")).toMatchObject({
      ttft_mean_s: row("round_robin").ttft_mean_s,
      cached_share: row("round_robin").cached_share,
    });
  });

  test(
    "options that are given come before those of the variant",
    async () => {
      const given = await run("least_work", "gpu-credit", { policyOptions: {} });
      expect(given.ttft_mean_s).toBe(row("least_work").ttft_mean_s);
    },
    timeoutMs,
  );

  test(
    "the slower the link, the later the answer",
    async () => {
      const slow = await run("least_work", "slow-link");
      expect(slow.ttft_mean_s).toBeGreaterThan(row("least_work").ttft_mean_s!);
    },
    timeoutMs,
  );
});
