import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";

test("tasks run in order of due time, then of scheduling", () => {
  const time = createVirtualTime();
  const ran: string[] = [];
  time.scheduler.after(20, () => ran.push(`late ${time.clock.nowMs()}`));
  time.scheduler.after(10, () => ran.push(`first ${time.clock.nowMs()}`));
  time.scheduler.after(10, () => ran.push(`second ${time.clock.nowMs()}`));
  time.advance(15);
  expect(ran).toEqual(["first 10", "second 10"]);
  expect(time.clock.nowMs()).toBe(15);
  time.advance(5);
  expect(ran.at(-1)).toBe("late 20");
});

test("a periodic task runs until it is cancelled, also from inside itself", () => {
  const time = createVirtualTime();
  let runs = 0;
  const cancel = time.scheduler.every(10, () => {
    runs++;
    if (runs === 3) cancel();
  });
  time.advance(100);
  expect(runs).toBe(3);
  expect(time.pendingCount).toBe(0);
});

test("a task scheduled by a task runs in the same advance when it is due", async () => {
  const time = createVirtualTime();
  let ranAtMs = -1;
  time.scheduler.after(5, () => {
    Promise.resolve().then(() => time.scheduler.after(5, () => (ranAtMs = time.clock.nowMs())));
  });
  await time.advanceAsync(10);
  expect(ranAtMs).toBe(10);
  expect(time.clock.wallMs()).toBe(1_700_000_000_010);
});

test("running until a moment runs what is due by then, and never turns time back", () => {
  const time = createVirtualTime();
  const ran: number[] = [];
  for (const dueMs of [30, 10, 20]) time.scheduler.after(dueMs, () => ran.push(time.clock.nowMs()));
  expect(time.nextDueMs).toBe(10);
  time.runUntil(20);
  expect([ran, time.clock.nowMs(), time.nextDueMs]).toEqual([[10, 20], 20, 30]);
  time.runUntil(5);
  expect(time.clock.nowMs()).toBe(20);
  time.runUntil(100);
  expect([ran, time.clock.nowMs(), time.nextDueMs]).toEqual([[10, 20, 30], 100, Number.POSITIVE_INFINITY]);
});

test("a negative delay is none, and comes after what was due before", () => {
  const time = createVirtualTime();
  const ran: string[] = [];
  time.advance(5);
  time.scheduler.after(0, () => ran.push("first"));
  time.scheduler.after(-3, () => ran.push("second"));
  time.advance(0);
  expect(ran).toEqual(["first", "second"]);
});

test("a million tasks, half of them cancelled, run in order", () => {
  const time = createVirtualTime();
  let ran = 0;
  let isOrdered = true;
  let lastMs = 0;
  const task = (): void => {
    const nowMs = time.clock.nowMs();
    isOrdered &&= nowMs >= lastMs;
    lastMs = nowMs;
    ran++;
  };
  let draw = 1;
  for (let count = 0; count < 1_000_000; count++) {
    draw = (Math.imul(draw, 1_664_525) + 1_013_904_223) >>> 0;
    const cancel = time.scheduler.after(draw % 60_000, task);
    if (count % 2 === 0) cancel();
  }
  time.advance(60_000);
  expect([ran, isOrdered, time.pendingCount]).toEqual([500_000, true, 0]);
});
