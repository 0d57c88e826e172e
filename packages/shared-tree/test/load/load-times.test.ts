import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { LoadSums } from "../../src/load/load-sums.ts";
import { maxLinkDelayMs } from "../../src/load/peer-gauges.ts";
import { connect, createLoadRouter, gaugeOf, type LoadRouter } from "./load-rig.ts";

const never = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY] as const;

/** Routers `a` and `b`, which tell `c`, and a way to read what `c` knows of the work at a target. */
function rig() {
  const time = createVirtualTime();
  const [a, b, c] = ["a", "b", "c"].map((name) => createLoadRouter(name, { time })) as [
    LoadRouter,
    LoadRouter,
    LoadRouter,
  ];
  connect(a, c);
  connect(b, c);
  const startMs = time.clock.nowMs();
  /** Milliseconds of work, since when it is pending, and when some was last heard to be gone. */
  const times = (target = "e/0") => {
    const slot = c.slots.slotOf(target);
    const { pendingWorkMs, pendingSinceMs, computedMs } = c.plane.shared;
    return [pendingWorkMs[slot]!, pendingSinceMs[slot]! - startMs, computedMs[slot]! - startMs];
  };
  return { time, a, b, c, times };
}

const work = (pendingWorkMs: number) => ({ ...gaugeOf(2), pendingWorkMs });

describe("what others have to compute at a target", () => {
  test("is pending since the first of it was heard of, until none is left", () => {
    const { time, a, b, times } = rig();
    expect(times()).toEqual([0, ...never]);
    a.plane.set("e/0", work(0));
    expect(times()).toEqual([0, ...never]);
    time.advance(20);
    a.plane.set("e/0", work(400));
    time.advance(20);
    b.plane.set("e/0", work(70));
    expect(times()).toEqual([470, 20, Number.NEGATIVE_INFINITY]);
    time.advance(20);
    a.plane.set("e/0", work(0));
    expect(times()).toEqual([70, 20, 60]);
    time.advance(20);
    b.plane.set("e/0", gaugeOf(0));
    expect(times()).toEqual([0, Number.POSITIVE_INFINITY, 80]);
    expect(times("e/1")).toEqual([0, ...never]);
  });

  test("was computed when less of it was last heard of; more of it, and other load, says nothing of that", () => {
    const { time, a, times } = rig();
    a.plane.set("e/0", work(400));
    for (const [ms, gauge] of [
      [20, work(500)],
      [40, { ...work(500), decodeTokens: 9, inFlight: 7 }],
      [60, { ...work(500), pendingPrefillTokens: 0 }],
    ] as const) {
      time.advance(20);
      a.plane.set("e/0", gauge);
      expect(times(), `${ms}`).toEqual([500, 0, Number.NEGATIVE_INFINITY]);
    }
    time.advance(20);
    a.plane.set("e/0", work(499));
    expect(times()).toEqual([499, 0, 80]);
  });

  test("is gone with a router that falls silent, and pending anew when that is heard again", () => {
    const { time, a, c, times } = rig();
    c.plane.start();
    a.plane.set("e/0", work(400));
    time.advance(2_000);
    const [workMs, sinceMs] = times();
    expect([workMs, sinceMs]).toEqual([0, Number.POSITIVE_INFINITY]);
    a.plane.set("e/0", work(300));
    expect(times().slice(0, 2)).toEqual([300, 2_000]);
    c.plane.stop();
  });

  test("is gone with a target whose slot is given up, so that the next one there begins with nothing", () => {
    const { time, a, c, times } = rig();
    a.plane.set("e/0", work(400));
    time.advance(20);
    c.plane.release("e/0");
    expect(times().slice(0, 2)).toEqual([0, Number.POSITIVE_INFINITY]);
  });
});

