import type { PullLimits } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { createFleetRig } from "./fleet-rig.ts";
import { engineParameters } from "./requests.ts";

const pull: PullLimits = { bytesPerSecond: 50e9, pairBytesPerSecond: 12e9, latencyMs: 10, bytesPerToken: 41_500 };
const parameters = { ...engineParameters, cpuBlocks: 4_000, cpuLoadMsPerBlock: 0.01, cpuWrites: "prompt" } as const;
const fleet = { engines: 3, parameters, pull } as const;
/** Two seconds of prefill, and a tenth of that to pull. */
const prompt = { session: 1, promptTokens: 16_000, outputTokens: 8 } as const;

/** The same prompt many times at once, when one engine has it. */
async function burst(options: Parameters<typeof createFleetRig>[0]) {
  const rig = createFleetRig({ ...fleet, ...options });
  await rig.fleet.start();
  rig.send(prompt);
  await rig.drain();
  for (let sent = 0; sent < 24; sent++) rig.send(prompt);
  await rig.drain();
  await rig.pass(1_000);
  return rig;
}

describe.each([
  { links: "real", routers: 2 },
  { links: "delays", routers: 2 },
  { links: "delays", routers: 1 },
] as const)("$routers routers with $links links", (mesh) => {
  test("read of CPU memory in events, and by llm-d's rule send requests to pull from there", async () => {
    const { ended, fleet: rig } = await burst({
      ...mesh,
      policy: "epp_weighted",
      policyOptions: { "prefix-cache-weight": 0 },
      llmdRule: { minPullTokens: 2_048, draws: true },
    });
    const pulls = ended.filter(({ pulledTokens = 0 }) => pulledTokens > 0);
    expect(pulls.length).toBeGreaterThan(0);
    // What an engine will have pulled for one request, it has for the others.
    for (const { pulledTokens } of pulls) expect(pulledTokens).toBeLessThanOrEqual(16_000);
    expect(rig.engines.reduce((sum, engine) => sum + engine.stats().pulls, 0)).toBe(pulls.length);
    expect(ended.every(({ error }) => error === undefined)).toBe(true);
    await rig.stop();
  });

  test("without that rule, none is pulled", async () => {
    const { ended, fleet: rig } = await burst({
      ...mesh,
      policy: "epp_weighted",
      policyOptions: { "prefix-cache-weight": 0 },
      llmdRule: { draws: true },
    });
    expect(ended.every(({ pulledTokens = 0 }) => pulledTokens === 0)).toBe(true);
    await rig.stop();
  });

  test("by predicted times, engines pull what would take longer to compute", async () => {
    const rig = createFleetRig({ ...fleet, ...mesh, engines: 8, policy: "predicted_latency" });
    await rig.fleet.start();
    for (let index = 0; index < 6; index++) {
      rig.send({ ...prompt, session: index });
      await rig.drain();
    }
    // More than one engine may have.
    for (let sent = 0; sent < 60; sent++) rig.send({ ...prompt, outputTokens: 200 });
    await rig.drain();
    expect(rig.ended.filter(({ pulledTokens = 0 }) => pulledTokens > 0).length).toBeGreaterThan(0);
    await rig.fleet.stop();
  });

  // An engine that could pull was taken for one that has the prompt, so that one engine answered nearly all of them.
  test("what many ask about is pulled by all engines, and their answers are shared out", async () => {
    const roomy = { ...parameters, blockCount: 16_000 };
    const rig = createFleetRig({ ...fleet, ...mesh, parameters: roomy, policy: "predicted_latency" });
    await rig.fleet.start();
    for (let index = 0; index < 6; index++) {
      rig.send({ ...prompt, session: index });
      await rig.drain();
    }
    for (let sent = 0; sent < 60; sent++) {
      rig.send({ ...prompt, outputTokens: 300 });
      await rig.pass(100);
    }
    await rig.drain();
    const answers = rig.fleet.engines.map((_, number) => rig.ended.slice(6).filter(({ engine }) => engine === number));
    expect(Math.min(...answers.map(({ length }) => length))).toBeGreaterThan(5);
    await rig.fleet.stop();
  });
});
