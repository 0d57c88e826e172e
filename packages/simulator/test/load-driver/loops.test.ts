import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { runClosedLoop, runOpenLoop } from "../../src/load-driver/index.ts";

test("the open loop starts jobs when they are due, however long the earlier ones take", async () => {
  const time = createVirtualTime();
  const startedMs: number[] = [];
  const job = (dueMs: number) => ({
    dueMs,
    run: () =>
      new Promise<void>((resolve) => {
        startedMs.push(time.clock.nowMs());
        time.scheduler.after(1_000, resolve);
      }),
  });
  let ended = false;
  const loop = runOpenLoop([job(0), job(10), job(10), job(35)], time).then(() => {
    ended = true;
  });
  await time.advanceAsync(40);
  expect(startedMs).toEqual([0, 10, 10, 35]);
  expect(ended).toBe(false);
  await time.advanceAsync(1_000);
  await loop;
  expect(ended).toBe(true);
});

test("an aborted open loop starts nothing more and waits for what runs", async () => {
  const time = createVirtualTime();
  const controller = new AbortController();
  let started = 0;
  const run = async (): Promise<void> => {
    started++;
  };
  const loop = runOpenLoop(
    [
      { dueMs: 0, run },
      { dueMs: 50, run },
      { dueMs: 90, run },
    ],
    time,
    controller.signal,
  );
  await time.advanceAsync(60);
  controller.abort();
  await loop;
  expect(started).toBe(2);
  expect(time.pendingCount).toBe(0);
});

test("the closed loop never runs more jobs at once than users, and runs each once", async () => {
  const time = createVirtualTime();
  let running = 0;
  let most = 0;
  let given = 0;
  const next = () => {
    if (given === 17) return undefined;
    given++;
    return async () => {
      running++;
      most = Math.max(most, running);
      await new Promise<void>((resolve) => time.scheduler.after(5, resolve));
      running--;
    };
  };
  const loop = runClosedLoop(next, 4);
  await time.advanceAsync(100);
  await loop;
  expect({ most, given, running }).toEqual({ most: 4, given: 17, running: 0 });
});
