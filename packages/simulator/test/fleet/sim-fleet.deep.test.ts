import { tier } from "@espalier/prefix-index";
import { expect, test, vi } from "vitest";
import { differencesIn } from "./fleet-differences.ts";
import { createFleetRig, viewsOf } from "./fleet-rig.ts";
import { engineParameters } from "./requests.ts";

const second = 1_000;

// Takes a second or two of a core, which busy machines make ten of.
vi.setConfig({ testTimeout: 60_000 });

/** Every request ends once, whatever becomes of it. */
function expectEachOnce(rig: { readonly ended: readonly { index: number }[]; readonly sentCount: number }): void {
  const indices = rig.ended.map(({ index }) => index).sort((one, other) => one - other);
  expect(indices).toEqual(Array.from({ length: rig.sentCount }, (_, index) => index));
}

test("routers that have started know of each other and of every engine, and come to know what engines tell", async () => {
  const rig = createFleetRig();
  await rig.fleet.start();
  for (const { view } of rig.fleet.routerNodes.map(({ router }) => router!)) {
    expect(view.isSettled).toBe(true);
    expect(view.waitingFor).toEqual([]);
  }
  await rig.load({ durationMs: 3 * second, perS: 20 });
  await rig.drain();
  await rig.pass(second);
  expect(differencesIn(rig.fleet)).toEqual([]);
  expectEachOnce(rig);
  expect(rig.ended.every(({ error }) => error === undefined)).toBe(true);
  expect(new Set(rig.ended.map(({ router }) => router))).toEqual(new Set([0, 1, 2]));
  expect(rig.fleet.network.bytesSent).toBeGreaterThan(0);
});

test("what goes to CPU memory is known to all routers, by whichever of them it was read", async () => {
  const parameters = { ...engineParameters, blockCount: 120, cpuBlocks: 150 };
  const rig = createFleetRig({ parameters });
  await rig.fleet.start();
  await rig.load({ durationMs: 6 * second, perS: 20 });
  await rig.drain();
  await rig.pass(second);
  expect(differencesIn(rig.fleet)).toEqual([]);
  for (const engine of rig.fleet.engines) {
    const { cpuBlocks, loadedTokens } = engine.stats();
    expect(Math.min(cpuBlocks, loadedTokens)).toBeGreaterThan(0);
    for (const view of viewsOf(rig.fleet).values()) {
      expect(view.index.factBlockCount(engine.number, tier.cpu)).toBe(cpuBlocks);
    }
  }
});

test("engines differ in turns by what a fleet says, and serve together", async () => {
  const perEngine = [{}, { blockCount: 100 }, { stepBaseMs: 60, blockCount: 200 }];
  const rig = createFleetRig({ engines: 5, perEngine, links: "delays", policy: "round_robin", routers: 1 });
  expect(rig.fleet.engines.map(({ kvTokens }) => kvTokens / 16)).toEqual([400, 100, 200, 400, 100]);
  await rig.fleet.start();
  for (let at = 0; at < 10; at++) {
    rig.send({ outputTokens: 11 });
    await rig.drain();
  }
  const paces = rig.ended.map(({ engine, firstTokenMs, endMs }) => [engine, (endMs - firstTokenMs) / 10] as const);
  expect(new Set(paces.map(([engine]) => engine)).size).toBe(5);
  for (const [engine, paceMs] of paces) expect(paceMs).toBeCloseTo(engine === 2 ? 60.35 : 6.35, 6);
});

test("the times that a client sees have four hops in them", async () => {
  const rig = createFleetRig();
  await rig.fleet.start();
  const sentMs = rig.fleet.time.clock.nowMs();
  rig.send();
  await rig.drain();
  const [{ firstTokenMs, endMs }] = rig.ended as [(typeof rig.ended)[number]];
  expect(firstTokenMs - sentMs).toBeCloseTo(4 * 0.25 + 6 + 20, 6);
  expect(endMs - sentMs).toBeCloseTo(4 * 0.25 + 26 + 15 * 6.35, 6);
});

