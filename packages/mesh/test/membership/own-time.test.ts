import { expect, test } from "vitest";
import { createOwnTime } from "../../src/membership/own-time.ts";

test("time counts while the process ticks; a stop counts as one step", () => {
  let nowMs = 500;
  const ownTime = createOwnTime({ nowMs: () => nowMs, wallMs: () => 0 }, 250);
  expect(ownTime.nowMs()).toBe(0);
  nowMs += 100;
  expect(ownTime.nowMs()).toBe(100);
  expect(ownTime.tick()).toBe(0);
  nowMs += 5_000;
  expect(ownTime.nowMs()).toBe(350);
  expect(ownTime.tick()).toBe(4_750);
  expect(ownTime.nowMs()).toBe(350);
  nowMs += 250;
  expect(ownTime.tick()).toBe(0);
  expect(ownTime.nowMs()).toBe(600);
});
