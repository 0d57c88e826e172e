import { createSeededRandom, systemCpuMs } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { EventTimes, EventTimesByRouter, maxEventTimes } from "../src/mesh-node/event-times.ts";
import { createJittered } from "../src/mesh-node/jittered.ts";
import { createLoopStalls } from "../src/mesh-node/loop-stalls.ts";
import { createWallTime } from "../src/mesh-node/wall-time.ts";

test("wall time has a fraction, and is right to within a reading of the clock", () => {
  // A machine whose monotonic clock is 12,345.678 ms behind its wall clock, and takes 0.013 ms for each reading.
  let nowMs = 100;
  const offsetMs = 12_345.678;
  const read = (): number => {
    nowMs += 0.013;
    return nowMs;
  };
  const clock = { nowMs: read, wallMs: () => Math.floor(read() + offsetMs) };
  const wallTime = createWallTime(clock);
  const error = wallTime.nowMs() - (nowMs + offsetMs);
  expect(Math.abs(error)).toBeLessThan(0.05);
});

test("a clock that stands still does not hold the calibration up", () => {
  const { clock } = createVirtualTime(1_000);
  expect(createWallTime(clock).nowMs()).toBe(1_000);
});

/** A scheduler of which each task runs when the test says so. */
function steppedLoop() {
  let nowMs = 0;
  let usedMs = 0;
  let task: (() => void) | undefined;
  return {
    clock: { nowMs: () => nowMs, wallMs: () => 0 },
    scheduler: {
      after(_delayMs: number, next: () => void) {
        task = next;
        return () => (task = undefined);
      },
      every: () => () => {},
    },
    cpuMs: () => usedMs,
    turn(afterMs: number, cpuMs: number) {
      nowMs += afterMs;
      usedMs += cpuMs;
      task?.();
    },
    isPending: () => task !== undefined,
  };
}

test("a stall is the longest time between two turns", () => {
  const loop = steppedLoop();
  const stalls = createLoopStalls(loop);
  for (const afterMs of [1, 1, 7, 2, 30, 1]) loop.turn(afterMs, 0);
  expect(stalls.worstMs).toBe(30);
  stalls.reset();
  expect(stalls.worstMs).toBe(0);
  loop.turn(4, 0);
  expect(stalls.worstMs).toBe(4);
});

test("a stall is of its own doing as far as this process used the CPU", () => {
  const loop = steppedLoop();
  const stalls = createLoopStalls(loop);
  loop.turn(100, 3);
  expect(stalls.worstMs).toBe(100);
  expect(stalls.worstBusyMs).toBe(3);
  loop.turn(40, 38);
  expect(stalls.worstBusyMs).toBe(38);
  // Several threads may use more than the time that has passed.
  loop.turn(50, 90);
  expect(stalls.worstBusyMs).toBe(50);
  stalls.reset();
  expect(stalls.worstBusyMs).toBe(0);
});

test("the CPU time is asked for every ten milliseconds at most", () => {
  const loop = steppedLoop();
  let asked = 0;
  const stalls = createLoopStalls({ ...loop, cpuMs: () => asked++ });
  for (let turn = 0; turn < 100; turn++) loop.turn(1, 0);
  expect(asked).toBe(11);
  expect(stalls.worstMs).toBe(1);
});

test("a stopped watch leaves no timer", () => {
  const loop = steppedLoop();
  const stalls = createLoopStalls(loop);
  loop.turn(1, 0);
  expect(loop.isPending()).toBe(true);
  stalls.stop();
  expect(loop.isPending()).toBe(false);
});

test("this process has used the CPU", () => {
  const before = systemCpuMs();
  expect(before).toBeGreaterThan(0);
  expect(systemCpuMs()).toBeGreaterThanOrEqual(before);
});

test.each([1, 20, 200])(
  "a task runs %i times a second on the average, after half to one and a half periods",
  (rate) => {
    const { clock, scheduler, advance, ...time } = createVirtualTime();
    const ran: number[] = [];
    const random = createSeededRandom(3);
    const jittered = createJittered({ scheduler, random, ratePerS: rate, task: () => ran.push(clock.nowMs()) });
    jittered.start();
    advance(200_000 / rate);
    expect(ran.length).toBeGreaterThan(180);
    expect(ran.length).toBeLessThan(220);
    const periods = ran.slice(1).map((atMs, at) => ((atMs - ran[at]!) * rate) / 1_000);
    expect(Math.min(...periods)).toBeGreaterThanOrEqual(0.499);
    expect(Math.max(...periods)).toBeLessThanOrEqual(1.501);
    jittered.stop();
    expect(time.pendingCount).toBe(0);
  },
);

test("at rate 0 nothing runs, and there is nothing to cancel", () => {
  const time = createVirtualTime();
  const jittered = createJittered({
    scheduler: time.scheduler,
    random: createSeededRandom(1),
    ratePerS: 0,
    task: () => expect.fail("ran"),
  });
  jittered.start();
  time.advance(10_000);
  expect(time.pendingCount).toBe(0);
  jittered.stop();
});

test("a task may stop itself", () => {
  const time = createVirtualTime();
  let ran = 0;
  const jittered = createJittered({
    scheduler: time.scheduler,
    random: createSeededRandom(1),
    ratePerS: 10,
    task: () => {
      ran += 1;
      jittered.stop();
    },
  });
  jittered.start();
  time.advance(10_000);
  expect(ran).toBe(1);
});

test("times are kept in order, and no more of them than the bound", () => {
  const times = new EventTimes();
  for (let number = 0; number <= maxEventTimes; number++) times.add(number, number / 2);
  expect(times.all.length).toBe(maxEventTimes);
  expect(times.all[1]).toEqual([1, 0.5]);
  expect(times.all.at(-1)).toEqual([maxEventTimes - 1, (maxEventTimes - 1) / 2]);
  times.reset();
  expect(times.all).toEqual([]);
});

test("times of routers are kept apart", () => {
  const times = new EventTimesByRouter();
  times.of("a").add(0, 10);
  times.of("b").add(0, 20);
  times.of("a").add(1, 11);
  expect(times.toJson()).toEqual({
    a: [
      [0, 10],
      [1, 11],
    ],
    b: [[0, 20]],
  });
  times.reset();
  expect(times.toJson()).toEqual({});
});
