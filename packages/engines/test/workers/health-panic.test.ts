import { describe, expect, test } from "vitest";
import { type Harness, healthy, modelsAnswer, type ScriptedEngine, startHarness } from "./fleet-harness.ts";

const names = ["a", "b", "c", "d"];
const quick = { openMs: 5_000, maxOpenMs: 5_000, successesToClose: 2 };

interface Fleet {
  readonly harness: Harness;
  readonly engines: readonly ScriptedEngine[];
}

async function start(count: number, panicThreshold = 0.5): Promise<Fleet> {
  const harness = await startHarness({ health: { panicThreshold, timeoutMs: 1_000 }, breaker: quick });
  const engines = names.slice(0, count).map((name) => harness.engine(name));
  await harness.apply(...engines);
  return { harness, engines };
}

/** Has so many fail their checks until they are down. */
async function takeDown({ harness, engines }: Fleet, ...down: readonly string[]): Promise<void> {
  for (const { spec, paths } of engines) if (down.includes(spec.id)) paths["/health"] = "silent";
  await harness.time.advanceAsync(10_000);
  for (const name of down) expect(harness.record(name).state).toBe("down");
}

const usable = ({ fleet }: Harness, model = "m"): string[] =>
  fleet.pool(model).flatMap((target) => (target.usable ? [target.key] : []));

/** Sends requests that go well until the engine counts as well. */
function prove(harness: Harness, name: string): void {
  const { breaker } = harness.record(name);
  for (let trial = 0; breaker.state !== "closed"; trial++) {
    expect(trial).toBeLessThan(quick.successesToClose);
    breaker.begin()!.success();
  }
}

describe("engines that health checks find down", () => {
  test("get no requests while at least half of a model's are up, and are all tried with fewer", async () => {
    const fleet = await start(4);
    const { harness } = fleet;
    await takeDown(fleet, "a", "b");
    expect(usable(harness)).toEqual(["c", "d"]);
    await takeDown(fleet, "c");
    expect(usable(harness)).toEqual(names);
    expect(names.map((name) => harness.record(name).isTried)).toEqual([true, true, true, false]);
  });

  test("get one request at a time until enough have gone well, and their share then", async () => {
    const fleet = await start(3);
    const { harness } = fleet;
    await takeDown(fleet, "a", "b");
    const { breaker } = harness.record("a");
    expect(breaker).toMatchObject({ state: "half-open", reason: "panic mode: down engine gets requests" });
    const trial = breaker.begin()!;
    expect(usable(harness)).toEqual(["b", "c"]);
    trial.success();
    expect(usable(harness)).toEqual(["a", "b", "c"]);
    prove(harness, "a");
    breaker.begin();
    expect(usable(harness)).toEqual(["a", "b", "c"]);
  });

  test("are left alone as ever when a request finds the same: the cap on that counts engines that are up", async () => {
    const fleet = await start(3);
    const { harness } = fleet;
    await takeDown(fleet, "a", "b");
    for (const name of ["a", "b"]) harness.record(name).breaker.begin()!.failure("upstream_reset");
    expect(usable(harness)).toEqual(["c"]);
    expect(names.slice(0, 3).some((name) => harness.record(name).isOverruled)).toBe(false);
    await harness.time.advanceAsync(6_000);
    expect(usable(harness)).toEqual(["a", "b", "c"]);
  });

  test("fail again like any other once they had gone well", async () => {
    const fleet = await start(2);
    const { harness } = fleet;
    await takeDown(fleet, "a", "b");
    for (const name of ["a", "b"]) prove(harness, name);
    for (let failed = 0; failed < 4; failed++) harness.record("a").breaker.begin()!.failure("status 500");
    expect(usable(harness)).toEqual(["a", "b"]);
    harness.record("a").breaker.begin()!.failure("status 500");
    expect(usable(harness)).toEqual(["b"]);
  });

  test("answers to requests from before say nothing", async () => {
    const fleet = await start(2);
    const { harness } = fleet;
    const before = [1, 2].map(() => harness.record("a").breaker.begin()!);
    await takeDown(fleet, "a", "b");
    for (const permit of before) permit.success();
    expect(harness.record("a").breaker.state).toBe("half-open");
  });

  test("get no requests any more when enough others are up, and all when they are up themselves", async () => {
    const fleet = await start(4);
    const { harness, engines } = fleet;
    await takeDown(fleet, "a", "b", "c");
    engines[2]!.paths["/health"] = healthy;
    await harness.time.advanceAsync(8_000);
    expect([usable(harness), harness.record("a").isTried]).toEqual([["c", "d"], false]);
    for (const { paths } of engines) paths["/health"] = healthy;
    await harness.time.advanceAsync(8_000);
    expect(usable(harness)).toEqual(names);
  });

  test.each([
    [0, 4, 0],
    [0.25, 3, 1],
    [0.25, 4, 4],
    [0.75, 1, 3],
    [0.75, 2, 4],
    [1, 1, 4],
  ])("a threshold of %d, and %d of four down: %d usable", async (threshold, count, expected) => {
    const fleet = await start(4, threshold);
    await takeDown(fleet, ...names.slice(0, count));
    expect(usable(fleet.harness)).toHaveLength(expected);
  });
});

