import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { connect, createLoadRouter, gaugeOf, routerId, sumsOf } from "./load-rig.ts";

const origin = { router: routerId("a"), epoch: 1 };

test("heartbeats keep a lease; without them it ends, and what was in flight is told apart", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time });
  connect(a, b);
  a.plane.start();
  b.plane.start();
  a.plane.set("e/0", gaugeOf(3));
  time.advance(60_000);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(3));
  a.plane.stop();
  time.advance(1_250);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(3));
  time.advance(750);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(0));
  expect(b.plane.shared.expiredInFlight).toBe(3);
  expect(b.meter.value("espalier_load_phantom_requests")).toBe(3);
  expect(b.meter.value("espalier_load_leases_expired_total")).toBe(1);
  expect(b.plane.describe()).toMatchObject([{ router: "a", leaseRemainingMs: 0, inFlight: 3 }]);
  expect(b.plane.exchange.relayFrames()).toEqual([]);
});

test("an origin that is heard again is back in the sums with all it had", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time });
  connect(a, b);
  b.plane.start();
  a.plane.set("e/0", gaugeOf(3));
  a.plane.set("e/1", gaugeOf(2));
  time.advance(2_000);
  expect(sumsOf(b, "e/1")).toEqual(gaugeOf(0));
  a.plane.set("e/0", gaugeOf(1));
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(1));
  expect(sumsOf(b, "e/1")).toEqual(gaugeOf(2));
  expect(b.plane.shared.expiredInFlight).toBe(0);
});

test("a process known to be gone counts zero at once, and old frames of it bring nothing back", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time });
  connect(a, b);
  a.plane.set("e/0", gaugeOf(3));
  b.plane.exchange.originGone(origin);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(0));
  expect(b.plane.shared.expiredInFlight).toBe(0);
  expect(b.plane.describe()).toEqual([]);
  expect(b.plane.exchange.receive(a.frames[0]!).isNews).toBe(false);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(0));
  b.plane.start();
  time.advance(5_000);
  expect(b.meter.value("espalier_load_leases_expired_total")).toBe(0);
});

test("a gone process of an earlier epoch takes nothing from a later one; an expired one that is gone is forgotten", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time, epoch: 2 });
  const b = createLoadRouter("b", { time });
  connect(a, b);
  b.plane.start();
  a.plane.set("e/0", gaugeOf(3));
  b.plane.exchange.originGone(origin);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(3));
  time.advance(2_000);
  expect(b.plane.shared.expiredInFlight).toBe(3);
  b.plane.exchange.originGone({ ...origin, epoch: 2 });
  expect(b.plane.shared.expiredInFlight).toBe(0);
  expect(b.meter.value("espalier_load_phantom_requests")).toBe(0);
});

test("a relay cannot renew the dead: what it repeats is as old as when it heard it", () => {
  const time = createVirtualTime();
  const [a, b, c] = ["a", "b", "c"].map((name) => createLoadRouter(name, { time }));
  connect(a!, b!);
  a!.plane.set("e/0", gaugeOf(3));
  c!.plane.start();
  time.advance(1_400);
  for (const { frame } of b!.plane.exchange.relayFrames()) c!.plane.exchange.receive(frame);
  expect(sumsOf(c!, "e/0")).toEqual(gaugeOf(3));
  expect(c!.plane.describe()).toMatchObject([{ ageMs: 1_400, leaseRemainingMs: 100 }]);
  time.advance(200);
  for (const { frame } of b!.plane.exchange.relayFrames()) c!.plane.exchange.receive(frame);
  c!.plane.checkLeases();
  expect(sumsOf(c!, "e/0")).toEqual(gaugeOf(0));
  for (const { frame } of b!.plane.exchange.relayFrames()) c!.plane.exchange.receive(frame);
  expect(sumsOf(c!, "e/0")).toEqual(gaugeOf(0));
  expect(c!.plane.shared.expiredInFlight).toBe(3);
});

