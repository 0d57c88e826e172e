import { DecayedSum, usageHalfLifeMs } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { defaultUsageLimits } from "../../src/usage/usage-plane.ts";
import { connect, createPair, createUsageRouter, hear, tokensElsewhere } from "./usage-rig.ts";

const { gatherMs, refreshMs, rankMs, leaseMs, waitLeaseMs, sweepMs } = defaultUsageLimits;

describe("what a router has served", () => {
  test("is told soon, what comes close together at once, and halves in the half-life at both ends", () => {
    const { time, from, to } = createPair();
    from.pool.served("default", "x", 1_000);
    from.pool.served("default", "x", 500);
    from.pool.served("default", "y", 10);
    expect(from.frames).toHaveLength(0);
    time.advance(gatherMs);
    expect(from.frames).toHaveLength(1);
    expect(tokensElsewhere(to, "x")).toBeCloseTo(1_500, -1);
    expect(tokensElsewhere(to, "y")).toBeCloseTo(10, 0);
    from.plane.stop();
    time.advance(usageHalfLifeMs);
    expect(tokensElsewhere(to, "x")).toBeCloseTo(750, -1);
  });

  test("is kept apart by pool and class, and by tenants whose names run together", () => {
    const { time, from, to } = createPair();
    from.plane.of("other").served("default", "x", 1_000);
    from.pool.served("batch", "x", 100);
    from.pool.served("default", "xy", 10);
    time.advance(gatherMs);
    expect(tokensElsewhere(to, "x")).toBe(0);
    expect(Math.round(to.plane.of("other").elsewhere("default", "x")!.tokens)).toBeCloseTo(1_000, -1);
    expect(Math.round(to.pool.elsewhere("batch", "x")!.tokens)).toBe(100);
    expect(to.pool.elsewhere("defaultx", "y")).toBeUndefined();
  });

  test("is told again only when a hundredth of it is new; what was not is told in its turn", () => {
    const { time, from, to } = createPair();
    const truth = new DecayedSum(usageHalfLifeMs);
    const serve = (tokens: number): void => {
      from.pool.served("default", "x", tokens);
      truth.add(tokens, time.clock.nowMs());
    };
    serve(10_000);
    time.advance(gatherMs);
    serve(70);
    time.advance(gatherMs);
    expect(from.frames).toHaveLength(1);
    serve(70);
    time.advance(gatherMs);
    expect(from.frames).toHaveLength(2);
    serve(70);
    time.advance(refreshMs);
    expect(tokensElsewhere(to, "x")).toBeCloseTo(truth.at(time.clock.nowMs()), -0.5);
  });

  test("of several routers is added up; a router never counts what it has served itself", () => {
    const time = createVirtualTime();
    const [a, b, c] = ["a", "b", "c"].map((name) => createUsageRouter(name, { time }));
    for (const one of [a!, b!]) for (const other of [a!, b!, c!]) connect(one, other);
    a!.pool.served("default", "x", 1_000);
    b!.pool.served("default", "x", 200);
    time.advance(gatherMs);
    expect([a!, b!, c!].map((router) => Math.round(tokensElsewhere(router, "x") / 100))).toEqual([2, 10, 12]);
  });

  test("costs nothing while nobody is served", () => {
    const { time, from } = createPair();
    time.advance(60_000);
    expect(from.frames).toEqual([]);
    from.pool.served("default", "x", 100);
    time.advance(10 * usageHalfLifeMs);
    const advertised = from.frames.length;
    time.advance(60_000);
    expect(from.frames).toHaveLength(advertised);
    expect(from.plane.exchange.fullFrames()).toEqual([]);
  });

  test("reaches a router that comes later, by a full frame and by a relay", () => {
    const { time, from, to } = createPair();
    from.pool.served("default", "x", 1_000);
    time.advance(gatherMs);
    const [direct, relayed] = [createUsageRouter("c", { time }), createUsageRouter("d", { time })];
    hear(direct, from.plane.exchange.fullFrames());
    for (const { frame } of to.plane.exchange.relayFrames()) relayed.plane.exchange.receive(frame);
    for (const router of [direct, relayed]) expect(tokensElsewhere(router, "x")).toBeCloseTo(1_000, -1);
  });
});

