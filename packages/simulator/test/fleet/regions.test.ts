import { expect, test } from "vitest";
import { Cells } from "../../src/fleet/cells.ts";
import type { SimFleetOptions } from "../../src/fleet/sim-fleet.ts";
import { defaultTiming, type LinkModel } from "../../src/run.ts";
import { type Placement, placeFleet, type Topology } from "../../src/topology.ts";
import { createFleetRig, type FleetRig } from "./fleet-rig.ts";
import { engineParameters, requestOf } from "./requests.ts";

const topology: Topology = {
  regions: [
    { name: "a", engines: 1, routers: 1 },
    { name: "b", engines: 1, routers: 1 },
    { name: "c", engines: 1, routers: 1 },
  ],
  delaysMs: [
    [1, 30, 70],
    [30, 1, 100],
    [70, 100, 1],
  ],
  clientDelayMs: 10,
  clients: [{ atS: 0, shares: [1, 1, 1] }],
};

const placed = (engines: number, routers: number): Placement =>
  placeFleet(topology, { engines, routers }, defaultTiming);

async function started(options: Partial<SimFleetOptions>): Promise<FleetRig> {
  const { engines = 3, routers = 3 } = options;
  const rig = createFleetRig({
    ...{ engines, routers, links: "delays", policy: "round_robin", placement: placed(engines, routers), ...options },
  });
  await rig.fleet.start();
  return rig;
}

/** One prompt token and one answered token take this long. */
const stepMs = async (): Promise<number> => {
  const rig = createFleetRig({ engines: 1, routers: 1, links: "delays" });
  await rig.fleet.start();
  const sentMs = rig.fleet.time.clock.nowMs();
  rig.send({ promptTokens: 16, outputTokens: 1 });
  await rig.drain();
  return rig.ended[0]!.firstTokenMs - sentMs - 4 * defaultTiming.hopDelayMs;
};

test("a request takes the ways from its client to a router of its region, and to the engine's region, and back", async () => {
  const rig = await started({});
  const ownMs = await stepMs();
  for (const region of [0, 1, 2]) {
    for (let request = 0; request < 3; request++) {
      const sentMs = rig.fleet.time.clock.nowMs();
      rig.send({ promptTokens: 16, outputTokens: 1, region });
      await rig.drain();
      const { router, engine, firstTokenMs, error } = rig.ended.at(-1)!;
      expect([error, router]).toEqual([undefined, region]);
      const wayMs = 2 * (10 + topology.delaysMs[region]![engine]!);
      expect(firstTokenMs - sentMs - wayMs).toBeCloseTo(ownMs, 6);
    }
  }
  expect(new Set(rig.ended.map(({ router, engine }) => `${router} ${engine}`)).size).toBe(9);
  await rig.fleet.stop();
});

test("clients come to one central router from all regions, the way there longer", async () => {
  const rig = await started({ routers: 1 });
  const ownMs = await stepMs();
  const sentMs = rig.fleet.time.clock.nowMs();
  rig.send({ promptTokens: 16, outputTokens: 1, region: 2 });
  await rig.drain();
  const { router, engine, firstTokenMs } = rig.ended[0]!;
  expect(router).toBe(0);
  expect(firstTokenMs - sentMs - ownMs).toBeCloseTo(2 * (10 + 70 + topology.delaysMs[0]![engine]!), 6);
  await rig.fleet.stop();
});

test("clients whose router is gone take the nearest one, and theirs when it is back", async () => {
  const rig = await started({});
  const routers: number[] = [];
  const ask = async (region: number): Promise<void> => {
    rig.send({ promptTokens: 16, outputTokens: 1, region });
    await rig.drain();
    routers.push(rig.ended.at(-1)!.router);
  };
  rig.fleet.killRouter(1);
  for (const region of [0, 1, 2]) await ask(region);
  rig.fleet.killRouter(0);
  for (const region of [0, 1, 2]) await ask(region);
  rig.fleet.startRouter(1);
  await rig.pass(1_000);
  for (const region of [0, 1, 2]) await ask(region);
  expect(routers).toEqual([0, 0, 2, 2, 2, 2, 1, 1, 2]);
  await rig.fleet.stop();
});

