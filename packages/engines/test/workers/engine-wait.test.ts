import { describe, expect, test } from "vitest";
import { describeEngine, engineTroubles } from "../../src/workers/index.ts";
import type { RequestSize } from "../../src/workers/target-load.ts";
import { type Answer, type Harness, startHarness } from "./fleet-harness.ts";

/**
 * Symptom: an engine that took requests and answered none was well by every tool for minutes. Mechanism: its health checks
 * succeed, latencies are those of answers, and nobody looked at requests without one.
 */

const stream: RequestSize = { promptTokens: 1_000, expectedOutputTokens: 100, answer: "stream" };
const pageOf = (running: number, tokens: number): Answer => ({
  status: 200,
  body: `vllm:num_requests_running ${running}\nvllm:generation_tokens_total ${tokens}\n`,
});

async function startOne(page: Answer = pageOf(1, 5)): Promise<Harness & { setPage(page: Answer): void }> {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": page });
  await harness.apply(engine);
  await harness.time.advanceAsync(2_000);
  return {
    ...harness,
    setPage: (next) => {
      engine.paths["/metrics"] = next;
    },
  };
}

const unresponsiveMs = (harness: Harness): number => harness.record("a").wait.unresponsiveMs;

test("nothing from a stream's engine for 30 s and what its prompt may take: unresponsive, as a metric and in words", async () => {
  const harness = await startOne();
  expect(harness.record("a").wait).toEqual({ oldestMs: Number.NaN, unresponsiveMs: Number.NaN });
  const ticket = harness.target("a").load.begin(stream);
  await harness.time.advanceAsync(32_000);
  expect(harness.record("a").wait).toEqual({ oldestMs: 32_000, unresponsiveMs: Number.NaN });
  expect(engineTroubles(harness.fleet.engines).size).toBe(0);
  await harness.time.advanceAsync(4_000);
  expect(unresponsiveMs(harness)).toBe(36_000);
  expect([...engineTroubles(harness.fleet.engines).values()]).toEqual([
    "unresponsive for 36 s: no output, oldest request waits 36 s",
  ]);
  expect(harness.meter.value("espalier_engine_unresponsive_seconds", "a")).toBeGreaterThan(32);
  expect(harness.meter.value("espalier_engine_oldest_wait_seconds", "a")).toBeGreaterThan(32);
  ticket.firstToken();
  await harness.time.advanceAsync(3_000);
  expect(harness.record("a").wait).toEqual({ oldestMs: Number.NaN, unresponsiveMs: Number.NaN });
  expect(harness.meter.value("espalier_engine_unresponsive_seconds", "a")).toBe(0);
});

test("an unresponsive engine gets trial requests only, until one is answered", async () => {
  const harness = await startHarness();
  const page = { "/metrics": pageOf(1, 5) };
  await harness.apply(harness.engine("a", {}, page), harness.engine("b", {}, page));
  await harness.time.advanceAsync(2_000);
  const { load } = harness.target("a");
  const stuck = [load.begin(stream), load.begin(stream)];
  await harness.time.advanceAsync(30_000);
  for (let second = 0; second < 10 && harness.target("a").usable; second++) await harness.time.advanceAsync(1_000);
  expect([harness.target("a").exclusion, harness.target("b").usable]).toEqual(["circuit_open", true]);
  expect(harness.record("a").breaker.reason).toBe("unresponsive: no output");
  // Trials come one at a time, further and further apart, as long as nothing comes from it.
  let trials = 0;
  for (let second = 0; second < 120; second++) {
    await harness.time.advanceAsync(1_000);
    if (harness.record("a").breaker.begin()) trials += 1;
  }
  expect(trials).toBeGreaterThan(1);
  expect(trials).toBeLessThan(12);
  // Without a trial nothing new is known: it waits for one.
  await harness.time.advanceAsync(120_000);
  const { state } = harness.record("a").breaker;
  await harness.time.advanceAsync(120_000);
  expect([state, harness.record("a").breaker.state]).toEqual(["half-open", "half-open"]);
  for (const ticket of stuck) ticket.firstToken();
  for (let second = 0; second < 120 && harness.record("a").breaker.state !== "closed"; second++) {
    await harness.time.advanceAsync(1_000);
    harness.record("a").breaker.begin()?.success();
  }
  expect([harness.record("a").breaker.state, harness.target("a").usable]).toEqual(["closed", true]);
});

test("its description has both ages", async () => {
  const harness = await startOne();
  expect(describeEngine(harness.record("a"))).toMatchObject({ oldest_wait_ms: null, unresponsive_ms: null });
  harness.target("a").load.begin(stream);
  await harness.time.advanceAsync(40_000);
  expect(describeEngine(harness.record("a"))).toMatchObject({ oldest_wait_ms: 40_000, unresponsive_ms: 40_000 });
});

describe("what is not unresponsive, however long a request waits", () => {
  test("a long prompt: 2 ms more for each of its tokens", async () => {
    const harness = await startOne();
    harness.target("a").load.begin({ ...stream, promptTokens: 100_000 });
    await harness.time.advanceAsync(229_000);
    expect(unresponsiveMs(harness)).toBeNaN();
    await harness.time.advanceAsync(2_000);
    expect(unresponsiveMs(harness)).toBe(231_000);
  });

  test("a queue behind other streams: their tokens, and their ends", async () => {
    const harness = await startOne();
    const { load } = harness.target("a");
    const other = load.begin(stream);
    other.firstToken();
    load.begin(stream);
    for (let at = 0; at < 12; at++) {
      other.progress(5);
      await harness.time.advanceAsync(20_000);
      expect(unresponsiveMs(harness)).toBeNaN();
    }
    expect(harness.record("a").wait.oldestMs).toBe(240_000);
  });

  test("a queue behind clients of others: its metrics change", async () => {
    const harness = await startOne();
    harness.target("a").load.begin(stream);
    for (let tokens = 6; tokens < 20; tokens++) {
      harness.setPage(pageOf(8, tokens));
      await harness.time.advanceAsync(20_000);
      expect(unresponsiveMs(harness)).toBeNaN();
    }
  });

  test("an answer that comes as a whole while the engine says that it runs something", async () => {
    const harness = await startOne();
    harness.target("a").load.begin({ ...stream, answer: "whole" });
    await harness.time.advanceAsync(300_000);
    expect(unresponsiveMs(harness)).toBeNaN();
    harness.setPage(pageOf(0, 5));
    await harness.time.advanceAsync(40_000);
    expect(unresponsiveMs(harness)).toBeGreaterThan(30_000);
  });

  test("what another engine is to compute first", async () => {
    const harness = await startOne();
    harness.target("a").load.begin({ promptTokens: 10, expectedOutputTokens: 10 });
    await harness.time.advanceAsync(300_000);
    expect(harness.record("a").wait).toEqual({ oldestMs: Number.NaN, unresponsiveMs: Number.NaN });
  });

  test("60 s where its metrics are not read", async () => {
    const harness = await startOne({ status: 404 });
    harness.target("a").load.begin(stream);
    await harness.time.advanceAsync(61_000);
    expect(unresponsiveMs(harness)).toBeNaN();
    await harness.time.advanceAsync(2_000);
    expect(unresponsiveMs(harness)).toBe(63_000);
  });
});
