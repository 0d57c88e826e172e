import { expect, test } from "vitest";
import { startHarness } from "./fleet-harness.ts";

test("an engine that asks for a pause is not usable meanwhile, for 10 s at most", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a"), harness.engine("b"));
  const usable = (): boolean[] => ["a", "b"].map((id) => harness.target(id).usable);
  harness.record("a").coolDown(3_000);
  expect([usable(), harness.record("a").isCoolingDown]).toEqual([[false, true], true]);
  await harness.time.advanceAsync(2_999);
  expect(usable()).toEqual([false, true]);
  await harness.time.advanceAsync(1);
  expect([usable(), harness.record("a").isCoolingDown]).toEqual([[true, true], false]);

  harness.record("a").coolDown(86_400_000);
  await harness.time.advanceAsync(9_999);
  expect(usable()).toEqual([false, true]);
  await harness.time.advanceAsync(1);
  expect(usable()).toEqual([true, true]);
});

test("a shorter pause does not end a longer one", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a"), harness.engine("b"));
  harness.record("a").coolDown(5_000);
  harness.record("a").coolDown(10);
  await harness.time.advanceAsync(4_000);
  expect(harness.target("a").usable).toBe(false);
});
