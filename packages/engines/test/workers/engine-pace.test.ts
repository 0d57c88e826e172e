import { expect, test } from "vitest";
import { engineTroubles, findSlowEngines, keptTimes } from "../../src/workers/index.ts";
import { type Harness, modelsAnswer, startHarness } from "./fleet-harness.ts";

/**
 * Symptom: an engine four seconds slower than the others was named by no tool. Mechanism: no time had an engine beside it.
 */

async function startEngines(...models: readonly string[]): Promise<Harness> {
  const harness = await startHarness();
  await harness.apply(
    ...models.map((model, at) => harness.engine("abcdef"[at]!, {}, { "/v1/models": modelsAnswer(model) })),
  );
  return harness;
}

interface Served {
  readonly ttftMs: number;
  readonly promptTokens?: number;
  readonly msPerToken?: number;
  readonly count?: number;
}

/** Streams one after the other. */
async function serve(harness: Harness, id: string, served: Served): Promise<void> {
  const { ttftMs, promptTokens = 100, msPerToken = 10, count = 5 } = served;
  for (let at = 0; at < count; at++) {
    const ticket = harness.target(id).load.begin({ promptTokens, expectedOutputTokens: 11, answer: "stream" });
    await harness.time.advanceAsync(ttftMs);
    ticket.firstToken();
    await harness.time.advanceAsync(10 * msPerToken);
    ticket.end();
    ticket.streamed(11);
  }
}

const slow = (harness: Harness) => Object.fromEntries(findSlowEngines(harness.fleet.engines));

test("medians of the last minute, as metrics, and none after it", async () => {
  const harness = await startEngines("m");
  const { pace } = harness.record("a");
  expect(pace.ttftMs).toBeNaN();
  for (const ttftMs of [100, 900, 300]) await serve(harness, "a", { ttftMs, count: 1 });
  expect([pace.firstTokens, pace.ttftMs, pace.streams, pace.tpotMs]).toEqual([3, 300, 3, 10]);
  await harness.time.advanceAsync(5_000);
  const gauge = (name: string) => harness.meter.value(`espalier_engine_${name}_seconds`, "a");
  expect([gauge("time_to_first_token"), gauge("time_per_output_token")]).toEqual([0.3, 0.01]);
  await harness.time.advanceAsync(65_000);
  expect([pace.firstTokens, pace.ttftMs, pace.tpotMs]).toEqual([0, Number.NaN, Number.NaN]);
  expect(gauge("time_to_first_token")).toBeUndefined();
});

test(`the latest ${keptTimes} are kept, and one more replaces the oldest`, async () => {
  const harness = await startEngines("m");
  const { pace } = harness.record("a");
  await serve(harness, "a", { ttftMs: 100, count: keptTimes });
  expect([pace.firstTokens, pace.ttftMs]).toEqual([keptTimes, 100]);
  await serve(harness, "a", { ttftMs: 200, count: keptTimes / 2 + 1 });
  expect([pace.firstTokens, pace.ttftMs]).toEqual([keptTimes, 200]);
});

test("whole answers, and requests that another engine computes, are not measured", async () => {
  const harness = await startEngines("m");
  for (const answer of ["whole", undefined] as const) {
    const ticket = harness.target("a").load.begin({ promptTokens: 10, expectedOutputTokens: 10, answer });
    await harness.time.advanceAsync(500);
    ticket.firstToken();
    ticket.end();
    ticket.streamed(10);
  }
  expect([harness.record("a").pace.firstTokens, harness.record("a").pace.streams]).toEqual([0, 0]);
});

test("three times as late as the others and by more than a second: slow, and named in words", async () => {
  const harness = await startEngines("m", "m", "m");
  await serve(harness, "b", { ttftMs: 600 });
  await serve(harness, "c", { ttftMs: 700 });
  await serve(harness, "a", { ttftMs: 4_600 });
  expect(slow(harness)).toEqual({ a: { measure: "ttft", ms: 4_600, othersMs: 600 } });
  expect([...engineTroubles(harness.fleet.engines)]).toEqual([
    ["a", "slow: first tokens after 4.6 s (median), others 0.6 s"],
  ]);
});

test("three times as long per token: slow", async () => {
  const harness = await startEngines("m", "m");
  await serve(harness, "a", { ttftMs: 200, msPerToken: 120 });
  await serve(harness, "b", { ttftMs: 200, msPerToken: 30 });
  expect(slow(harness)).toEqual({ a: { measure: "tpot", ms: 120, othersMs: 30 } });
  expect([...engineTroubles(harness.fleet.engines).values()]).toEqual([
    "slow: 120 ms per output token (median), others 30 ms",
  ]);
});

test.each<{ what: string; a: Served; b: Served; models?: readonly string[] }>([
  { what: "longer prompts", a: { ttftMs: 4_600, promptTokens: 4_000 }, b: { ttftMs: 600 } },
  { what: "less than a second of difference", a: { ttftMs: 900 }, b: { ttftMs: 100 } },
  { what: "twice the time", a: { ttftMs: 4_000 }, b: { ttftMs: 2_000 } },
  { what: "four first tokens", a: { ttftMs: 4_600, count: 4 }, b: { ttftMs: 600 } },
  { what: "four first tokens of the others", a: { ttftMs: 4_600 }, b: { ttftMs: 600, count: 4 } },
  { what: "quick tokens", a: { ttftMs: 100, msPerToken: 90 }, b: { ttftMs: 100, msPerToken: 10 } },
  { what: "an engine of another model", a: { ttftMs: 4_600 }, b: { ttftMs: 600 }, models: ["m", "n"] },
])("$what: not slow", async ({ a, b, models = ["m", "m"] }) => {
  const harness = await startEngines(...models);
  await serve(harness, "b", b);
  await serve(harness, "a", a);
  expect(slow(harness)).toEqual({});
});

test("prompts ahead in its queue excuse an engine", async () => {
  const harness = await startEngines("m", "m");
  await serve(harness, "b", { ttftMs: 600 });
  const { load } = harness.target("a");
  const tickets = Array.from({ length: 6 }, () =>
    load.begin({ promptTokens: 2_000, expectedOutputTokens: 11, answer: "stream" }),
  );
  for (const ticket of tickets) {
    await harness.time.advanceAsync(2_000);
    ticket.firstToken();
  }
  expect(harness.record("a").pace.ttftMs).toBe(6_000);
  expect(slow(harness)).toEqual({});
});