test("routers know how far engines are, and read metrics that are half a round trip old", async () => {
  const rig = await started({});
  const [router] = rig.fleet.routerNodes;
  const targets = router!.router!.targets;
  expect(targets.map(({ networkMs }) => networkMs)).toEqual([2, 60, 140]);
  await rig.pass(1_000 - (rig.fleet.time.clock.nowMs() % 1_000) + 500);
  rig.fleet.engines[2]!.submit(requestOf({ index: 900, promptTokens: 16, outputTokens: 500 }), {
    firstToken() {},
    progress() {},
    finished() {},
    lost() {},
  });
  const running = () => targets[2]!.signals.running;
  await rig.pass(500 + 139);
  expect(running()).toBe(0);
  await rig.pass(1);
  expect(running()).toBe(1);
  // As old as the question.
  expect(targets[2]!.signals.ageMs()).toBe(140);
  await rig.fleet.stop();
});

test("a fleet without regions does not know how far engines are", async () => {
  const { fleet } = createFleetRig({ links: "delays" });
  await fleet.start();
  for (const { networkMs } of fleet.routerNodes[0]!.router!.targets) expect(networkMs).toBeNaN();
  await fleet.stop();
});

test.each<[LinkModel, number]>([
  ["delays", 120],
  ["real", 140],
])("what routers share takes the way between them: %s", async (links, latestMs) => {
  const rig = await started({ links, policy: "least_connections" });
  const inFlight = (router: number): number =>
    rig.fleet.routerNodes[router]!.router!.view.sharedLoad.inFlight.reduce((sum, count) => sum + count, 0);
  rig.send({ promptTokens: 16, outputTokens: 2_000, region: 1 });
  await rig.pass(10 + 29);
  expect([inFlight(0), inFlight(2)]).toEqual([0, 0]);
  await rig.pass(31);
  expect([inFlight(0), inFlight(2)]).toEqual([1, 0]);
  await rig.pass(latestMs - 70);
  expect([inFlight(0), inFlight(2)]).toEqual([1, 1]);
  await rig.fleet.stop();
});

test("routers with real links own the engines of their region", async () => {
  const rig = await started({ links: "real", engines: 9 });
  await rig.pass(5_000);
  const owned = rig.fleet.routerNodes.map(({ router }) =>
    router!.targets.filter(({ index }) => router!.view.isOwn(index)).map(({ index }) => index % 3),
  );
  expect(owned).toEqual([
    [0, 0, 0],
    [1, 1, 1],
    [2, 2, 2],
  ]);
  await rig.fleet.stop();
});

test("regions that are cells serve their own clients only", async () => {
  const cells = new Cells({
    ...{ cells: 3, balancer: "region", engines: 6, routers: 3, placement: placed(6, 3), seed: 1 },
    ...{ timing: defaultTiming, parameters: engineParameters, policy: "round_robin", sharing: "mesh", links: "delays" },
  });
  await cells.start();
  const served: [number, number, number][] = [];
  for (let index = 0; index < 12; index++) {
    const region = index % 3;
    cells.send(requestOf({ index, session: index, outputTokens: 2, region }), ({ engine }, router) =>
      served.push([region, router, engine]),
    );
    await cells.run(cells.time.clock.nowMs() + 500);
  }
  await cells.stop();
  expect(served).toHaveLength(12);
  for (const [region, router, engine] of served) expect([router, engine % 3]).toEqual([region, region]);
  expect(new Set(served.map(([, , engine]) => engine))).toEqual(new Set([0, 1, 2, 3, 4, 5]));
  const options = { engines: 6, routers: 3, seed: 1, timing: defaultTiming, parameters: engineParameters } as const;
  const mesh = { policy: "round_robin", sharing: "mesh", links: "delays", balancer: "region" } as const;
  expect(() => new Cells({ ...options, ...mesh, cells: 2, placement: placed(6, 3) })).toThrow(
    "2 cells are not the 3 regions",
  );
  expect(() => new Cells({ ...options, ...mesh, cells: 1 })).toThrow("1 cells are not the 0 regions");
});

test("a plain service address has no regions", () => {
  expect(() => createFleetRig({ policy: "clusterip", placement: placed(4, 3) })).toThrow("clusterip has no regions");
});
