import { createSeededRandom } from "@espalier/core";
import { tier } from "@espalier/prefix-index";
import { SimFleet } from "@espalier/simulator";
import { beforeEach, expect, test } from "vitest";
import { differences, unsettled } from "./convergence.ts";
import { Conversations } from "./conversations.ts";
import { EngineTruth } from "./engine-truth.ts";
import { type LiveRouter, liveRouters } from "./live-router.ts";
import { probeQuality } from "./quality.ts";
import { bounds, safetyProblems, sizeProblems } from "./safety.ts";
import { drawSwarm, type Swarm } from "./swarm.ts";

/** A small fleet in which all is well, so that each check can be shown to notice when something is not. */
const swarm: Swarm = { ...drawSwarm(1), routers: 2, engines: 2, kinds: [], policy: "least_work" };
const requests = 40;

let fleet: SimFleet;
let truth: EngineTruth;
let first: LiveRouter;

async function pass(durationMs: number): Promise<void> {
  await fleet.run(fleet.time.clock.nowMs() + durationMs);
}

function problems(): string[] {
  return safetyProblems(fleet, truth);
}

function disagreements(): string[] {
  return differences(fleet, truth);
}

beforeEach(async () => {
  const { routers, engines, parameters, policy, timing, seed } = swarm;
  fleet = new SimFleet({ routers, engines, parameters, policy, timing, seed, sharing: "mesh", links: "real" });
  truth = new EngineTruth(fleet.engines);
  await fleet.start();
  const conversations = new Conversations({ random: createSeededRandom(1), count: 10, maxTokens: 600 });
  for (let sent = 0; sent < requests; sent++) {
    const request = conversations.next();
    if (request) fleet.send(request, () => conversations.ended(request, true));
    await pass(150);
  }
  await pass(5_000);
  first = liveRouters(fleet)[0]!;
});

test("a fleet in which nothing went wrong has no problems", async () => {
  expect([problems(), sizeProblems(fleet), unsettled(fleet), disagreements()]).toEqual([[], [], [], []]);
  expect(truth.mostBlocks(0)).toBeGreaterThan(20);
  expect(await probeQuality(fleet, swarm)).toBeUndefined();
});

test("a block too many and a block too few are noticed", () => {
  const words = Uint32Array.of(1, 2);
  first.view.index.storeFacts(0, tier.gpu, words, 0, 1);
  expect(problems()).toContainEqual(expect.stringMatching(/facts of engine-0 are not what it held after message \d+/));
  expect(disagreements()).toContainEqual(expect.stringMatching(/facts of engine-0 differ/));
  expect(disagreements()).toContainEqual(expect.stringMatching(/holds other blocks of engine-0 than the engine/));
  first.view.index.removeFacts(0, tier.gpu, words, 0, 1);
  expect(problems()).toEqual([]);
  const message = fleet.engines[0]!.messages.find(({ changes }) => changes.words.length >= 2)!;
  first.view.index.removeFacts(0, tier.gpu, message.changes.words, 0, 1);
  expect(problems()).toHaveLength(1);
});

test("more blocks than an engine ever stored are noticed, whatever the feed is worth", () => {
  const blocks = truth.mostBlocks(1) + 1;
  const words = Uint32Array.from({ length: 2 * blocks }, (_, at) => 1 + Math.floor(at / 2));
  first.view.index.storeFacts(1, tier.gpu, words, 0, blocks);
  expect(problems()).toContainEqual(expect.stringMatching(/blocks of engine-1, which never stored as many/));
});

test("blocks of an epoch that has ended are noticed", async () => {
  fleet.killEngine(0);
  await pass(3_000);
  fleet.startEngine(0);
  fleet.engines[0]!.submit(
    { index: 99, session: 99, turn: 0, promptTokens: 33, outputTokens: 1, chain: Uint32Array.of(9, 9, 8, 8) },
    { firstToken() {}, progress() {}, finished() {}, lost() {} },
  );
  await pass(3_000);
  expect(problems()).toEqual([]);
  expect(disagreements()).toEqual([]);
  const { words } = fleet.engines[1]!.messages[0]!.changes;
  first.view.index.storeFacts(0, tier.gpu, words, 0, 1);
  expect(problems()).toHaveLength(1);
});

test("negative load, phantom load and NaN are noticed", () => {
  const { inFlight, decodeTokens } = first.view.sharedLoad;
  inFlight[1] = -1;
  expect(problems()).toEqual(["router 0: others' inFlight is -1"]);
  inFlight[1] = Number.NaN;
  expect(problems()).toEqual(["router 0: others' inFlight is NaN"]);
  inFlight[1] = 0;
  decodeTokens[0] = 5;
  expect(problems()).toEqual([]);
  expect(disagreements()).toEqual([expect.stringMatching(/0 has phantom load/)]);
});

test("a placement that only one router knows of is noticed", () => {
  const { replica } = first.view.tier;
  replica.placements.place("engine-0", Uint32Array.of(3, 4), 1, { ttlMs: 600_000, isConfirmed: false });
  replica.placements.flush();
  expect(disagreements()).toContainEqual("router 0 has not told what it has written");
});

test("a router that is not there any more is noticed until all know", async () => {
  fleet.killRouter(1);
  await pass(10);
  expect(unsettled(fleet)).not.toEqual([]);
  await pass(3_000);
  expect(unsettled(fleet)).toEqual([]);
  fleet.startRouter(1);
  expect(unsettled(fleet)).not.toEqual([]);
  await pass(8_000);
  expect(unsettled(fleet)).toEqual([]);
});

test("timers that pile up are noticed", () => {
  const { scheduler } = fleet.routerNodes[0]!.time;
  for (let timer = 0; timer <= bounds.timers; timer++) scheduler.after(60_000, () => {});
  expect(sizeProblems(fleet)).toEqual([expect.stringMatching(/router 0: timers are \d+, more than 400/)]);
});

test("routing that is much worse than with one router that knows everything is noticed", async () => {
  const four = { ...swarm, engines: 4, parameters: { ...swarm.parameters, blockCount: 200 } };
  const { routers, engines, parameters, timing, seed } = four;
  const blind = { routers, engines, parameters, timing, seed, policy: "round_robin" };
  const scattering = new SimFleet({ ...blind, sharing: "mesh", links: "real" });
  await scattering.start();
  expect(await probeQuality(scattering, four)).toMatch(
    /less of prompts is cached than with one router at least: (0\.\d{3} of 0\.\d{3}(, |$)){4}/,
  );
});

test("what one router comes to when its policy draws other engines is nothing wrong", async () => {
  const few = drawSwarm(312_544_188);
  const { engines, parameters, timing, policy, seed } = few;
  for (let chance = 0; chance < 8; chance++) {
    const options = { engines, parameters, timing, policy, routers: 1, seed: seed + 1_004 + chance };
    const alone = new SimFleet({ ...options, sharing: "mesh", links: "real" });
    await alone.start();
    expect(await probeQuality(alone, few), `draws ${chance}`).toBeUndefined();
    await alone.stop();
  }
});
