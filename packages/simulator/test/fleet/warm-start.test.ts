import { enginePresets } from "@espalier/engine-model";
import { PoolWork } from "@espalier/routing";
import { describe, expect, test } from "vitest";
import { SimFleet } from "../../src/fleet/sim-fleet.ts";
import { defaultTiming, type LinkModel } from "../../src/run.ts";
import { parametersOf } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "../run/small-scenario.ts";

const preset = enginePresets["smg-generic"].parameters;
/** Engines that are far slower than is believed before anything is learned. */
const slow = { prefillMsPerToken: 3 * preset.prefillMsPerToken };

async function fleetOf(links: LinkModel, startedRouters: number) {
  const scenario = smallScenario({ startsPerS: 6, durationS: 12 });
  const { admission: _, ...run } = smallRun({ scenario, policy: "predicted_latency", routers: 3, seed: 1 });
  const parameters = { ...parametersOf(run), ...slow };
  const fleet = new SimFleet({ ...run, links, startedRouters, parameters, timing: defaultTiming });
  await fleet.start();
  const { clock, scheduler } = fleet.time;
  const workload = scenario.createWorkload({ seed: 1, engines: 4, kvTokens: 0, scale: 1 });
  workload.start({ clock, scheduler, send: (request, ended) => fleet.send(request, ended), finished() {} });
  await fleet.run(clock.nowMs() + 14_000);
  return fleet;
}

const part = { uncachedTokens: 4_000, matchedTokens: 0 };

describe.each(["real", "delays"] as const)("a router that joins others that have learned, links by %s,", (links) => {
  test("expects of the engines what they do, within 5 %, before it has sent anything", async () => {
    const fleet = await fleetOf(links, 2);
    fleet.startRouter(2);
    await fleet.run(fleet.time.clock.nowMs() + 3_000);
    const [first, second, joiner] = fleet.routerNodes.map(({ router }) => router!.pool.work!);
    const targets = fleet.engines.map(({ number, key }) => ({ index: number, key }));
    expect(joiner!.rates.samples).toBe(0);
    for (const target of targets) {
      const others = (first!.rates.workMs(target, part) + second!.rates.workMs(target, part)) / 2;
      expect(Math.abs(joiner!.rates.workMs(target, part) / others - 1)).toBeLessThan(0.05);
      // What is believed before anything is learned is nowhere near.
      expect(Math.abs(new PoolWork(fleet.time.clock).rates.workMs(target, part) / others - 1)).toBeGreaterThan(0.25);
    }
    expect(joiner!.pace.msPerToken).toBeGreaterThan(0);
    await fleet.stop();
  });
});
