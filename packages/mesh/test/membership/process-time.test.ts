import { expect, test } from "vitest";
import { createProcessTime } from "../../src/membership/process-time.ts";

test("time counts while the process ticks; a stop counts as one step", () => {
  let nowMs = 500;
  const processTime = createProcessTime({ nowMs: () => nowMs, wallMs: () => 0 }, 250);
  expect(processTime.nowMs()).toBe(0);
  nowMs += 100;
  expect(processTime.nowMs()).toBe(100);
  expect(processTime.tick()).toBe(0);
  nowMs += 5_000;
  expect(processTime.nowMs()).toBe(350);
  expect(processTime.tick()).toBe(4_750);
  expect(processTime.nowMs()).toBe(350);
  nowMs += 250;
  expect(processTime.tick()).toBe(0);
  expect(processTime.nowMs()).toBe(600);
});
