import { createSeededRandom } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, expect, test } from "vitest";
import { createNodeTime, maxDriftRate, type NodeTime } from "../../src/fleet/node-time.ts";

let world: VirtualTime;
let node: NodeTime;
let ran: string[];
const note = (name: string) => (): void => {
  ran.push(`${name} ${Math.round(node.clock.nowMs() * 1_000) / 1_000}`);
};

beforeEach(() => {
  world = createVirtualTime(0);
  node = createNodeTime(world);
  ran = [];
});

test("without faults a process has the world's time", () => {
  world.advance(7.25);
  node.scheduler.after(2, note("late"));
  node.scheduler.after(1, note("early"));
  node.scheduler.after(1, note("second"));
  world.advance(5);
  expect(ran).toEqual(["early 8.25", "second 8.25", "late 9.25"]);
  expect([node.clock.nowMs(), node.clock.wallMs()]).toEqual([12.25, 12]);
  expect(world.pendingCount).toBe(0);
});

test("a process that starts later has the world's time too", () => {
  world.advance(1_000);
  const late = createNodeTime(world);
  world.advance(1);
  expect(late.clock.nowMs()).toBe(1_001);
});

test("however many timers wait, the world has one of them", () => {
  const cancels = [5, 3, 9, 1].map((delayMs) => node.scheduler.after(delayMs, note("timer")));
  expect([node.pendingCount, world.pendingCount]).toEqual([4, 1]);
  for (const cancel of cancels) cancel();
  expect(node.pendingCount).toBe(0);
  world.advance(10);
  expect(ran).toEqual([]);
});

test("clocks that run fast show more and timers run earlier in the world's time", () => {
  node.setDrift(0.1);
  const worldMs: number[] = [];
  node.scheduler.after(110, () => worldMs.push(world.clock.nowMs()));
  world.advance(200);
  expect(worldMs[0]).toBeCloseTo(100, 9);
  expect(node.clock.nowMs()).toBeCloseTo(220, 9);
  expect(node.clock.wallMs()).toBe(220);
});

test("drift that changes while a timer waits moves what is left of it", () => {
  const worldMs: number[] = [];
  node.scheduler.after(100, () => worldMs.push(world.clock.nowMs()));
  world.advance(50);
  node.setDrift(-0.1);
  world.advance(100);
  expect(worldMs[0]).toBeCloseTo(50 + 50 / 0.9, 9);
});

test("drift beyond the bound is refused", () => {
  for (const rate of [maxDriftRate * 1.01, -maxDriftRate * 1.01, Number.NaN]) {
    expect(() => node.setDrift(rate)).toThrow(RangeError);
  }
  node.setDrift(maxDriftRate);
  node.setDrift(-maxDriftRate);
});

test("a jump of the wall clock is seen by nothing else", () => {
  node.scheduler.after(10, note("timer"));
  node.jumpWall(-60_000);
  node.jumpWall(1_000);
  world.advance(10);
  expect([node.clock.wallMs(), node.clock.nowMs(), ran]).toEqual([-58_990, 10, ["timer 10"]]);
});

test("a stopped process does nothing; once it goes on, overdue timers run at once, in order, at the new time", () => {
  node.scheduler.after(30, note("third"));
  node.scheduler.after(10, note("first"));
  node.scheduler.after(20, note("second"));
  node.scheduler.after(5_010, note("later"));
  node.pause();
  node.pause();
  world.advance(5_000);
  expect([ran, node.clock.nowMs(), node.isPaused]).toEqual([[], 5_000, true]);
  node.resume();
  expect([ran, node.isPaused]).toEqual([[], false]);
  world.advance(0);
  expect(ran).toEqual(["first 5000", "second 5000", "third 5000"]);
  world.advance(10);
  expect(ran.at(-1)).toBe("later 5010");
});

