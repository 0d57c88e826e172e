import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Clock, type Scheduler, systemClock, systemScheduler } from "@espalier/core";
import { expect, onTestFinished, test } from "vitest";
import { loadConfig } from "../src/config/index.ts";
import { probeFleet } from "../src/probe-fleet.ts";

/** Time that passes twenty times as fast. */
const speed = 20;
const clock: Clock = {
  ...systemClock,
  nowMs: () => speed * systemClock.nowMs(),
  wallMs: () => speed * systemClock.wallMs(),
};
const scheduler: Scheduler = {
  after: (delayMs, task) => systemScheduler.after(delayMs / speed, task),
  every: (periodMs, task) => systemScheduler.every(periodMs / speed, task),
};

test("a probe of engines > one that never answers > ends within a minute, with what was found, and says what it waits for", {
  timeout: 20_000,
}, async () => {
  const server = createServer(() => {});
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const config = loadConfig({ flags: { "--engine": [`http://${host}`], "--health-timeout": "50s" } });
  const waited = new Set<string>();
  const onWait = (open: readonly string[]): void => open.forEach((one) => void waited.add(one));
  const options = { openFiles: 4_096, readsEvents: true, known: [], onWait, clock, scheduler };
  const startedMs = clock.nowMs();
  const states = await probeFleet(config, options, async ({ fleet }) => fleet.engines.map(({ state }) => state));
  expect(states).toEqual(["starting"]);
  expect([...waited]).toContain(`health of ${host}`);
  const tookMs = clock.nowMs() - startedMs;
  expect(tookMs).toBeGreaterThanOrEqual(60_000);
  // Three health checks would take longer.
  expect(tookMs).toBeLessThan(150_000);
});
