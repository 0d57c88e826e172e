import { type EngineParameters, enginePresets } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { SimFleet } from "../../src/fleet/sim-fleet.ts";
import { defaultTiming } from "../../src/run.ts";
import { parametersOf } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "../run/small-scenario.ts";

const preset = enginePresets["smg-generic"].parameters;

/** What two routers, each of which sees half of some hundred requests, have learned of four engines. */
async function learn(seed: number, startsPerS: number, parameters: Partial<EngineParameters> = {}) {
  const scenario = smallScenario({ startsPerS, durationS: 30 });
  const { admission: _, ...run } = smallRun({ scenario, policy: "predicted_latency", seed });
  const fleet = new SimFleet({ ...run, parameters: { ...parametersOf(run), ...parameters }, timing: defaultTiming });
  await fleet.start();
  const { clock, scheduler } = fleet.time;
  const workload = scenario.createWorkload({ seed, engines: 4, kvTokens: 0, scale: 1 });
  workload.start({ clock, scheduler, send: (request, ended) => fleet.send(request, ended), finished() {} });
  await fleet.run(clock.nowMs() + 30_000);
  const learned = fleet.routerNodes.map(({ router }) => router!.pool.work!);
  const targets = fleet.engines.map(({ number, key }) => ({ index: number, key }));
  await fleet.stop();
  return { learned, targets };
}

describe("two routers learn what the engines of smg-generic compute in", () => {
  test.each([
    ["as they are", 1, 10],
    ["half as fast", 2, 6],
    ["twice as fast", 0.5, 16],
    ["at a third of their speed", 3, 5],
  ])("%s, within 15 %%", async (_, by, startsPerS) => {
    const prefillMsPerToken = by * preset.prefillMsPerToken;
    for (const seed of [1, 2]) {
      const { learned, targets } = await learn(seed, startsPerS, { prefillMsPerToken });
      for (const { rates } of learned) {
        expect(rates.samples).toBeGreaterThan(60);
        expect(Math.abs(rates.msPerToken / prefillMsPerToken - 1), `seed ${seed}`).toBeLessThan(0.15);
        for (const target of targets) expect(rates.factorOf(target)).toBe(1);
      }
    }
  });
});