test("a periodic task runs once for all periods that it was stopped in", () => {
  const cancel = node.scheduler.every(100, note("tick"));
  world.advance(250);
  node.pause();
  world.advance(1_000);
  node.resume();
  world.advance(100);
  cancel();
  world.advance(1_000);
  expect(ran).toEqual(["tick 100", "tick 200", "tick 1250", "tick 1350"]);
});

test("timers that are set while a process is stopped wait, too", () => {
  node.pause();
  node.scheduler.after(1, note("set by a delivery"));
  world.advance(10);
  expect(ran).toEqual([]);
  node.resume();
  world.advance(0);
  expect(ran).toEqual(["set by a delivery 10"]);
});

test("a task may stop its own process, and what is due with it waits", () => {
  node.scheduler.after(10, () => node.pause());
  node.scheduler.after(10, note("second"));
  world.advance(100);
  expect(ran).toEqual([]);
  node.resume();
  world.advance(0);
  expect(ran).toEqual(["second 100"]);
});

test("a process that is gone has no timers and sets none", () => {
  node.scheduler.after(10, () => node.kill());
  node.scheduler.after(10, note("with it"));
  node.scheduler.every(15, note("later"));
  world.advance(100);
  node.scheduler.after(0, note("after"));
  node.resume();
  world.advance(100);
  expect([ran, node.pendingCount, world.pendingCount]).toEqual([[], 0, 0]);
});

test("the next process on a machine has its wrong clocks, and none of its timers", () => {
  node.setDrift(0.1);
  node.jumpWall(-5_000);
  node.scheduler.after(1_500, note("of the first"));
  world.advance(1_000);
  const wallMs = node.clock.wallMs();
  node.kill();
  const next = node.next();
  expect(next.clock.wallMs()).toBe(wallMs);
  world.advance(1_000);
  expect(Math.abs(next.clock.wallMs() - wallMs - 1_100)).toBeLessThanOrEqual(1);
  expect([ran, next.isPaused, next.pendingCount]).toEqual([[], false, 0]);
});

test("what a task schedules for the same moment comes after what others do at it", () => {
  const order: string[] = [];
  node.scheduler.after(10, () => {
    order.push("own");
    node.scheduler.after(0, () => order.push("own again"));
  });
  node.scheduler.after(10, () => order.push("own second"));
  world.scheduler.after(10, () => order.push("another's"));
  world.advance(10);
  expect(order).toEqual(["own", "own second", "another's", "own again"]);
});

test("a task that throws leaves the others waiting", () => {
  node.scheduler.after(1, () => {
    throw new Error("of the task");
  });
  node.scheduler.after(1, note("next"));
  expect(() => world.advance(5)).toThrow("of the task");
  world.advance(5);
  expect(ran).toEqual(["next 1"]);
});

test.each([1, 2, 3, 4, 5, 6, 7, 8])("whatever happens, time goes on and no timer runs early (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  let lastMs = 0;
  let set = 0;
  let done = 0;
  const set1 = (): void => {
    const dueMs = node.clock.nowMs() + random.float() * 50;
    set++;
    node.scheduler.after(dueMs - node.clock.nowMs(), () => {
      done++;
      expect(node.clock.nowMs()).toBeGreaterThanOrEqual(dueMs - 1e-6);
      if (random.integer(2) === 0) set1();
    });
  };
  for (let step = 0; step < 2_000; step++) {
    const dice = random.integer(20);
    if (dice < 10) set1();
    else if (dice === 10) node.setDrift((random.float() - 0.5) * 0.2);
    else if (dice === 11) node.jumpWall((random.float() - 0.5) * 10_000);
    else if (dice === 12) node.pause();
    else if (dice === 13) node.resume();
    else world.advance(random.float() * 20);
    const nowMs = node.clock.nowMs();
    expect(nowMs).toBeGreaterThanOrEqual(lastMs);
    lastMs = nowMs;
  }
  node.resume();
  world.advance(10_000);
  expect([done, node.pendingCount]).toEqual([set, 0]);
});