test("a process that stood still judges nobody before it has read what came meanwhile", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  let pausedMs = 0;
  const paused = { ...time, clock: { ...time.clock, nowMs: () => time.clock.nowMs() + pausedMs } };
  const b = createLoadRouter("b", { time: paused });
  connect(a, b);
  b.plane.start();
  a.plane.set("e/0", gaugeOf(3));
  time.advance(300);
  pausedMs = 5_000;
  time.advance(250);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(3));
  a.plane.set("e/1", gaugeOf(1));
  time.advance(500);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(3));
  time.advance(2_000);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(0));
});

test("the age of a slot is that of the oldest gauge in its sums", () => {
  const time = createVirtualTime();
  const [a, b, c] = ["a", "b", "c"].map((name) => createLoadRouter(name, { time }));
  connect(a!, c!);
  connect(b!, c!);
  a!.plane.set("e/0", gaugeOf(1));
  time.advance(100);
  b!.plane.set("e/0", gaugeOf(1));
  time.advance(100);
  expect(c!.plane.shared.ageMs(0)).toBe(200);
  a!.plane.set("e/0", gaugeOf(0));
  expect(c!.plane.shared.ageMs(0)).toBe(100);
  b!.plane.set("e/0", gaugeOf(0));
  expect(c!.plane.shared.ageMs(0)).toBe(0);
  expect(c!.plane.shared.ageMs(-1)).toBe(0);
});

test("what a silent router had is forgotten in the end", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time, limits: { rememberMs: 10_000 } });
  connect(a, b);
  b.plane.start();
  a.plane.set("e/0", gaugeOf(3));
  time.advance(9_000);
  expect(b.plane.shared.expiredInFlight).toBe(3);
  time.advance(2_000);
  expect(b.plane.shared.expiredInFlight).toBe(0);
  expect(b.plane.describe()).toEqual([]);
});

test("one router more than there is room for is refused while all are heard, and takes the place of a silent one", () => {
  const time = createVirtualTime();
  const b = createLoadRouter("b", { time, limits: { maxOrigins: 2 } });
  const others = ["a1", "a2", "a3"].map((name) => createLoadRouter(name, { time }));
  b.plane.start();
  const speak = (index: number, inFlight: number): boolean => {
    others[index]!.plane.set("e/0", gaugeOf(inFlight));
    return b.plane.exchange.receive(others[index]!.plane.exchange.fullFrames()[0]!).isNews;
  };
  expect([speak(0, 1), speak(1, 1), speak(2, 1)]).toEqual([true, true, false]);
  time.advance(1_000);
  expect(speak(1, 2)).toBe(true);
  time.advance(1_000);
  expect(speak(2, 2)).toBe(true);
  expect(b.plane.describe().map(({ router }) => router)).toEqual(["a2", "a3"]);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(4));
  expect(b.plane.shared.expiredInFlight).toBe(0);
});

test("of a router with one target too many the idle ones make room, else it is refused and counted", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time, limits: { maxTargets: 2 } });
  connect(a, b);
  for (let index = 0; index < 3; index++) {
    a.plane.set(`e/${index}`, gaugeOf(1));
    time.advance(10);
  }
  expect(b.plane.describe()).toMatchObject([{ targets: 2 }]);
  expect(b.meter.value("espalier_load_refused_targets_total")).toBe(1);
  a.plane.set("e/0", gaugeOf(0));
  a.plane.set("e/3", gaugeOf(1));
  time.advance(10);
  expect(sumsOf(b, "e/3")).toEqual(gaugeOf(1));
});

test("one own target too many is not told, and counted, until another is idle", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time, limits: { maxTargets: 2 } });
  const b = createLoadRouter("b", { time });
  connect(a, b);
  for (let index = 0; index < 3; index++) a.plane.set(`e/${index}`, gaugeOf(1));
  time.advance(10);
  expect(b.plane.describe()).toMatchObject([{ targets: 2 }]);
  expect(a.meter.value("espalier_load_refused_targets_total")).toBe(1);
  a.plane.set("e/0", gaugeOf(0));
  time.advance(10);
  a.plane.set("e/2", gaugeOf(1));
  time.advance(10);
  expect(sumsOf(b, "e/2")).toEqual(gaugeOf(1));
  expect(() => a.plane.set("x".repeat(256), gaugeOf(1))).toThrow(RangeError);
});
