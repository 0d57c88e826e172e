/** Routers learn what it takes the modelled engines to bring blocks back from their CPU memory, and tell one that joins. */
import { expect, test } from "vitest";
import { createOpenLoop } from "../../src/clients/loops.ts";
import { documentScripts } from "../../src/clients/scripts.ts";
import { SimFleet } from "../../src/fleet/sim-fleet.ts";
import { defaultTiming } from "../../src/run.ts";
import type { Scenario } from "../../src/scenarios/scenario.ts";
import { parametersOf } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "../run/small-scenario.ts";

/** Sixty documents of 4,000 tokens, of which the GPUs of four engines hold twenty, and their CPU memory all. */
const questions = {
  ...{ systemTokens: 0, documents: 60, zipf: 0.3, documentTokens: { least: 4_000, most: 4_000 } },
  ...{ perPrompt: { least: 1, most: 1 }, questionTokens: { least: 100, most: 100 } },
  outputTokens: { least: 20, most: 20 },
};
const memory = { blockCount: 1_250, cpuBlocks: 5_000 };
const blockTokens = 16;

function documentScenario(): Scenario {
  return {
    ...smallScenario(),
    createWorkload: ({ seed, scale }) =>
      createOpenLoop({
        ...{ seed, startsPerS: 6 * scale, meanTurns: 1, scriptOf: documentScripts(questions, seed) },
        limits: { durationS: 60, requests: undefined },
      }),
  };
}

async function learn(seed: number, cpuLoadMsPerBlock: number) {
  const scenario = documentScenario();
  const { admission: _, ...run } = smallRun({ scenario, policy: "predicted_latency", routers: 3, seed });
  const parameters = { ...parametersOf(run), ...memory, cpuLoadMsPerBlock };
  const fleet = new SimFleet({ ...run, startedRouters: 2, parameters, timing: defaultTiming });
  await fleet.start();
  const { clock, scheduler } = fleet.time;
  const workload = scenario.createWorkload({ seed, engines: 4, kvTokens: 0, scale: 1 });
  workload.start({ clock, scheduler, send: (request, ended) => fleet.send(request, ended), finished() {} });
  await fleet.run(clock.nowMs() + 60_000);
  fleet.startRouter(2);
  await fleet.run(clock.nowMs() + 3_000);
  const [first, second, joiner] = fleet.routerNodes.map(({ router }) => router!.pool.work!);
  const target = { index: fleet.engines[0]!.number, key: fleet.engines[0]!.key };
  const of = (work = joiner!): number => 1e3 * work.fetchMsPerToken(target, "cpu");
  const found = { first: of(first), second: of(second), joiner: of(), samples: first!.fetches.samples };
  await fleet.stop();
  return found;
}

const kilotokensOf = (cpuLoadMsPerBlock: number): number => (1_000 / blockTokens) * cpuLoadMsPerBlock;

test.each([
  [0.1, 1],
  [0.4, 2],
  [1.5, 3],
])(
  "a link of %d ms a block is known, but for 15 percent and a step of the engine, seed %i",
  async (msPerBlock, seed) => {
    const { samples, ...found } = await learn(seed, msPerBlock);
    expect(samples).toBeGreaterThan(20);
    const truth = kilotokensOf(msPerBlock);
    for (const [router, ms] of Object.entries(found)) {
      // Blocks that have come are used from the engine's next step on: up to 20 ms, here for four thousand tokens.
      expect(ms, router).toBeGreaterThan(0.85 * truth - 1);
      expect(ms, router).toBeLessThan(1.15 * truth + 5);
    }
  },
);

test("a link that is slower than computing is found to be, and seldom used", async () => {
  const { samples, first, second, joiner } = await learn(1, 4);
  const { samples: ofFastLink } = await learn(1, 0.1);
  expect(samples).toBeGreaterThan(0);
  expect(samples).toBeLessThan(0.5 * ofFastLink);
  for (const ms of [first, second, joiner]) {
    expect(ms).toBeGreaterThan(parametersOf(smallRun()).prefillMsPerToken * 1e3);
    expect(ms).toBeLessThan(1.5 * kilotokensOf(4));
  }
});
