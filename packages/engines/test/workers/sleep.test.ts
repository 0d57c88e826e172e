import { expect, test } from "vitest";
import { areAsleep, describeEngine } from "../../src/workers/index.ts";
import { type Answer, startHarness } from "./fleet-harness.ts";

/*
 * vLLM in sleep mode answers its health check with 200, and accepts requests that it only answers once it is awake.
 * Routers that look at health alone send it its share. Its metrics say that it sleeps.
 */

/** A page of an engine whose ranks are awake or not. */
function sleepPage(...awake: readonly boolean[]): Answer {
  const lines = awake.flatMap((isAwake, rank) => [
    `vllm:num_requests_running{engine="${rank}"} 0`,
    `vllm:engine_sleep_state{engine="${rank}",sleep_state="awake"} ${isAwake ? 1 : 0}`,
    `vllm:engine_sleep_state{engine="${rank}",sleep_state="weights_offloaded"} ${isAwake ? 0 : 1}`,
    `vllm:engine_sleep_state{engine="${rank}",sleep_state="discard_all"} 0`,
  ]);
  return { status: 200, body: `${lines.join("\n")}\n` };
}

test("an engine is unusable while its metrics say that it sleeps, and usable again once they say that it is awake", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": sleepPage(true) });
  const changes: string[] = [];
  harness.fleet.onChange((change) => changes.push(change));
  await harness.apply(engine);
  expect(harness.target("a")).toMatchObject({ exclusion: undefined, usable: true });
  expect(harness.meter.value("espalier_engine_asleep_ranks", "a")).toBe(0);
  engine.paths["/metrics"] = sleepPage(false);
  await harness.time.advanceAsync(1_200);
  expect(harness.record("a").state).toBe("up");
  expect(harness.target("a")).toMatchObject({ exclusion: "asleep", usable: false });
  expect(describeEngine(harness.record("a")).targets[0]).toMatchObject({ asleep: true, usable: false });
  expect(harness.meter.value("espalier_engine_asleep_ranks", "a")).toBe(1);
  expect(harness.fleet.usableCount()).toBe(0);
  engine.paths["/metrics"] = sleepPage(true);
  await harness.time.advanceAsync(1_200);
  expect(harness.target("a")).toMatchObject({ exclusion: undefined, usable: true });
  expect(harness.meter.value("espalier_engine_asleep_ranks", "a")).toBe(0);
  expect(changes.filter((change) => change === "asleep")).toHaveLength(2);
});

test("ranks sleep one by one", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a", { ranks: 3 }, { "/metrics": sleepPage(true, false, true) }));
  expect(harness.record("a").targets.map(({ usable }) => usable)).toEqual([true, false, true]);
  expect(harness.meter.value("espalier_engine_asleep_ranks", "a")).toBe(1);
});

test("an engine whose ranks are one target is asleep when all of them are", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": sleepPage(false, true) });
  await harness.apply(engine);
  expect(harness.target("a").exclusion).toBeUndefined();
  engine.paths["/metrics"] = sleepPage(false, false);
  await harness.time.advanceAsync(1_200);
  expect(harness.target("a").exclusion).toBe("asleep");
});

test.each<[string, Answer]>([
  ["say nothing of sleep", { status: 200, body: "vllm:num_requests_running 0\n" }],
  ["are gone", { status: 404 }],
  ["do not come", "silent"],
])("an engine whose metrics %s any more is taken for awake", async (_, answer) => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": sleepPage(false) });
  await harness.apply(engine);
  expect(harness.target("a").usable).toBe(false);
  engine.paths["/metrics"] = answer;
  await harness.time.advanceAsync(20_000);
  expect(harness.target("a").usable).toBe(true);
});

test("panic mode wakes nobody: an engine asleep is not tried, and does not count as one that could take requests", async () => {
  const harness = await startHarness();
  const asleep = ["a", "b"].map((id) => harness.engine(id, {}, { "/metrics": sleepPage(false) }));
  const failing = ["c", "d"].map((id) => harness.engine(id));
  await harness.apply(...asleep, ...failing);
  for (const { paths } of failing) paths["/health"] = { status: 500 };
  await harness.time.advanceAsync(30_000);
  const seen = ["a", "b", "c", "d"].map((id) => harness.record(id));
  expect(seen.map(({ state }) => state)).toEqual(["up", "up", "down", "down"]);
  expect(seen.map(({ isTried }) => isTried)).toEqual([false, false, true, true]);
  expect(seen.map(({ targets }) => targets[0]!.usable)).toEqual([false, false, true, true]);
});

test("sleep is why nothing is usable when all engines that are up and not drained are asleep", async () => {
  const harness = await startHarness();
  const down = harness.engine("down", {}, { "/health": { status: 500 } });
  const asleep = harness.engine("asleep", {}, { "/metrics": sleepPage(false) });
  const awake = harness.engine("awake", {}, { "/metrics": sleepPage(true) });
  await harness.apply(down, asleep, awake);
  const all = () => harness.fleet.engines.flatMap(({ targets }) => targets);
  expect(areAsleep(all())).toBe(false);
  harness.fleet.setDraining(awake.spec.id, true);
  expect(areAsleep(all())).toBe(true);
  harness.fleet.setDraining(asleep.spec.id, true);
  expect(areAsleep(all())).toBe(false);
});
