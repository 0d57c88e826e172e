import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { readyWithinMs, untilReady } from "../src/lifecycle/readiness.ts";

/** Starts the part before a router that is ready after so many milliseconds. */
function start(readyAtMs: number) {
  const { clock, scheduler, advanceAsync } = createVirtualTime();
  const part = untilReady(() => clock.nowMs() >= readyAtMs, scheduler);
  let startedMs = -1;
  const started = part.start().then(() => {
    startedMs = clock.nowMs();
  });
  return { part, started, advance: advanceAsync, startedMs: () => startedMs };
}

test("it starts at once before a router that is ready, and else soon after it is", async () => {
  const ready = start(0);
  await ready.started;
  expect(ready.startedMs()).toBe(0);
  const later = start(500);
  await later.advance(490);
  expect(later.startedMs()).toBe(-1);
  await later.advance(30);
  expect(later.startedMs()).toBe(500);
});

test("a router that does not become ready is not waited for beyond its time", async () => {
  const never = start(Number.POSITIVE_INFINITY);
  await never.advance(readyWithinMs - 1);
  expect(never.startedMs()).toBe(-1);
  await never.advance(1);
  expect(never.startedMs()).toBe(readyWithinMs);
});

test("a stop ends the wait", async () => {
  const never = start(Number.POSITIVE_INFINITY);
  await never.advance(100);
  await never.part.stop();
  await never.advance(20);
  await never.started;
  expect(never.startedMs()).toBe(120);
});
