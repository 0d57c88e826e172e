import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { readLoadFrame } from "../../src/load/load-frame.ts";
import { heartbeatTargets } from "../../src/load/load-plane.ts";
import { connect, createLoadRouter, gaugeOf, type LoadRouter, routerId, sumsOf } from "./load-rig.ts";

test("the first change goes out before `set` returns, the following ones together 10 ms after it", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  a.plane.set("e/0", gaugeOf(1));
  expect(a.frames).toHaveLength(1);
  a.plane.set("e/0", gaugeOf(2));
  a.plane.set("e/1", gaugeOf(3));
  a.plane.set("e/0", gaugeOf(4));
  time.advance(9.9);
  expect(a.frames).toHaveLength(1);
  time.advance(0.1);
  expect(a.frames).toHaveLength(2);
  expect(readLoadFrame(a.frames[1]!).reports.map(({ number, inFlight }) => [number, inFlight])).toEqual([
    [0, 4],
    [1, 3],
  ]);
  time.advance(10);
  a.plane.set("e/1", gaugeOf(2));
  expect(a.frames).toHaveLength(3);
});

test("with many peers changes are gathered for longer, so that no more than 1,200 frames a second go out to all of them", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const framesPerS = (peers: number): number => {
    a.plane.exchange.setPeerCount(peers);
    time.advance(1_000);
    const before = a.frames.length;
    for (let ms = 0; ms < 10_000; ms++) {
      a.plane.set("e/0", gaugeOf(1 + (ms % 1_000)));
      time.advance(1);
    }
    return ((a.frames.length - before) / 10) * Math.max(1, peers);
  };
  expect(framesPerS(0)).toBeCloseTo(100, -1);
  expect(framesPerS(12)).toBeCloseTo(1_200, -2);
  for (const peers of [13, 31, 63, 64]) {
    expect(framesPerS(peers)).toBeLessThanOrEqual(1_210);
    expect(framesPerS(peers)).toBeGreaterThan(1_080);
  }
  time.advance(1_000);
  const before = a.frames.length;
  a.plane.set("e/1", gaugeOf(9));
  expect(a.frames.length - before, "the first change after a quiet time goes at once").toBe(1);
  expect(framesPerS(1)).toBeCloseTo(100, -1);
});

test("a gauge that does not change, and one that changes back before it is told, make no frame", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  a.plane.set("e/0", gaugeOf(0));
  expect(a.frames).toHaveLength(0);
  a.plane.set("e/0", gaugeOf(1));
  a.plane.set("e/0", gaugeOf(1));
  a.plane.set("e/0", gaugeOf(5));
  a.plane.set("e/0", gaugeOf(1));
  time.advance(100);
  expect(a.frames).toHaveLength(1);
});

test("what other routers tell is summed up by target, and comes back to exactly zero", () => {
  const time = createVirtualTime();
  const [a, b, c] = ["a", "b", "c"].map((name) => createLoadRouter(name, { time })) as [
    ReturnType<typeof createLoadRouter>,
    ReturnType<typeof createLoadRouter>,
    ReturnType<typeof createLoadRouter>,
  ];
  connect(a, c);
  connect(b, c);
  a.plane.set("e/0", gaugeOf(3));
  b.plane.set("e/0", gaugeOf(4));
  b.plane.set("e/1", gaugeOf(1));
  c.plane.set("e/0", gaugeOf(100));
  time.advance(10);
  expect(sumsOf(c, "e/0")).toEqual(gaugeOf(7));
  expect(sumsOf(c, "e/1")).toEqual(gaugeOf(1));
  a.plane.set("e/0", gaugeOf(0));
  b.plane.set("e/0", gaugeOf(0));
  b.plane.set("e/1", gaugeOf(0));
  time.advance(10);
  expect(sumsOf(c, "e/0")).toEqual(gaugeOf(0));
  expect(sumsOf(c, "e/1")).toEqual(gaugeOf(0));
});