describe("what others have sent to a target, all in all", () => {
  function sentBy() {
    const routers = rig();
    const { c } = routers;
    return { ...routers, sent: (target = "e/0") => c.plane.shared.sentWorkMs[c.slots.slotOf(target)]! };
  }

  test("grows by what is told to come, and never by what is told to be done", () => {
    const { time, a, b, c, sent } = sentBy();
    expect(c.plane.shared.sinceMs).toBe(time.clock.nowMs());
    const reported = [
      [a, 400, 400],
      [b, 70, 470],
      [a, 150, 470],
      [a, 250, 570],
      [a, 250, 570],
      [b, 0, 570],
      [a, 0, 570],
      [b, 5, 575],
    ] as const;
    for (const [router, workMs, expected] of reported) {
      time.advance(20);
      router.plane.set("e/0", work(workMs));
      expect(sent(), `${workMs}`).toBe(expected);
    }
    a.plane.set("e/0", gaugeOf(0));
    expect([sent(), sent("e/1")]).toEqual([575, 0]);
  });

  test("is told by routers that repeat what they said, and by those that are late, once", () => {
    const { time, a, b, c, sent } = sentBy();
    for (const router of [a, b, c]) router.plane.start();
    a.plane.set("e/0", work(400));
    const late = a.frames.at(-1)!;
    time.advance(20);
    a.plane.set("e/0", work(300));
    time.advance(5_000);
    c.plane.exchange.receive(late);
    c.plane.exchange.receive(a.plane.exchange.fullFrames()[0]!);
    expect(sent()).toBe(400);
    for (const router of [a, b, c]) router.plane.stop();
  });

  test("has what a router had pending when it was heard first, and again after a silence", () => {
    const { time, a, c, sent } = sentBy();
    c.plane.start();
    a.plane.set("e/0", work(400));
    time.advance(2_000);
    expect([sent(), c.plane.shared.originCount]).toEqual([400, 0]);
    a.plane.set("e/0", work(300));
    expect(sent()).toBe(700);
    c.plane.stop();
  });

  test("lacks what came and was computed between two frames: at most what is done in 10 ms", () => {
    const { time, a, sent } = sentBy();
    a.plane.set("e/0", work(400));
    time.advance(1);
    a.plane.set("e/0", work(0));
    a.plane.set("e/0", work(60));
    time.advance(20);
    expect(sent()).toBe(400);
    a.plane.set("e/0", work(500));
    expect(sent()).toBe(840);
  });
});

test("moments lie as far back as the link takes that told of them, up to a bound", () => {
  const { time, a, b, c, times } = rig();
  const { shared, exchange } = c.plane;
  const frames: Uint8Array[] = [];
  const [far, near] = [createLoadRouter("far", { time }), createLoadRouter("near", { time })];
  for (const { plane } of [far, near]) plane.exchange.onFrame((frame) => frames.push(frame));
  const arrive = (linkDelayMs?: number): void => {
    for (const frame of frames.splice(0)) exchange.receive(frame, undefined, linkDelayMs);
  };
  time.advance(200);
  far.plane.set("e/0", work(400));
  arrive(50);
  expect([times(), shared.linkDelayMs]).toEqual([[400, 150, Number.NEGATIVE_INFINITY], 50]);
  near.plane.set("e/0", work(100));
  arrive(Number.NaN);
  expect([times()[1], shared.linkDelayMs]).toEqual([150, 25]);
  time.advance(100);
  near.plane.set("e/0", work(90));
  arrive(10);
  expect([times()[2], shared.linkDelayMs]).toEqual([290, 30]);
  far.plane.set("e/0", work(300));
  arrive(maxLinkDelayMs + 1);
  // What a near router told of later still counts.
  expect([times()[2], shared.linkDelayMs]).toEqual([290, (maxLinkDelayMs + 10) / 2]);
  time.advance(20);
  far.plane.set("e/0", work(200));
  arrive(20);
  expect([times()[2], shared.linkDelayMs]).toEqual([300, 15]);
  time.advance(2_000);
  for (const { plane } of [a, b]) plane.set("e/1", work(1));
  c.plane.checkLeases();
  expect([shared.originCount, shared.linkDelayMs]).toEqual([2, 0]);
});

test("sums of whole milliseconds come back to zero, whatever the order", () => {
  const sums = new LoadSums(1, () => 5);
  const by = { heardMs: 0, linkDelayMs: 0 };
  for (let workMs = 1; workMs <= 50; workMs++) sums.add(0, work(workMs * 2 ** 33 + 1), by);
  expect(sums.pendingSinceMs[0]).toBe(5);
  for (let workMs = 50; workMs >= 1; workMs--) sums.remove(0, work(workMs * 2 ** 33 + 1), by);
  expect([sums.pendingWorkMs[0], sums.pendingSinceMs[0]]).toEqual([0, Number.POSITIVE_INFINITY]);
});