test("behind a service address there are two hops, and no router", async () => {
  const rig = createFleetRig({ policy: "clusterip" });
  await rig.fleet.start();
  expect(rig.fleet.routerNodes.every(({ router }) => router === undefined)).toBe(true);
  const sentMs = rig.fleet.time.clock.nowMs();
  rig.send();
  await rig.drain();
  expect(rig.ended[0]!.firstTokenMs - sentMs).toBeCloseTo(2 * 0.25 + 6 + 20, 6);
  expect(rig.ended[0]!.router).toBe(-1);
  await rig.fleet.stop();
  expect(rig.fleet.time.pendingCount).toBe(0);
});

test("a killed router fails what it has, others take over its feeds, and its next epoch is used once it knows all", async () => {
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  const loaded = rig.load({ durationMs: 4 * second, perS: 20, outputTokens: 100 });
  fleet.time.scheduler.after(second, () => fleet.killRouter(1));
  await loaded;
  await rig.drain();
  expectEachOnce(rig);
  const failed = rig.ended.filter(({ error }) => error !== undefined);
  expect(failed.length).toBeGreaterThan(0);
  expect(failed.every(({ error, router }) => error === "the router went away" && router === 1)).toBe(true);
  expect(fleet.isRouterUp(1)).toBe(false);
  await rig.pass(20 * second);
  expect(differencesIn(fleet)).toEqual([]);
  fleet.startRouter(1);
  expect(fleet.routerNodes[1]).toMatchObject({ isServing: false, epochs: 2 });
  while (!fleet.routerNodes[1]!.isServing) await rig.pass(1);
  // Used from here on: what it will decide by must be what the others know.
  expect(differencesIn(fleet).filter((what) => what.startsWith("router 1 holds"))).toEqual([]);
  await rig.load({ durationMs: 2 * second, perS: 20 });
  await rig.drain();
  await rig.pass(second);
  expect(differencesIn(fleet)).toEqual([]);
  expectEachOnce(rig);
  expect(rig.ended.at(-1)!.error).toBeUndefined();
});

test("a router that leaves answers what it has, takes nothing new, and ends; others read its feeds at once", async () => {
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  const loaded = rig.load({ durationMs: 4 * second, perS: 20, outputTokens: 100 });
  let readsOfLeaver = -1;
  fleet.time.scheduler.after(second, () => {
    readsOfLeaver = ownedBy(fleet, 0);
    fleet.leaveRouter(0);
    fleet.leaveRouter(0);
    expect(fleet.routerNodes[0]!.isServing).toBe(false);
    expect(fleet.isRouterUp(0)).toBe(true);
  });
  await loaded;
  expect(readsOfLeaver).toBeGreaterThan(0);
  await rig.drain();
  await rig.pass(second);
  expect(fleet.isRouterUp(0)).toBe(false);
  expectEachOnce(rig);
  expect(rig.ended.filter(({ error }) => error !== undefined)).toEqual([]);
  expect(rig.ended.filter(({ router }) => router === 0).length).toBeGreaterThan(0);
  expect(differencesIn(fleet)).toEqual([]);
  expect(ownedBy(fleet, 1) + ownedBy(fleet, 2)).toBe(4);
});

test("every router can be restarted in turn under load without an error", async () => {
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  for (let router = 0; router < 3; router++) {
    fleet.time.scheduler.after(router * 3 * second + 500, () => fleet.leaveRouter(router));
    fleet.time.scheduler.after(router * 3 * second + 2_000, () => fleet.startRouter(router));
  }
  await rig.load({ durationMs: 10 * second, perS: 16 });
  await rig.drain();
  await rig.pass(2 * second);
  expect(fleet.routerNodes.map(({ epochs }) => epochs)).toEqual([2, 2, 2]);
  expectEachOnce(rig);
  expect(rig.ended.filter(({ error }) => error !== undefined)).toEqual([]);
  expect(differencesIn(fleet)).toEqual([]);
});

test("requests to a paused router wait, and are answered when it goes on", async () => {
  const rig = createFleetRig({ routers: 2 });
  const { fleet } = rig;
  await fleet.start();
  fleet.pauseRouter(0);
  for (let sent = 0; sent < 20; sent++) rig.send();
  await rig.pass(2 * second);
  const waiting = 20 - rig.ended.length;
  expect(waiting).toBeGreaterThan(0);
  expect(rig.ended.every(({ router }) => router === 1)).toBe(true);
  fleet.resumeRouter(0);
  const resumedMs = fleet.time.clock.nowMs();
  await rig.drain();
  const late = rig.ended.filter(({ router }) => router === 0);
  expect(late).toHaveLength(waiting);
  expect(late.every(({ error, firstTokenMs }) => error === undefined && firstTokenMs > resumedMs)).toBe(true);
  await rig.pass(5 * second);
  expect(differencesIn(fleet)).toEqual([]);
});