test("a lost change is made good by the next heartbeat, and so is a lost return to zero", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time });
  a.plane.start();
  a.plane.set("e/0", gaugeOf(3));
  time.advance(10);
  const disconnect = connect(a, b);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(0));
  time.advance(500);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(3));
  disconnect();
  a.plane.set("e/0", gaugeOf(0));
  time.advance(10);
  connect(a, b);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(3));
  time.advance(500);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(0));
});

test("heartbeats repeat all targets in turn, so many at a time", () => {
  const time = createVirtualTime();
  const count = 2 * heartbeatTargets + 1;
  const a = createLoadRouter("a", { time, capacity: 256 });
  const b = createLoadRouter("b", { time, capacity: 256 });
  for (let index = 0; index < count; index++) a.plane.set(`e/${index}`, gaugeOf(1));
  time.advance(10);
  connect(a, b);
  a.plane.start();
  const known = (): number => b.plane.describe()[0]?.targets ?? 0;
  expect(known()).toBe(heartbeatTargets);
  time.advance(500);
  expect(known()).toBe(2 * heartbeatTargets);
  time.advance(500);
  expect(known()).toBe(count);
  for (let index = 0; index < count; index++) expect(sumsOf(b, `e/${index}`)).toEqual(gaugeOf(1));
});

test("a joiner has all gauges by the full frame, and understands the numbers that follow", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time });
  for (const [target, count] of [
    ["e/0", 1],
    ["e/1", 2],
    ["e/2", 3],
  ] as const) {
    a.plane.set(target, gaugeOf(count));
    time.advance(10);
  }
  a.plane.set("e/2", gaugeOf(0));
  time.advance(10);
  b.plane.exchange.receive(a.plane.exchange.fullFrames()[0]!);
  connect(a, b);
  expect([0, 1, 2].map((index) => sumsOf(b, `e/${index}`).inFlight)).toEqual([1, 2, 0]);
  a.plane.set("e/1", gaugeOf(5));
  time.advance(10);
  a.plane.set("e/2", gaugeOf(6));
  time.advance(10);
  expect([0, 1, 2].map((index) => sumsOf(b, `e/${index}`).inFlight)).toEqual([1, 5, 6]);
});

test("a full frame holds the gauges of all targets where their keys are short", () => {
  const time = createVirtualTime();
  const [a, b] = ["a", "b"].map((name) => createLoadRouter(name, { time, capacity: 4_096 })) as [
    LoadRouter,
    LoadRouter,
  ];
  for (let index = 0; index < 4_096; index++) a.plane.set(`k${index}`, gaugeOf(2 ** 32));
  b.plane.exchange.receive(a.plane.exchange.fullFrames()[0]!);
  expect(b.plane.describe()[0]!.targets).toBe(4_096);
  expect(b.plane.exchange.hasAllOf({ router: routerId("a"), epoch: 1 })).toBe(true);
});

// Symptom: a router that came to one with over 800 loaded targets said it was ready, and sent requests to engines that it took for
// idle. Mechanism: any first frame of a router counted for all of its gauges, though it says which of them it covers.
test("a full frame holds what fits, and heartbeats bring the rest: only then has all been told", () => {
  const time = createVirtualTime();
  const count = 2_000;
  const longName = "x".repeat(240);
  const [a, b] = ["a", "b"].map((name) => createLoadRouter(name, { time, capacity: 4_096 })) as [
    LoadRouter,
    LoadRouter,
  ];
  const hasAll = (epoch = 1) => b.plane.exchange.hasAllOf({ router: routerId("a"), epoch });
  for (let index = 0; index < count; index++) a.plane.set(`${longName}/${index}`, gaugeOf(2 ** 32));
  time.advance(10);
  a.plane.start();
  time.advance(1_200);
  // From here on the heartbeats go on in the middle of what the full frame has.
  expect(hasAll()).toBe(false);
  b.plane.exchange.receive(a.plane.exchange.fullFrames()[0]!);
  expect(b.plane.describe()[0]!.targets).toBeGreaterThan(800);
  expect(b.plane.describe()[0]!.targets).toBeLessThan(count);
  expect(hasAll()).toBe(false);
  connect(a, b);
  const beats = Math.ceil(count / heartbeatTargets);
  time.advance(500 * (beats - 4));
  expect(hasAll()).toBe(false);
  time.advance(500 * 4);
  expect(b.plane.describe()[0]!.targets).toBe(count);
  expect([hasAll(), hasAll(2)]).toEqual([true, false]);
  b.plane.exchange.originGone({ router: routerId("a"), epoch: 1 });
  expect(hasAll()).toBe(false);
  a.plane.set(`${longName}/0`, gaugeOf(1));
  expect(hasAll()).toBe(false);
});

