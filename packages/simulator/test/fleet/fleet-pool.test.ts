import { tier } from "@espalier/prefix-index";
import { expect, test } from "vitest";
import { blockMoveOf } from "../../src/fleet/sim-engine.ts";
import { defaultTiming } from "../../src/run.ts";
import { placeTogether } from "../../src/topology.ts";
import { createFleetRig } from "./fleet-rig.ts";
import { engineParameters } from "./requests.ts";

const pool = { blocks: 8_000, latencyMs: 2, bytesPerSecond: 100e9, pairBytesPerSecond: 25e9, bytesPerToken: 41_500 };
const parameters = { ...engineParameters, cpuBlocks: 1_200, cpuLoadMsPerBlock: 0.01 } as const;
const fleet = { engines: 3, routers: 2, parameters, pool } as const;
/** Two seconds of prefill. */
const prompt = { session: 1, promptTokens: 15_999, outputTokens: 8 } as const;
/** Its whole blocks. */
const pooledTokens = 15_984;

test("what one engine has computed, every other one reads from the pool, whatever routers know", async () => {
  const rig = createFleetRig({ ...fleet, links: "delays", policy: "round_robin", sharing: "none" });
  await rig.fleet.start();
  rig.send(prompt);
  await rig.drain();
  for (let sent = 0; sent < 12; sent++) rig.send(prompt);
  await rig.drain();
  expect(new Set(rig.ended.map(({ engine }) => engine)).size).toBe(3);
  const pulls = rig.fleet.engines.map((engine) => engine.stats().pulls);
  expect(pulls.toSorted()).toEqual([0, 1, 1]);
  expect(rig.ended.map((one) => one.pulledTokens).filter((tokens) => tokens !== 0)).toEqual([
    ...[pooledTokens, pooledTokens],
  ]);
  await rig.fleet.stop();
});

test.each(["real", "delays"] as const)("routers learn from the pool's events what it has (%s)", async (links) => {
  const rig = createFleetRig({ ...fleet, links, policy: "predicted_latency" });
  await rig.fleet.start();
  rig.send(prompt);
  await rig.drain();
  await rig.pass(100);
  // The engine that has the prompt is lost, and the others can only read it.
  rig.fleet.killEngine(rig.ended[0]!.engine);
  await rig.pass(3_000);
  rig.send(prompt);
  await rig.drain();
  const expected = { pulledTokens: pooledTokens, cachedTokens: pooledTokens, predictedTokens: pooledTokens };
  expect(rig.ended[1]).toMatchObject({ error: undefined, ...expected });
  await rig.fleet.stop();
});

test("without a pool the prompt is computed again", async () => {
  const rig = createFleetRig({ ...fleet, pool: undefined, links: "delays", policy: "predicted_latency" });
  await rig.fleet.start();
  rig.send(prompt);
  await rig.drain();
  rig.fleet.killEngine(rig.ended[0]!.engine);
  await rig.pass(3_000);
  rig.send(prompt);
  await rig.drain();
  expect(rig.ended[1]).toMatchObject({ error: undefined, pulledTokens: 0, cachedTokens: 0, predictedTokens: 0 });
  await rig.fleet.stop();
});

test("an engine that is lost while it reads leaves the pool to the others", async () => {
  const slow = { ...pool, pairBytesPerSecond: 0.5e9 };
  const rig = createFleetRig({ ...fleet, pool: slow, links: "delays", policy: "round_robin", sharing: "none" });
  await rig.fleet.start();
  rig.send(prompt);
  await rig.drain();
  const first = rig.ended[0]!.engine;
  while (rig.fleet.engines.every((engine) => engine.stats().pulling === 0)) {
    rig.send(prompt);
    await rig.pass(20);
  }
  const reading = rig.fleet.engines.findIndex((engine) => engine.stats().pulling > 0);
  expect(reading).not.toBe(first);
  rig.fleet.killEngine(reading);
  await rig.drain();
  for (let sent = 0; sent < 4; sent++) rig.send(prompt);
  await rig.drain();
  const last = rig.fleet.engines.find(({ number }) => number !== first && number !== reading);
  expect(last?.stats().pulls).toBe(1);
  await rig.fleet.stop();
});

test("a pool's blocks are outside the engines", () => {
  expect([5, 6].map(blockMoveOf)).toEqual([
    { tier: tier.external, isStored: true },
    { tier: tier.external, isStored: false },
  ]);
});

test("a pool has no region", () => {
  const placement = placeTogether({ engines: 3, routers: 2 }, defaultTiming);
  expect(() => createFleetRig({ ...fleet, placement })).toThrow("a KV pool has no region");
});
