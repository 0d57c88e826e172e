/** `lora-64`: what its clients ask for, and that routers which know of adapters load them far less often. */
import { describe, expect, test } from "vitest";
import { createRow, type SimulateRow } from "../../src/measure/rows.ts";
import type { RunOptions } from "../../src/run.ts";
import { scenario } from "../../src/scenarios/catalogue.ts";
import { simulate } from "../../src/simulate.ts";
import { recordRun, type SentRequest, sharedBlocks } from "../clients/recorded-run.ts";

const lora64 = scenario("lora-64");
const requests = { adapters: 64, sharedTokens: 600, outputTokens: 150 };
const [slots, loadMs, ratePerS] = [8, 200, 10];

describe("its workload", () => {
  const workload = lora64.createWorkload({ seed: 3, engines: 8, kvTokens: 60_000, scale: 1, durationS: 300 });
  const { sent } = recordRun(workload, { answerMs: 100 });
  const byAdapter = new Map<string | undefined, SentRequest[]>();
  for (const request of sent) byAdapter.set(request.adapter, [...(byAdapter.get(request.adapter) ?? []), request]);

  test("every request is for one of 64 adapters, popular as Zipf has it", () => {
    expect(byAdapter.has(undefined)).toBe(false);
    expect(byAdapter.size).toBe(requests.adapters);
    const sum = Array.from({ length: requests.adapters }, (_, rank) => 1 / (rank + 1)).reduce((a, b) => a + b, 0);
    for (const rank of [0, 1, 3, 7]) {
      const share = byAdapter.get(`adapter-${rank}`)!.length / sent.length;
      expect(share).toBeCloseTo(1 / (rank + 1) / sum, 1);
    }
    expect(sent.length / 300 / ratePerS).toBeCloseTo(1, 1);
  });

  test("prompts for one adapter begin alike, those for two have nothing in common", () => {
    const [one, other] = byAdapter.get("adapter-0")!;
    expect(sharedBlocks(one!.chain, other!.chain)).toBe(Math.floor(requests.sharedTokens / 16));
    expect(sharedBlocks(one!.chain, byAdapter.get("adapter-1")![0]!.chain)).toBe(0);
    expect([one!.promptTokens, one!.outputTokens]).toEqual([900, requests.outputTokens]);
  });

  test("the fleet has as many slots as there are adapters", () => {
    expect(slots * lora64.fleet.engines).toBe(requests.adapters);
    expect(lora64.fleet.parameters).toMatchObject({ adapterSlots: slots, adapterLoadMs: loadMs });
  });
});

/** Runs of seconds, on machines that do other things beside. */
const timeoutMs = 90_000;

async function run(policy: string, options: Partial<RunOptions> = {}): Promise<SimulateRow> {
  const all: RunOptions = {
    ...{ scenario: lora64, policy, routers: 2, engines: 8, sharing: "mesh", links: "delays" },
    ...{ seed: 1, scale: 1, requests: 700 },
    ...options,
  };
  return createRow(await simulate(all, () => 0), all);
}

describe("a run of two routers", () => {
  /** Each adapter once. */
  const coldLoads = (1_000 * requests.adapters) / 700;

  test(
    "blind routing loads an adapter for half of the requests, knowing them hardly more than once each",
    async () => {
      const blind = await run("round_robin");
      const aware = await run("least_work");
      expect(blind.errors + aware.errors).toBe(0);
      expect(blind.adapter_loads_per_1000).toBeGreaterThan(350);
      expect(aware.adapter_loads_per_1000).toBeLessThan(2 * coldLoads);
      expect(aware.ttft_mean_s).toBeLessThan(0.8 * blind.ttft_mean_s!);
      expect(aware.cached_share).toBeGreaterThan(blind.cached_share!);
    },
    timeoutMs,
  );

  test(
    "it is the adapters that make the difference, not prefixes alone",
    async () => {
      const unaware = await run("least_work", { policyOptions: { "adapter-load-tokens": 0 } });
      const aware = await run("least_work");
      expect(aware.adapter_loads_per_1000).toBeLessThan(0.6 * unaware.adapter_loads_per_1000!);
    },
    timeoutMs,
  );

  test(
    "the Gateway API's scores with the affinity do likewise",
    async () => {
      const without = await run("epp_weighted");
      const affine = await run("epp_weighted", { policyOptions: { "lora-affinity-weight": 3 } });
      expect(affine.adapter_loads_per_1000).toBeLessThan(0.7 * without.adapter_loads_per_1000!);
    },
    timeoutMs,
  );

  test(
    "eight routers load little more than one that sees everything",
    async () => {
      const alone = await run("least_work", { routers: 1, sharing: "oracle" });
      const many = await run("least_work", { routers: 8 });
      expect(many.adapter_loads_per_1000! - alone.adapter_loads_per_1000!).toBeLessThan(coldLoads / 2);
      expect(many.ttft_mean_s).toBeLessThan(1.2 * alone.ttft_mean_s!);
    },
    timeoutMs,
  );

  test(
    "with room for all adapters in every engine each is loaded once in an engine at most",
    async () => {
      const row = await run("round_robin", { parameters: { adapterSlots: 64 } });
      expect(row.adapter_loads_per_1000).toBeLessThanOrEqual(8 * coldLoads);
    },
    timeoutMs,
  );
});