test("heartbeats that begin in the middle have told of all once the beginning has come, too", () => {
  const time = createVirtualTime();
  const [a, b] = ["a", "b"].map((name) => createLoadRouter(name, { time, capacity: 4_096 })) as [
    LoadRouter,
    LoadRouter,
  ];
  const hasAll = () => b.plane.exchange.hasAllOf({ router: routerId("a"), epoch: 1 });
  for (let index = 0; index < 3 * heartbeatTargets; index++) a.plane.set(`k${index}`, gaugeOf(1));
  a.plane.start();
  connect(a, b);
  const heard: boolean[] = [];
  for (let beat = 0; beat < 5; beat++) {
    time.advance(500);
    heard.push(hasAll());
  }
  expect(heard).toEqual([false, false, false, false, true]);
  time.advance(2_000);
  expect(hasAll()).toBe(true);
});

test("changes of more targets than fit into a frame go out as several", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time, capacity: 4_096 });
  const b = createLoadRouter("b", { time, capacity: 4_096 });
  connect(a, b);
  const name = "y".repeat(200);
  for (let index = 0; index < 2_000; index++) a.plane.set(`${name}/${index}`, gaugeOf(1));
  time.advance(10);
  expect(a.frames.length).toBeGreaterThan(3);
  expect(b.plane.describe()[0]!.targets).toBe(2_000);
});

test("an older frame changes nothing that a newer one told, and brings what only it tells", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time });
  a.plane.set("e/0", gaugeOf(1));
  a.plane.set("e/0", gaugeOf(2));
  a.plane.set("e/1", gaugeOf(9));
  time.advance(20);
  a.plane.set("e/0", gaugeOf(3));
  expect(a.frames).toHaveLength(3);
  const receive = (index: number): boolean => b.plane.exchange.receive(a.frames[index]!).isNews;
  expect([receive(0), receive(2), receive(1)]).toEqual([true, true, true]);
  expect([sumsOf(b, "e/0").inFlight, sumsOf(b, "e/1").inFlight]).toEqual([3, 9]);
  expect([receive(0), receive(1), receive(2)]).toEqual([false, false, false]);
  expect(b.meter.value("espalier_load_frames_received_total", "stale")).toBe(3);
});

test("frames of an earlier epoch, of this router itself and of unknown numbers are no news and change nothing", () => {
  const time = createVirtualTime();
  const old = createLoadRouter("a", { time, epoch: 1 });
  const young = createLoadRouter("a", { time, epoch: 2 });
  const b = createLoadRouter("b", { time });
  old.plane.set("e/0", gaugeOf(5));
  young.plane.set("e/1", gaugeOf(2));
  expect(b.plane.exchange.receive(old.frames[0]!).isNews).toBe(true);
  expect(b.plane.exchange.receive(young.frames[0]!).isNews).toBe(true);
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(0));
  expect(sumsOf(b, "e/1")).toEqual(gaugeOf(2));
  expect(b.plane.exchange.receive(old.frames[0]!).isNews).toBe(false);
  b.plane.set("e/0", gaugeOf(1));
  expect(b.plane.exchange.receive(b.frames[0]!)).toEqual({
    origin: { router: routerId("b"), epoch: 1 },
    isNews: false,
  });
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(0));
});