test("a model's only engine is believed to be down: there is nobody to compare it with, and the answer must be quick", async () => {
  const fleet = await start(1);
  await takeDown(fleet, "a");
  expect(usable(fleet.harness)).toEqual([]);
});

test("engines that were never up, and drained ones, neither count nor are tried", async () => {
  const fleet = await start(4);
  const { harness, engines } = fleet;
  const cold = ["x", "y", "z"].map((name) => harness.engine(name, { models: ["m"] }, { "/health": "refused" }));
  await harness.apply(...engines, ...cold);
  await takeDown(fleet, "a", "b");
  expect(usable(harness)).toEqual(["c", "d"]);
  harness.fleet.setDraining(engines[3]!.spec.id, true);
  expect(usable(harness)).toEqual(["a", "b", "c"]);
  harness.fleet.setDraining(engines[0]!.spec.id, true);
  expect([usable(harness), harness.record("a").isTried]).toEqual([["c"], false]);
});

test("an engine that is taken away while it is tried gets nothing more", async () => {
  const fleet = await start(3);
  const { harness, engines } = fleet;
  const target = harness.target("a");
  const ticket = target.load.begin({ promptTokens: 1, expectedOutputTokens: 1 });
  await takeDown(fleet, "a", "b");
  expect(target.usable).toBe(true);
  await harness.apply(...engines.slice(1));
  expect(target.usable).toBe(false);
  expect(usable(harness)).toEqual(["c"]);
  expect(harness.meter.value("espalier_engine_health_overruled", "a")).toBeUndefined();
  ticket.end();
});

test("each model is judged by its own engines; an engine of two is tried when either needs it", async () => {
  const harness = await startHarness({ health: { timeoutMs: 1_000 }, breaker: quick });
  const of = (name: string, ...models: string[]): ScriptedEngine =>
    harness.engine(name, {}, { "/v1/models": modelsAnswer(...models) });
  const engines = [of("a", "m", "n"), of("b", "m"), of("c", "m"), of("d", "n")];
  await harness.apply(...engines);
  await takeDown({ harness, engines }, "a");
  expect([usable(harness), usable(harness, "n")]).toEqual([["b", "c"], ["d"]]);
  await takeDown({ harness, engines }, "d");
  expect([usable(harness), usable(harness, "n")]).toEqual([
    ["a", "b", "c"],
    ["a", "d"],
  ]);
});

test("engines that no request has vouched for make no router ready, and those that one has do", async () => {
  const fleet = await start(2);
  const { harness } = fleet;
  await takeDown(fleet, "a", "b");
  expect(harness.fleet.usableCount()).toBe(0);
  prove(harness, "a");
  expect(harness.fleet.usableCount()).toBe(1);
});

test("a panic is told of when it begins and when it ends: in the log once, in the gauge, and in descriptions", async () => {
  const fleet = await start(3);
  const { harness, engines } = fleet;
  const gauge = (name: string): number | undefined => harness.meter.value("espalier_engine_health_overruled", name);
  const linesWith = (part: string) => harness.lines.filter(({ message }) => message.includes(part));
  expect(gauge("a")).toBe(0);
  await takeDown(fleet, "a", "b");
  expect([gauge("a"), gauge("b"), gauge("c")]).toEqual([1, 1, 0]);
  await harness.time.advanceAsync(30_000);
  expect(linesWith("too few engines")).toMatchObject([{ level: "warn", fields: { model: "m", up: 1, engines: 3 } }]);
  expect(linesWith("panic mode ended")).toEqual([]);
  engines[0]!.paths["/health"] = healthy;
  await harness.time.advanceAsync(8_000);
  expect([gauge("a"), gauge("b")]).toEqual([0, 0]);
  expect(linesWith("panic mode ended")).toMatchObject([{ level: "info", fields: { model: "m" } }]);
});
