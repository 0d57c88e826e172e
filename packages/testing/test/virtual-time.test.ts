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
