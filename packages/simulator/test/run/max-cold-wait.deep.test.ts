import { expect, test, vi } from "vitest";
import { createClosedLoop } from "../../src/clients/loops.ts";
import { agentScripts } from "../../src/clients/scripts.ts";
import { createRow, type SimulateRow } from "../../src/measure/rows.ts";
import type { RunOptions } from "../../src/run.ts";
import type { Scenario } from "../../src/scenarios/scenario.ts";
import { simulate } from "../../src/simulate.ts";
import { smallScenario } from "./small-scenario.ts";

// Takes some seconds of a core, which busy machines make ten times as many of.
vi.setConfig({ testTimeout: 180_000 });

const agents = 40;

/** Agents whose conversations are twice what the engine holds. */
const fullMemory: Scenario = {
  ...smallScenario(),
  name: "full-memory",
  fleet: { preset: "smg-generic", parameters: { blockCount: 8_000 }, engines: 1, routers: 1 },
  variants: [
    { name: "at-once", admission: true, maxColdWaitS: 0 },
    { name: "parked", admission: true, maxColdWaitS: 300 },
  ],
  isOpenLoop: false,
  createWorkload: ({ seed }) =>
    createClosedLoop({
      ...{ seed, sessions: agents, clients: agents, limits: { requests: undefined, durationS: undefined } },
      scriptOf: agentScripts(
        {
          systemTokens: 1_000,
          taskTokens: 3_000,
          steps: { median: 8, sigma: 0.3, least: 4, most: 12 },
          toolTokens: { median: 400, sigma: 0.5, least: 100, most: 1_500 },
          outputTokens: 30,
          toolTimeMs: { least: 1_000, most: 10_000 },
        },
        seed,
      ),
    }),
};

async function run(variant: string, changes: Partial<RunOptions> = {}): Promise<SimulateRow> {
  const options: RunOptions = {
    ...{ scenario: fullMemory, variant, policy: "predicted_latency", routers: 1, engines: 1 },
    ...{ sharing: "mesh", links: "delays", seed: 1, scale: 1 },
    ...changes,
  };
  return createRow(await simulate(options, () => 0), options);
}

test.each([
  { routers: 1, links: "delays" },
  { routers: 3, links: "delays" },
  { routers: 2, links: "real" },
] as const)("with a max cold wait agents do not evict what others come back for: %o", async (fleet) => {
  const atOnce = await run("at-once", fleet);
  const parked = await run("parked", fleet);
  expect([atOnce.errors, parked.errors, parked.requests - atOnce.requests]).toEqual([0, 0, 0]);
  expect(parked.cached_share!).toBeGreaterThan(atOnce.cached_share! + 0.1);
  expect(parked.e2e_mean_s!).toBeLessThan(0.8 * atOnce.e2e_mean_s!);
  expect(parked.duration_s).toBeLessThan(0.95 * atOnce.duration_s);
});

test("where memory holds all, a max cold wait changes nothing", async () => {
  const parameters = { blockCount: 40_000 };
  const { wall_s: _, variant: __, realtime_factor: ___, ...atOnce } = await run("at-once", { parameters });
  expect(await run("parked", { parameters })).toMatchObject(atOnce);
});
