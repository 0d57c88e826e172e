import { describe, expect, test } from "vitest";
import { type Harness, modelsAnswer, type ScriptedEngine, startHarness } from "./fleet-harness.ts";

const options = { breaker: { consecutiveFailures: 1, openMs: 5_000, maxOpenMs: 5_000, successesToClose: 1 } };
const names = ["a", "b", "c", "d", "e"];

async function start(count: number, maxEjectedShare = 0.5): Promise<{ harness: Harness; engines: ScriptedEngine[] }> {
  const harness = await startHarness({ breaker: { ...options.breaker, maxEjectedShare } });
  const engines = names.slice(0, count).map((name) => harness.engine(name));
  await harness.apply(...engines);
  return { harness, engines };
}

const fail = ({ record }: Harness, ...failing: readonly string[]): void => {
  for (const name of failing) record(name).breaker.begin()?.failure("status 500");
};
const usable = ({ fleet }: Harness, model = "m"): string[] =>
  fleet.pool(model).flatMap((target) => (target.usable ? [target.key] : []));

describe("engines whose breakers are open", () => {
  test("are left alone up to half of a model's, and beyond that all are used again", async () => {
    const { harness } = await start(4);
    fail(harness, "a");
    expect(usable(harness)).toEqual(["b", "c", "d"]);
    fail(harness, "b");
    expect(usable(harness)).toEqual(["c", "d"]);
    fail(harness, "c");
    expect(usable(harness)).toEqual(["a", "b", "c", "d"]);
    expect(harness.record("a").isOverruled).toBe(true);
    expect(harness.record("d").isOverruled).toBe(false);
    expect(harness.lines.filter(({ message }) => message.includes("breaker ignored"))).toHaveLength(3);
  });

  test("count again as soon as enough of them have closed", async () => {
    const { harness } = await start(4);
    fail(harness, "a", "b", "c");
    await harness.time.advanceAsync(6_000);
    expect(harness.record("a").breaker.state).toBe("half-open");
    expect(usable(harness)).toEqual(["a", "b", "c", "d"]);
    harness.record("a").breaker.begin()?.success();
    expect(harness.record("a").breaker.state).toBe("closed");
    const trial = harness.record("b").breaker.begin();
    expect(usable(harness)).toEqual(["a", "c", "d"]);
    trial?.success();
    harness.record("c").breaker.begin()?.success();
    expect([usable(harness), harness.record("c").isOverruled]).toEqual([["a", "b", "c", "d"], false]);
  });

  test("say nothing where a model has one engine: there is nobody to take its requests", async () => {
    const { harness } = await start(1);
    fail(harness, "a");
    expect(usable(harness)).toEqual([]);
  });

  test.each([
    [0, 1, 3],
    [0.25, 1, 3],
    [0.5, 1, 2],
    [0.5, 2, 3],
    [1, 3, 0],
  ])("a share of %d, and %d of three failed: %d usable", async (share, failed, count) => {
    const { harness } = await start(3, share);
    fail(harness, ...names.slice(0, failed));
    expect(usable(harness)).toHaveLength(count);
  });
});

test("engines that are down or drained are never used, and do not count among those that could be", async () => {
  const { harness, engines } = await start(5);
  engines[0]!.paths["/health"] = "refused";
  await harness.time.advanceAsync(10_000);
  harness.fleet.setDraining(engines[1]!.spec.id, true);
  fail(harness, "c");
  expect(usable(harness)).toEqual(["d", "e"]);
  fail(harness, "d");
  expect(usable(harness)).toEqual(["c", "d", "e"]);
  expect(harness.record("a").state).toBe("down");
  // One more is healthy: two of four are few enough.
  harness.fleet.setDraining(engines[1]!.spec.id, false);
  expect(usable(harness)).toEqual(["b", "e"]);
});

test("each model is judged by its own engines; an engine of two is used when either needs it", async () => {
  const harness = await startHarness(options);
  const only = (name: string, ...models: string[]): ScriptedEngine =>
    harness.engine(name, {}, { "/v1/models": modelsAnswer(...models) });
  await harness.apply(only("a", "m", "n"), only("b", "m"), only("c", "m"), only("d", "m"), only("e", "n"));
  fail(harness, "a");
  expect([usable(harness), usable(harness, "n")]).toEqual([["b", "c", "d"], ["e"]]);
  fail(harness, "e");
  expect([usable(harness), usable(harness, "n")]).toEqual([
    ["a", "b", "c", "d"],
    ["a", "e"],
  ]);
});

test("an engine that leaves while its breaker does not count takes no other's with it", async () => {
  const { harness, engines } = await start(3);
  fail(harness, "a", "b");
  expect(usable(harness)).toEqual(["a", "b", "c"]);
  await harness.apply(...engines.slice(1));
  expect(usable(harness)).toEqual(["c"]);
  await harness.apply(...engines);
  expect(usable(harness)).toContain("c");
});

test("the gauge and the description say which breakers do not count", async () => {
  const { harness } = await start(3);
  const gauge = (engine: string): number | undefined =>
    harness.meter.value("espalier_engine_breaker_overruled", engine);
  expect(gauge("a")).toBe(0);
  fail(harness, "a", "b");
  expect([gauge("a"), gauge("c")]).toEqual([1, 0]);
});