test("a router whose epoch is renewed tells everything again", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time });
  connect(a, b);
  a.plane.start();
  a.plane.set("e/0", gaugeOf(5));
  a.plane.set("e/1", gaugeOf(0));
  time.advance(10);
  a.epoch = 7;
  a.plane.set("e/1", gaugeOf(1));
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(5));
  expect(b.plane.describe()).toMatchObject([{ router: "a", epoch: 7, targets: 2, inFlight: 6 }]);
});

test("a relay's frames bring a joiner what the relay knows, and never overrule what it knows better", () => {
  const time = createVirtualTime();
  const [a, b, c] = ["a", "b", "c"].map((name) => createLoadRouter(name, { time }));
  a!.plane.set("e/0", gaugeOf(1));
  time.advance(10);
  a!.plane.set("e/1", gaugeOf(2));
  time.advance(10);
  a!.plane.set("e/2", gaugeOf(3));
  for (const index of [0, 2]) b!.plane.exchange.receive(a!.frames[index]!);
  c!.plane.exchange.receive(a!.frames[1]!);
  for (const { frame, origin } of b!.plane.exchange.relayFrames()) {
    expect(c!.plane.exchange.receive(frame)).toEqual({ origin, isNews: true });
  }
  expect([0, 1, 2].map((index) => sumsOf(c!, `e/${index}`).inFlight)).toEqual([1, 2, 3]);
  expect(c!.plane.describe()).toMatchObject([{ router: "a", inFlight: 6 }]);
});

test("a target that gives its slot up leaves the sums, and has the right ones in its next slot", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time, capacity: 1 });
  connect(a, b);
  a.plane.set("e/0", gaugeOf(1));
  time.advance(10);
  b.plane.release("e/0");
  b.slots.release("e/0");
  expect(b.plane.shared.inFlight[0]).toBe(0);
  a.plane.set("e/0", gaugeOf(2));
  time.advance(10);
  expect(b.plane.shared.inFlight[0]).toBe(0);
  expect(b.slots.slotOf("e/0")).toBe(0);
  a.plane.set("e/0", gaugeOf(3));
  expect(sumsOf(b, "e/0")).toEqual(gaugeOf(3));
});

test("a frame in the name of a router that it may not speak for is no news, and the router's own count as before", () => {
  const time = createVirtualTime();
  const [a, later, b] = [
    createLoadRouter("a", { time }),
    createLoadRouter("a", { time, epoch: 2 ** 48 }),
    createLoadRouter("b", { time }),
  ];
  const isFirstEpoch = ({ epoch }: { epoch: number }): boolean => epoch === 1;
  const tell = (from: LoadRouter) =>
    b.plane.exchange.receive(from.plane.exchange.fullFrames()[0]!, isFirstEpoch).isNews;
  later.plane.set("e/0", gaugeOf(9));
  expect([tell(later), sumsOf(b, "e/0")]).toEqual([false, gaugeOf(0)]);
  a.plane.set("e/0", gaugeOf(2));
  expect([tell(a), sumsOf(b, "e/0")]).toEqual([true, gaugeOf(2)]);
});

test("one target more than there are slots is kept out of the sums", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  const b = createLoadRouter("b", { time, capacity: 2 });
  connect(a, b);
  for (let index = 0; index < 3; index++) a.plane.set(`e/${index}`, gaugeOf(1));
  time.advance(10);
  expect([...b.plane.shared.inFlight]).toEqual([1, 1]);
  expect(b.plane.describe()[0]!.inFlight).toBe(3);
});

test("stop leaves no timer behind", () => {
  const time = createVirtualTime();
  const a = createLoadRouter("a", { time });
  a.plane.start();
  a.plane.set("e/0", gaugeOf(1));
  a.plane.set("e/0", gaugeOf(2));
  expect(time.pendingCount).toBe(3);
  a.plane.stop();
  expect(time.pendingCount).toBe(0);
});

test.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY])("a gauge of %d is a programming error", (inFlight) => {
  const a = createLoadRouter("a");
  expect(() => a.plane.set("e/0", { ...gaugeOf(0), inFlight })).toThrow(RangeError);
});
