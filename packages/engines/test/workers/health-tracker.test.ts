import { expect, test } from "vitest";
import { defaultFleetOptions } from "../../src/workers/fleet-options.ts";
import { HealthTracker } from "../../src/workers/health-probe.ts";

/** An engine that has just come up, with randomness that draws nothing but 0. */
function upEngine(): HealthTracker {
  const tracker = new HealthTracker(defaultFleetOptions.health, { float: () => 0 } as never);
  expect(tracker.record(true)).toBe(true);
  return tracker;
}

test("no probe follows another one in less than a millisecond, however late it is", () => {
  const tracker = upEngine();
  expect(tracker.nextDelayMs(true, 0)).toBe(1);
  const { intervalMs } = defaultFleetOptions.health;
  expect([tracker.nextDelayMs(false, intervalMs - 1), tracker.nextDelayMs(false, intervalMs + 500)]).toEqual([1, 1]);
});
