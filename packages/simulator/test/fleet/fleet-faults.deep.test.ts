import { expect, test, vi } from "vitest";
import { differencesIn } from "./fleet-differences.ts";
import { createFleetRig } from "./fleet-rig.ts";

const second = 1_000;

// Takes a second or two of a core, which busy machines make ten of.
vi.setConfig({ testTimeout: 60_000 });

test("clocks that jump and drift do no harm, and do not show in the times that clients see", async () => {
  // The first token was timed by the router's own clock, so that one that ran fast gave times after the answer's end.
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  const { scheduler } = fleet.time;
  scheduler.after(second, () => fleet.jumpClock(0, 3_600_000));
  scheduler.after(2 * second, () => fleet.jumpClock(1, -3_600_000));
  scheduler.after(second, () => fleet.setDrift(2, 0.05));
  await rig.load({ durationMs: 5 * second, perS: 16, outputTokens: 1 });
  await rig.drain();
  await rig.pass(2 * second);
  expect(rig.ended.every(({ error }) => error === undefined)).toBe(true);
  for (const { firstTokenMs, endMs } of rig.ended) expect(endMs - firstTokenMs).toBeCloseTo(0, 6);
  expect(differencesIn(fleet)).toEqual([]);
});

test("an engine that is killed under load costs only answers that had begun, and comes back empty", async () => {
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  const { scheduler } = fleet.time;
  scheduler.after(2 * second, () => fleet.killEngine(2));
  scheduler.after(4 * second, () => fleet.startEngine(2));
  await rig.load({ durationMs: 9 * second, perS: 16, outputTokens: 64 });
  await rig.drain();
  await rig.pass(2 * second);
  expect(fleet.isEngineUp(2)).toBe(true);
  expect(fleet.engines[2]!.epochs).toBe(2);
  const failed = rig.ended.filter(({ error }) => error !== undefined);
  expect(failed.length).toBeLessThan(40);
  expect(failed.every(({ error, firstTokenMs }) => error === "the engine went away" && firstTokenMs > 0)).toBe(true);
  const back = rig.ended.filter(({ engine, endMs }) => engine === 2 && endMs > fleet.time.clock.nowMs() - 6 * second);
  expect(back.length).toBeGreaterThan(0);
  expect(differencesIn(fleet)).toEqual([]);
});

test("messages that are lost on the way to readers are replayed", async () => {
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  for (let engine = 0; engine < 4; engine++) {
    fleet.time.scheduler.after(second + engine * 100, () => fleet.loseEvents(engine, 3));
  }
  await rig.load({ durationMs: 4 * second, perS: 20 });
  await rig.drain();
  await rig.pass(second);
  expect(differencesIn(fleet)).toEqual([]);
});

test("what is lost for good makes routers distrust that engine only, until its next epoch", async () => {
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  fleet.setReplay(1, false);
  fleet.time.scheduler.after(second, () => fleet.loseEvents(1, 3));
  await rig.load({ durationMs: 4 * second, perS: 20 });
  await rig.drain();
  await rig.pass(second);
  const qualities = fleet.routerNodes.map(({ router }) => router!.view.isSettled);
  expect(qualities).toEqual([false, false, false]);
  expect(differencesIn(fleet).every((what) => what.includes("engine-1"))).toBe(true);
  fleet.killEngine(1);
  await rig.pass(second);
  fleet.startEngine(1);
  await rig.load({ durationMs: 4 * second, perS: 20 });
  await rig.drain();
  await rig.pass(second);
  expect(differencesIn(fleet)).toEqual([]);
  expect(fleet.routerNodes.every(({ router }) => router!.view.isSettled)).toBe(true);
});

test("with every router gone a client is refused, and served again by the next one", async () => {
  const rig = createFleetRig({ routers: 2 });
  const { fleet } = rig;
  await fleet.start();
  for (const router of [0, 1]) fleet.killRouter(router);
  rig.send();
  await rig.pass(10);
  expect(rig.ended[0]).toMatchObject({ error: "no router is ready", router: -1, engine: -1 });
  fleet.startRouter(1);
  await rig.pass(15 * second);
  rig.send();
  await rig.drain();
  expect(rig.ended[1]).toMatchObject({ error: undefined, router: 1 });
});

for (const links of ["real", "delays"] as const) {
  test(`no timer is left when all has ended (${links})`, async () => {
    const rig = createFleetRig({ links });
    const { fleet } = rig;
    await fleet.start();
    const loaded = rig.load({ durationMs: 2 * second, perS: 20 });
    fleet.time.scheduler.after(900, () => fleet.killRouter(0));
    fleet.time.scheduler.after(1_000, () => fleet.startRouter(0));
    fleet.time.scheduler.after(1_000, () => fleet.leaveRouter(1));
    fleet.time.scheduler.after(1_500, () => fleet.killEngine(1));
    await loaded;
    await fleet.stop();
    expect(rig.ended).toHaveLength(rig.sentCount);
    expect(fleet.engines.every((engine) => engine.stats().running === 0)).toBe(true);
    expect(fleet.time.pendingCount).toBe(0);
    for (const { router, time } of fleet.routerNodes) expect([router, time.pendingCount]).toEqual([undefined, 0]);
  });
}

test("routers that are killed while they start leave nothing behind", async () => {
  const rig = createFleetRig();
  const { fleet } = rig;
  await fleet.start();
  for (let epoch = 0; epoch < 5; epoch++) {
    fleet.killRouter(2);
    fleet.startRouter(2);
    await rig.pass(epoch * 3);
  }
  await rig.pass(15 * second);
  await rig.load({ durationMs: second, perS: 20 });
  await rig.drain();
  await rig.pass(second);
  expect(differencesIn(fleet)).toEqual([]);
  await fleet.stop();
  expect(fleet.time.pendingCount).toBe(0);
});

test("places that do not exist are refused", () => {
  const { fleet } = createFleetRig();
  expect([fleet.routerCount, fleet.engineCount]).toEqual([3, 4]);
  expect(() => fleet.killRouter(3)).toThrow(RangeError);
  expect(() => fleet.pauseRouter(-1)).toThrow(RangeError);
  expect(() => fleet.killEngine(4)).toThrow(RangeError);
});

test("faults of what does not run are nothing", async () => {
  const rig = createFleetRig({ routers: 3, startedRouters: 2 });
  const { fleet } = rig;
  await fleet.start();
  fleet.leaveRouter(2);
  fleet.pauseRouter(2);
  fleet.resumeRouter(2);
  fleet.killRouter(2);
  expect(fleet.isRouterUp(2)).toBe(false);
  await rig.load({ durationMs: second, perS: 16 });
  await rig.drain();
  expect(rig.ended.every(({ error }) => error === undefined)).toBe(true);
});