describe("lifts and waiting", () => {
  test("the greatest lift counts, and who waits is known at once, there and then", () => {
    const time = createVirtualTime();
    const [a, b, c] = ["a", "b", "c"].map((name) => createUsageRouter(name, { time }));
    connect(a!, c!);
    connect(b!, c!);
    a!.pool.lifted("default", "x", 4_000);
    b!.pool.lifted("default", "x", 7_000);
    b!.pool.waits("default", "x", time.clock.nowMs());
    time.advance(gatherMs);
    expect(c!.pool.elsewhere("default", "x")!.lift).toBeCloseTo(7_000, -2);
    expect(c!.pool.elsewhere("default", "x")!.waits).toBe(true);
    b!.pool.waits("default", "x", undefined);
    time.advance(gatherMs);
    expect(c!.pool.elsewhere("default", "x")!.waits).toBe(false);
  });

  test("who waits is believed to while it is told, and a moment longer", () => {
    const { time, from, to } = createPair();
    from.pool.waits("default", "x", time.clock.nowMs());
    time.advance(60_000);
    expect(to.pool.elsewhere("default", "x")!.waits).toBe(true);
    from.plane.stop();
    time.advance(waitLeaseMs - refreshMs - 1);
    expect(to.pool.elsewhere("default", "x")!.waits).toBe(true);
    time.advance(refreshMs + 1);
    expect(to.pool.elsewhere("default", "x")!.waits).toBe(false);
    expect(to.pool.neediest("default")).toBe(Number.POSITIVE_INFINITY);
  });

  test("the first request elsewhere is the least of all routers, as old as it is there", () => {
    const time = createVirtualTime();
    const [a, b, c] = ["a", "b", "c"].map((name) => createUsageRouter(name, { time }));
    connect(a!, c!);
    connect(b!, c!);
    const firstMs = (): number => c!.pool.firstMs("default", "x");
    expect(firstMs()).toBe(Number.POSITIVE_INFINITY);
    time.advance(30_000);
    a!.pool.waits("default", "x", 20_000);
    b!.pool.waits("default", "x", 90_000);
    time.advance(gatherMs);
    expect(firstMs()).toBe(20_000);
    time.advance(10_000);
    expect(firstMs()).toBe(20_000);
    const later = createUsageRouter("d", { time });
    for (const { frame } of c!.plane.exchange.relayFrames()) later.plane.exchange.receive(frame);
    expect(later.pool.firstMs("default", "x")).toBe(20_000);
    expect(later.pool.firstMs("default", "y")).toBe(Number.POSITIVE_INFINITY);
    a!.pool.waits("default", "x", 35_000);
    time.advance(gatherMs);
    expect(firstMs()).toBe(35_000);
    a!.pool.waits("default", "x", undefined);
    time.advance(gatherMs);
    expect(firstMs()).toBe(90_000);
    b!.pool.waits("default", "x", undefined);
    time.advance(gatherMs);
    expect(firstMs()).toBe(Number.POSITIVE_INFINITY);
  });

  test("the neediest of those that wait elsewhere is the one with the least, over all routers", () => {
    const { time, from, to } = createPair();
    expect(to.pool.neediest("default")).toBe(Number.POSITIVE_INFINITY);
    from.pool.served("default", "idle", 1);
    from.pool.served("default", "x", 1_000);
    from.pool.lifted("default", "x", 500);
    from.pool.served("default", "y", 2_000);
    for (const tenant of ["x", "y"]) from.pool.waits("default", tenant, 0);
    time.advance(gatherMs);
    expect(to.pool.neediest("default")).toBeCloseTo(1_500, -2);
    to.pool.served("default", "x", 3_000);
    to.pool.lifted("default", "x", 800);
    time.advance(10);
    expect(to.pool.neediest("default")).toBeCloseTo(2_000, -2);
    expect(to.pool.neediest("batch")).toBe(Number.POSITIVE_INFINITY);
    expect(to.plane.of("other").neediest("default")).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("a router that is gone", () => {
  test("goes on counting while what it served is being forgotten, until its lease ends", () => {
    const { time, from, to } = createPair();
    from.pool.served("default", "x", 1_000_000);
    time.advance(gatherMs);
    from.plane.stop();
    time.advance(leaseMs - refreshMs);
    expect(tokensElsewhere(to, "x")).toBeGreaterThan(50_000);
    expect(to.meter.value("espalier_usage_age_seconds")).toBeGreaterThan(200);
    time.advance(3 * refreshMs);
    expect(tokensElsewhere(to, "x")).toBe(0);
    expect(to.meter.value("espalier_usage_known_tenants")).toBe(0);
    expect(to.meter.value("espalier_usage_age_seconds")).toBe(0);
  });

  test("is not made younger by a relay", () => {
    const { time, from, to } = createPair();
    from.pool.served("default", "x", 1_000_000);
    time.advance(gatherMs);
    from.plane.stop();
    time.advance(leaseMs - 10_000);
    const late = createUsageRouter("c", { time });
    for (const { frame } of to.plane.exchange.relayFrames()) late.plane.exchange.receive(frame);
    expect(tokensElsewhere(late, "x")).toBeGreaterThan(50_000);
    time.advance(10_000 + 2 * refreshMs);
    expect(tokensElsewhere(late, "x")).toBe(0);
  });

  test("comes back under a later epoch: what it tells replaces what its earlier epoch told, tenant by tenant", () => {
    const { time, from, to } = createPair();
    from.pool.served("default", "x", 1_000);
    from.pool.served("default", "y", 1_000);
    time.advance(gatherMs);
    const early = from.frames[0]!;
    const reborn = createUsageRouter("a", { time, epoch: 2 });
    reborn.pool.served("default", "x", 100);
    time.advance(gatherMs);
    hear(to, reborn.frames);
    hear(to, [early, ...from.plane.exchange.fullFrames()]);
    expect(tokensElsewhere(to, "x")).toBeCloseTo(100, -1);
    expect(tokensElsewhere(to, "y")).toBeCloseTo(1_000, -2);
    expect(to.plane.exchange.relayFrames().map(({ origin }) => origin.epoch)).toEqual([2]);
  });
});

test("a relay repeats what the latest epoch of a router reported, and nothing of an earlier one", () => {
  const { time, from, to } = createPair();
  for (const tenant of ["x", "y"]) from.pool.served("default", tenant, 1_000);
  time.advance(gatherMs);
  from.plane.stop();
  const reborn = createUsageRouter("a", { time, epoch: 2 });
  connect(reborn, to);
  reborn.pool.served("default", "x", 100);
  time.advance(gatherMs);
  const late = createUsageRouter("late", { time });
  for (const { frame } of to.plane.exchange.relayFrames()) late.plane.exchange.receive(frame);
  expect(["x", "y"].map((tenant) => Math.round(tokensElsewhere(late, tenant) / 100))).toEqual([1, 0]);
});

test("every frame of a router counts by its bytes, once for all peers, and so does one for a new peer", () => {
  const { time, from } = createPair();
  connect(from, createUsageRouter("c", { time }));
  from.pool.served("default", "x", 1_000);
  time.advance(10_000);
  const frames = [...from.frames, ...from.plane.exchange.fullFrames()];
  expect(frames.length).toBeGreaterThan(2);
  const sizeBytes = frames.reduce((sum, { length }) => sum + length, 0);
  expect(from.meter.value("espalier_usage_sent_bytes_total")).toBe(sizeBytes);
});

describe("bounds", () => {
  test("of all tenants the others are told of those with the most tokens, and of those that wait", () => {
    const { time, from, to } = createPair({ maxAdvertised: 3 });
    for (let tenant = 1; tenant <= 4; tenant++) from.pool.served("default", `t${tenant}`, tenant * 100);
    from.pool.waits("default", "small", 0);
    time.advance(gatherMs);
    expect(tokensElsewhere(to, "t4")).toBe(0);
    time.advance(rankMs + gatherMs + refreshMs);
    expect(tokensElsewhere(to, "t4")).toBeGreaterThan(350);
    expect(to.pool.elsewhere("default", "small")?.waits).toBe(true);
    expect(from.plane.exchange.fullFrames()[0]!.length).toBeLessThan(3 * 14 + 32);
    expect(from.meter.value("espalier_usage_unreported_tenants")).toBe(2);
  });

  test("with one tenant too many the one that was served longest ago is forgotten", () => {
    const { time, from } = createPair({ maxTenants: 3, maxAdvertised: 10 });
    for (const tenant of ["a", "b", "c", "a", "d"]) from.pool.served("default", tenant, 1_000);
    const late = createUsageRouter("late", { time });
    hear(late, from.plane.exchange.fullFrames());
    expect(["a", "b", "c", "d"].map((tenant) => tokensElsewhere(late, tenant) > 0)).toEqual([true, false, true, true]);
  });

  test("of one router no more tenants are kept than the bound, and of no more routers", () => {
    const time = createVirtualTime();
    const to = createUsageRouter("to", { time, limits: { maxTenantsOfRouter: 2, maxOrigins: 1 } });
    const [a, b] = ["a", "b"].map((name) => createUsageRouter(name, { time }));
    for (const from of [a!, b!]) connect(from, to);
    for (const tenant of ["x", "y", "z"]) a!.pool.served("default", tenant, 1_000);
    time.advance(gatherMs);
    b!.pool.served("default", "x", 1_000);
    time.advance(gatherMs);
    expect(["x", "y", "z"].map((tenant) => tokensElsewhere(to, tenant) > 0)).toEqual([false, true, true]);
    expect(to.meter.value("espalier_usage_frames_received_total", "unknown")).toBe(1);
  });

  test("of the tenants of one router the one that was reported longest ago gives its place to another one", () => {
    const time = createVirtualTime();
    const to = createUsageRouter("to", { time, limits: { maxTenantsOfRouter: 2 } });
    const from = createUsageRouter("a", { time });
    connect(from, to);
    const knownAfter = (...served: readonly string[]): readonly string[] => {
      for (const tenant of served) {
        from.pool.served("default", tenant, 1_000);
        time.advance(gatherMs);
      }
      return ["x", "y", "z"].filter((tenant) => tokensElsewhere(to, tenant) > 0);
    };
    expect(knownAfter("x", "y", "y")).toEqual(["x", "y"]);
    expect(knownAfter("x", "z")).toEqual(["x", "z"]);
  });

  test("tenants that have next to nothing are forgotten", () => {
    const { time, from, to } = createPair();
    from.pool.served("default", "x", 10);
    time.advance(gatherMs);
    time.advance(5 * usageHalfLifeMs);
    from.pool.served("default", "y", 1_000);
    time.advance(sweepMs + refreshMs);
    expect(to.pool.elsewhere("default", "x")).toBeUndefined();
    expect(to.meter.value("espalier_usage_known_tenants")).toBe(1);
  });

  test("everybody in turn is told of anew, though others are served all the while", () => {
    const { time, from } = createPair({ refreshTenants: 4 });
    for (let tenant = 0; tenant < 40; tenant++) from.pool.served("default", `quiet-${tenant}`, 1_000);
    time.advance(gatherMs);
    const late = createUsageRouter("late", { time });
    connect(from, late);
    for (let step = 0; step < 400; step++) {
      from.pool.served("default", `busy-${step % 20}`, 10);
      time.advance(100);
    }
    const heard = Array.from({ length: 40 }, (_, tenant) => tokensElsewhere(late, `quiet-${tenant}`) > 0);
    expect(heard.every(Boolean)).toBe(true);
  });
});
