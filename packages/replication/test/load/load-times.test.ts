import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { LoadSums } from "../../src/load/load-sums.ts";
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

test("sums of whole milliseconds come back to zero, whatever the order", () => {
  const sums = new LoadSums(1, () => 5);
  const by = { heardMs: 0 };
  for (let workMs = 1; workMs <= 50; workMs++) sums.add(0, work(workMs * 2 ** 33 + 1), by);
  expect(sums.pendingSinceMs[0]).toBe(5);
  for (let workMs = 50; workMs >= 1; workMs--) sums.remove(0, work(workMs * 2 ** 33 + 1), by);
  expect([sums.pendingWorkMs[0], sums.pendingSinceMs[0]]).toEqual([0, Number.POSITIVE_INFINITY]);
});