test("requests in the socket of a paused router fail when it is killed, and its next epoch is not paused", async () => {
  const rig = createFleetRig({ routers: 2 });
  const { fleet } = rig;
  await fleet.start();
  fleet.pauseRouter(0);
  for (let sent = 0; sent < 20; sent++) rig.send();
  await rig.pass(second);
  fleet.killRouter(0);
  await rig.drain();
  expectEachOnce(rig);
  expect(rig.ended.some(({ error }) => error === "the router went away")).toBe(true);
  fleet.startRouter(0);
  await rig.pass(10 * second);
  expect(fleet.routerNodes[0]).toMatchObject({ isServing: true });
  await rig.load({ durationMs: second, perS: 16 });
  await rig.drain();
  await rig.pass(second);
  expect(differencesIn(fleet)).toEqual([]);
});

test("halves that hear nothing of each other agree again once healed", async () => {
  const rig = createFleetRig({ routers: 4 });
  const { fleet } = rig;
  await fleet.start();
  await rig.load({ durationMs: second, perS: 20 });
  fleet.partition([
    [0, 1],
    [2, 3],
  ]);
  await rig.load({ durationMs: 6 * second, perS: 20 });
  await rig.drain();
  await rig.pass(5 * second);
  const [here, , there] = [...viewsOf(fleet).values()];
  expect(here!.tier.backend.members().length).toBeLessThan(4);
  expect(there!.tier.backend.members().length).toBeLessThan(4);
  fleet.heal();
  await rig.pass(15 * second);
  expect(differencesIn(fleet)).toEqual([]);
  expect(here!.tier.backend.members().length).toBe(viewsOf(fleet).get(3)!.tier.backend.members().length);
  expectEachOnce(rig);
  expect(rig.ended.every(({ error }) => error === undefined)).toBe(true);
});

test("a link that is cut in one direction, reset or slow is no error for clients", async () => {
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  const { scheduler } = fleet.time;
  scheduler.after(500, () => fleet.cutLink(0, 1));
  scheduler.after(2_500, () => fleet.mendLink(0, 1));
  scheduler.after(3_000, () => fleet.resetLink(1, 2));
  scheduler.after(3_500, () => fleet.setLinkSpeed({ delayMs: 20, jitterMs: 10 }));
  await rig.load({ durationMs: 6 * second, perS: 16 });
  await rig.drain();
  await rig.pass(10 * second);
  expect(rig.ended.every(({ error }) => error === undefined)).toBe(true);
  expect(differencesIn(fleet)).toEqual([]);
});

test("a spare router joins under load, and is used only when it knows what the others know", async () => {
  const rig = createFleetRig({ routers: 4, startedRouters: 3 });
  const { fleet } = rig;
  await fleet.start();
  expect(fleet.isRouterUp(3)).toBe(false);
  await rig.load({ durationMs: 2 * second, perS: 20 });
  expect(rig.ended.some(({ router }) => router === 3)).toBe(false);
  fleet.startRouter(3);
  fleet.startRouter(3);
  expect(fleet.routerNodes[3]).toMatchObject({ epochs: 1, isServing: false });
  await rig.load({ durationMs: 4 * second, perS: 20 });
  await rig.drain();
  await rig.pass(second);
  expect(rig.ended.filter(({ router }) => router === 3).length).toBeGreaterThan(0);
  expect(rig.ended.every(({ error }) => error === undefined)).toBe(true);
  expect(differencesIn(fleet)).toEqual([]);
});

/** Feeds that a router reads as their owner. */
function ownedBy(fleet: Parameters<typeof viewsOf>[0], router: number): number {
  const view = viewsOf(fleet).get(router);
  const claims = fleet.engines.map(({ key }) => view?.tier.replica.feeds.claimOf(key)?.origin.router);
  return claims.filter((owner) => owner === `router-${router}`).length;
}
