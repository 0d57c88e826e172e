import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { systemClock, systemScheduler } from "../src/index.ts";

test("the system clock never runs backwards and knows the date", () => {
  let previousMs = systemClock.nowMs();
  for (let i = 0; i < 1_000; i++) {
    const nowMs = systemClock.nowMs();
    expect(nowMs).toBeGreaterThanOrEqual(previousMs);
    previousMs = nowMs;
  }
  expect(systemClock.wallMs()).toBeGreaterThan(Date.UTC(2025, 0, 1));
});

test("a cancelled task does not run, the others do", async () => {
  const ran: string[] = [];
  const cancel = systemScheduler.after(1, () => ran.push("cancelled"));
  systemScheduler.after(2, () => ran.push("kept"));
  cancel();
  await waitFor(() => ran.length > 0, { what: "task" });
  expect(ran).toEqual(["kept"]);
});

test("a periodic task repeats until cancelled", async () => {
  let runs = 0;
  const cancel = systemScheduler.every(1, () => runs++);
  await waitFor(() => runs >= 3, { what: "three runs" });
  cancel();
  const atCancel = runs;
  let later = false;
  systemScheduler.after(10, () => {
    later = true;
  });
  await waitFor(() => later, { what: "later task" });
  expect(runs).toBe(atCancel);
});
