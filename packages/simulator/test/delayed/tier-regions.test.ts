import { expect, test } from "vitest";
import type { Sharing } from "../../src/run.ts";
import { placeFleet, type Topology } from "../../src/topology.ts";
import { chainOf, promptOf, type TierRig, tierRig, timing } from "./tier-rig.ts";

/** Routers 0 and 2 and engines 0 and 2 in one region, router 1 and engine 1 in another, engine 3 where there is no router. */
const topology: Topology = {
  regions: [
    { name: "a", engines: 1, routers: 1 },
    { name: "b", engines: 1, routers: 1 },
  ],
  delaysMs: [
    [2, 52],
    [52, 2],
  ],
  clients: [{ atS: 0, shares: [1, 1] }],
};
const prompt = promptOf(chainOf(1, 10));

const rigOf = (sharing: Sharing, routers = 3): Promise<TierRig> =>
  tierRig(sharing, routers, 4, placeFleet(topology, { engines: 4, routers }, timing));

/** Milliseconds until each router knows. */
function waitsMs({ time, routers }: TierRig, knows: (router: number) => boolean): number[] {
  const waits = routers.map(() => Number.NaN);
  for (let waitedMs = 0; waitedMs < 3_000 && waits.some(Number.isNaN); waitedMs += 0.5) {
    for (const router of waits.keys()) if (Number.isNaN(waits[router]) && knows(router)) waits[router] = waitedMs;
    time.advance(0.5);
  }
  return waits;
}

test.each([
  // A router of the engine's region reads them, and shares them.
  ["mesh", [36, 86, 36]],
  // Every router reads them from the engine: the longer way is longer by what it is more than a hop.
  ["events-only", [6, 56, 6]],
] as const)("events of %s reach routers by the way between the regions", async (sharing, expected) => {
  const rig = await rigOf(sharing);
  rig.engines[0]!.tell("stored", prompt.chain, 0, 8);
  expect(waitsMs(rig, (router) => rig.routers[router]!.sees(0, prompt) === 8)).toEqual(expected);
});

test("events of an engine without a router nearby are read from afar, by one router too", async () => {
  const rig = await rigOf("mesh", 1);
  rig.engines[1]!.tell("stored", prompt.chain, 0, 8);
  expect(waitsMs(rig, (router) => rig.routers[router]!.sees(1, prompt) === 8)).toEqual([56]);
});

test("events of a region without routers are read from afar, and shared by those who read them", async () => {
  const [a, b] = topology.regions;
  const regions = [a!, { ...b!, routers: 0 }];
  const placement = placeFleet({ ...topology, regions }, { engines: 4, routers: 2 }, timing);
  const rig = await tierRig("mesh", 2, 4, placement);
  rig.engines[1]!.tell("stored", prompt.chain, 0, 8);
  expect(waitsMs(rig, (router) => rig.routers[router]!.sees(1, prompt) === 8)).toEqual([86, 86]);
});

test("placements are seen at once where they are made, soon nearby, and later far away", async () => {
  const rig = await rigOf("mesh");
  rig.routers[0]!.place(3, prompt);
  expect(waitsMs(rig, (router) => rig.routers[router]!.sees(3, prompt) > 0)).toEqual([0, 80, 30]);
});

test("load is told soon nearby and later far away, and taken back so", async () => {
  const rig = await rigOf("mesh");
  const ticket = rig.routers[1]!.target(0).load.begin({ promptTokens: 100, expectedOutputTokens: 40, workMs: 25 });
  expect(waitsMs(rig, (router) => router === 1 || rig.routers[router]!.othersAt(0) === 1)).toEqual([61, 0, 61]);
  ticket.end();
  rig.routers[0]!.target(0).load.begin({ promptTokens: 100, expectedOutputTokens: 40, workMs: 25 });
  // The nearer one of the two messages arrives first, although it was not sent first.
  rig.time.advance(11);
  expect(rig.routers.map((router) => router.othersAt(0))).toEqual([1, 0, 2]);
  rig.time.advance(50);
  expect(rig.routers.map((router) => router.othersAt(0))).toEqual([0, 1, 1]);
});

test("work of others is dated back by the way that its report took", async () => {
  const rig = await rigOf("mesh");
  const startMs = rig.time.clock.nowMs();
  rig.routers[1]!.target(0).load.begin({ promptTokens: 100, expectedOutputTokens: 40, workMs: 25 });
  rig.time.advance(100);
  const [near, far] = [rig.routers[0]!, rig.routers[1]!];
  expect(near.view.sharedLoad.pendingSinceMs[0]! - startMs).toBe(61 - 52);
  // The mean over the others: 2 and 52 ms in one region, 52 from the other one.
  expect([near.view.sharedLoad.linkDelayMs, far.view.sharedLoad.linkDelayMs]).toEqual([27, 52]);
});

test("sessions are bound everywhere by the router that had them last", async () => {
  const { time, routers } = await rigOf("mesh");
  const session = { model: "", key: "s" };
  const bound = () => routers.map(({ view }) => view.sessions.targetOf(session));
  routers[1]!.view.sessions.sent(session, { target: "engine-1", ttlMs: 60_000 });
  time.advance(40);
  routers[0]!.view.sessions.sent(session, { target: "engine-0", ttlMs: 60_000 });
  expect(bound()).toEqual(["engine-0", "engine-1", undefined]);
  time.advance(40);
  // The earlier binding comes from afar, after the later one.
  expect(bound()).toEqual(["engine-0", "engine-1", "engine-0"]);
  time.advance(40);
  expect(bound()).toEqual(["engine-0", "engine-0", "engine-0"]);
});

test("an engine belongs to a router of its region", async () => {
  const { routers } = await rigOf("mesh");
  const owned = routers.map(({ view, targets }) =>
    targets.filter(({ index }) => view.isOwn(index)).map(({ key }) => key),
  );
  expect(owned).toEqual([["engine-0", "engine-2"], ["engine-1", "engine-3"], []]);
});
