/** What llm-d published of its pulls, reproduced by its rule, and what decisions by predicted times make of it. */
import { describe, expect, test, vi } from "vitest";
import type { SimulateRow } from "../../src/measure/rows.ts";
import { scenario } from "../../src/scenarios/catalogue.ts";
import type { PublishedResult } from "../../src/scenarios/scenario.ts";
import { measured } from "./measured-run.ts";

// A run takes up to ten seconds of a core, which busy machines make a minute of.
vi.setConfig({ testTimeout: 300_000 });

const tolerance = 0.25;

/** Reproduced over published ratio, less 1. */
async function deviation(name: string, result: PublishedResult, rows: Map<string, SimulateRow>): Promise<number> {
  const figureOf = async (variant: string | undefined, policy: string): Promise<number> => {
    const key = `${variant} ${policy}`;
    const row = rows.get(key) ?? (await measured({ name, policy, ...(variant !== undefined && { variant }) }));
    rows.set(key, row);
    return (row as unknown as Record<string, number>)[result.metric]!;
  };
  const [policyValue, baselineValue] = [
    await figureOf(result.variant, result.policy),
    await figureOf(result.baselineVariant, result.baseline),
  ];
  return policyValue / baselineValue / (result.policyValue / result.baselineValue) - 1;
}

describe.each(["pull-ladder", "pull-192x48k"])("%s", (name) => {
  test("published ratios come out within a quarter", async () => {
    const rows = new Map<string, SimulateRow>();
    for (const result of scenario(name).published) {
      expect(Math.abs(await deviation(name, result, rows)), result.variant).toBeLessThan(tolerance);
    }
  });
});

// At 12 and 16 a second a backlog grows, which differs between seeds; the report has the median of three.
test("pull-64x16k: the published ratios up to 8 requests a second come out within a quarter", async () => {
  const name = "pull-64x16k";
  for (const result of scenario(name).published.slice(0, 2)) {
    expect(Math.abs(await deviation(name, result, new Map())), result.variant).toBeLessThan(tolerance);
  }
});

test("pull-192x48k: by predicted times, the median of affinity and the p99 of pulls, both or better", async () => {
  const row = await measured({ name: "pull-192x48k", policy: "predicted_latency" });
  expect([row.requests, row.errors]).toEqual([1_152, 0]);
  expect(row.ttft_p50_s).toBeLessThanOrEqual(0.3);
  expect(row.ttft_p99_s).toBeLessThanOrEqual(16.6);
});
