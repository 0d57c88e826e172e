import { describe, expect, test } from "vitest";
import { startHarness } from "./fleet-harness.ts";

/** An engine whose every answer takes so long. */
async function engineAfter(afterMs: number, options: Parameters<typeof startHarness>[0] = {}) {
  const harness = await startHarness(options);
  const engine = harness.engine("a", { ranks: 2 });
  const answers = { ...engine.paths };
  const takes = (ms: number, paths = Object.keys(answers)): void => {
    for (const path of paths) engine.paths[path] = { ...(answers[path] as object), status: 200, afterMs: ms };
  };
  takes(afterMs);
  await harness.apply(engine);
  return { ...harness, engine, takes, networkMs: () => harness.record("a").networkMs };
}

describe("the round trip to an engine", () => {
  test("is unknown until it has answered five times, and then that of its every rank", async () => {
    const { time, networkMs, record, engine } = await engineAfter(40);
    const answers = (): number => engine.seen.filter(({ atMs }) => atMs + 40 <= time.clock.nowMs()).length;
    for (; answers() < 5; await time.advanceAsync(40)) expect(networkMs()).toBeNaN();
    expect(networkMs()).toBe(40);
    expect(record("a").targets.map((target) => target.networkMs)).toEqual([40, 40]);
  });

  test("is what the fastest answer of any kind took: neither a slow page nor a busy engine counts", async () => {
    const { time, takes, networkMs } = await engineAfter(40);
    await time.advanceAsync(40);
    takes(300, ["/metrics", "/v1/models"]);
    await time.advanceAsync(120_000);
    expect(networkMs()).toBe(40);
    takes(200, ["/health"]);
    await time.advanceAsync(25_000);
    takes(40, ["/health"]);
    await time.advanceAsync(3_000);
    takes(200, ["/health"]);
    await time.advanceAsync(25_000);
    expect(networkMs()).toBe(40);
  });

  test("follows a route that has become shorter at once, and one that has become longer within a minute", async () => {
    const { time, takes, networkMs } = await engineAfter(40);
    await time.advanceAsync(100_000);
    takes(20);
    await time.advanceAsync(2_500);
    expect(networkMs()).toBe(20);
    await time.advanceAsync(100_000);
    takes(90);
    await time.advanceAsync(29_000);
    expect(networkMs()).toBe(20);
    await time.advanceAsync(33_000);
    expect(networkMs()).toBe(90);
  });

  test("stays while the engine does not answer, and is measured anew when it does", async () => {
    const { time, engine, takes, networkMs } = await engineAfter(40);
    await time.advanceAsync(10_000);
    for (const path of Object.keys(engine.paths)) engine.paths[path] = "silent";
    await time.advanceAsync(300_000);
    expect(networkMs()).toBe(40);
    takes(90);
    await time.advanceAsync(10_000);
    expect(networkMs()).toBe(90);
  });

  // SGLang's health check generates a token, and looks for it once a second.
  test("is not what an answer took that no way explains", async () => {
    const { time, takes, networkMs } = await engineAfter(900);
    await time.advanceAsync(10_000);
    expect(networkMs()).toBeNaN();
    takes(500, ["/metrics"]);
    await time.advanceAsync(10_000);
    expect(networkMs()).toBe(500);
    takes(501, ["/metrics"]);
    await time.advanceAsync(200_000);
    expect(networkMs()).toBe(500);
  });
});
