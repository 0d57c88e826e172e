import { expect, test } from "vitest";
import { type Harness, type ScriptedEngine, startHarness, vllmPage } from "./fleet-harness.ts";

/** Engines of two ranks: 4,000 pages of one rank. */
async function largeFleet(): Promise<{ harness: Harness; engines: readonly ScriptedEngine[] }> {
  const harness = await startHarness();
  const page = Array.from({ length: 2 }, (_, rank) => `vllm:num_requests_running{engine="${rank}"} 4\n`).join("");
  const engines = Array.from({ length: 2_000 }, (_, at) =>
    harness.engine(`e${at}`, { ranks: 2 }, { "/metrics": { status: 200, body: page } }),
  );
  await harness.apply(...engines);
  await harness.time.advanceAsync(8_000);
  return { harness, engines };
}

const countIn = (engines: readonly ScriptedEngine[], path: string, fromMs: number, toMs: number): number =>
  engines.reduce((sum, engine) => sum + engine.times(path).filter((at) => at >= fromMs && at < toMs).length, 0);

test("of a large fleet at most 500 probes and 1,000 pages of a rank are asked for in a second, spread over it", async () => {
  const { harness, engines } = await largeFleet();
  const fromMs = harness.time.clock.nowMs();
  await harness.time.advanceAsync(8_000);
  expect(countIn(engines, "/health", fromMs, fromMs + 8_000)).toBeLessThanOrEqual(8 * 500 + 200);
  expect(countIn(engines, "/metrics", fromMs, fromMs + 8_000)).toBeLessThanOrEqual(8 * 500 + 400);
  expect(countIn(engines, "/metrics", fromMs, fromMs + 8_000)).toBeGreaterThan(8 * 400);
  for (let at = 0; at < 8_000; at += 100)
    expect(countIn(engines, "/metrics", fromMs + at, fromMs + at + 100)).toBeLessThan(110);
  expect(harness.lines.filter(({ message }) => message.startsWith("too many engines"))).toMatchObject([
    { level: "warn", fields: { engines: 2_000, healthMs: 4_000, metricsMs: 4_000 } },
  ]);
});

test("signals of a large fleet are known from one page to the next, and unknown after three that did not come", async () => {
  const { harness, engines } = await largeFleet();
  const { signals } = harness.target("e7");
  for (let passedMs = 0; passedMs < 8_000; passedMs += 100) {
    await harness.time.advanceAsync(100);
    expect(signals.running).toBe(4);
  }
  engines[7]!.paths["/metrics"] = "silent";
  await harness.time.advanceAsync(7_000);
  expect(signals.running).toBe(4);
  await harness.time.advanceAsync(9_000);
  expect(signals.running).toBeNaN();
});

test("an engine of a large fleet that fails is down two checks after the first one that fails", async () => {
  const { harness, engines } = await largeFleet();
  engines[3]!.paths["/health"] = "refused";
  await harness.time.advanceAsync(4_000 + 2 * 1_400 + 100);
  expect(harness.record("e3").state).toBe("down");
});

test("engines are asked as often as configured again when most of the others have gone", async () => {
  const { harness, engines } = await largeFleet();
  const left = engines[0]!;
  left.paths["/metrics"] = vllmPage(1);
  await harness.apply(left);
  await harness.time.advanceAsync(5_000);
  const fromMs = harness.time.clock.nowMs();
  await harness.time.advanceAsync(10_000);
  expect(countIn([left], "/metrics", fromMs, fromMs + 10_000)).toBeGreaterThanOrEqual(9);
  expect(countIn([left], "/health", fromMs, fromMs + 10_000)).toBeGreaterThanOrEqual(4);
});
