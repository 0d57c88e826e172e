import { createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createHybridClock, maxAheadMs, stampMs, stampsPerMs } from "../src/hybrid-clock.ts";

test("stamps follow the wall clock and rise within a millisecond", () => {
  const time = createVirtualTime(1_000);
  const hlc = createHybridClock(time.clock);
  const first = hlc.now();
  expect(stampMs(first)).toBe(1_000);
  expect(hlc.now()).toBe(first + 1);
  time.advance(3);
  expect(stampMs(hlc.now())).toBe(1_003);
});

test("more stamps than a millisecond has run into the next one and stay in order", () => {
  const time = createVirtualTime(1_000);
  const hlc = createHybridClock(time.clock);
  let last = hlc.now();
  for (let index = 0; index < 2 * stampsPerMs; index++) {
    const next = hlc.now();
    expect(next).toBeGreaterThan(last);
    last = next;
  }
  time.advance(1);
  expect(hlc.now()).toBeGreaterThan(last);
});

test("a stamp that was observed is in the past of every later one, however the wall clock goes", () => {
  const random = createSeededRandom(3);
  let wallMs = 1_000_000;
  const hlc = createHybridClock({ nowMs: () => 0, wallMs: () => wallMs });
  let last = 0;
  for (let step = 0; step < 5_000; step++) {
    wallMs += random.integer(100) - 45;
    const remote = Math.floor((wallMs + random.integer(maxAheadMs)) * stampsPerMs);
    if (random.float() < 0.3 && hlc.observe(remote)) last = Math.max(last, remote);
    const next = hlc.now();
    expect(next).toBeGreaterThan(last);
    last = next;
  }
});

test("a clock that is too far ahead pulls no further than the bound", () => {
  const time = createVirtualTime(1_000_000);
  const hlc = createHybridClock(time.clock);
  expect(hlc.observe((1_000_000 + maxAheadMs) * stampsPerMs)).toBe(true);
  expect(hlc.observe((1_000_000 + maxAheadMs) * stampsPerMs + 1)).toBe(false);
  expect(hlc.observe(Number.MAX_SAFE_INTEGER)).toBe(false);
  expect(hlc.now()).toBe((1_000_000 + maxAheadMs) * stampsPerMs + 1);
  time.advance(maxAheadMs + 1);
  expect(stampMs(hlc.now())).toBe(1_000_000 + maxAheadMs + 1);
});

test("stamps are safe integers far into the future", () => {
  const hlc = createHybridClock({ nowMs: () => 0, wallMs: () => Date.UTC(2109, 0, 1) });
  expect(Number.isSafeInteger(hlc.now())).toBe(true);
});
