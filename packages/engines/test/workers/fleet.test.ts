import { asEngineId, asTargetIndex, createSeededRandom, type EngineSpec } from "@espalier/core";
import { expect, test } from "vitest";
import { type LoadTicket, maxEngines, rankNumber } from "../../src/workers/index.ts";
import { createHarness, type Harness, makeSpec, modelsAnswer, startHarness } from "./fleet-harness.ts";

const size = { promptTokens: 10, expectedOutputTokens: 0 };
const idsOf = (harness: Harness): string[] => harness.fleet.engines.map(({ id }) => id);
const keysOf = (harness: Harness, model = "m"): string[] => harness.fleet.pool(model).map(({ key }) => key);
const named = (id: string, changes: Partial<EngineSpec> = {}): EngineSpec =>
  makeSpec(id, { models: ["m"], ...changes });

test("the report says what was added, changed and removed", () => {
  const { fleet } = createHarness();
  expect(fleet.apply([named("a"), named("b"), named("c")])).toEqual({
    added: ["a", "b", "c"],
    changed: [],
    removed: [],
    refused: [],
  });
  expect(fleet.apply([named("a"), named("b"), named("c")])).toEqual({
    added: [],
    changed: [],
    removed: [],
    refused: [],
  });
  expect(fleet.apply([named("d"), named("c", { weight: 2 }), named("a")])).toEqual({
    added: ["d"],
    changed: ["c"],
    removed: ["b"],
    refused: [],
  });
  expect(fleet.apply([])).toEqual({ added: [], changed: [], removed: ["a", "c", "d"], refused: [] });
});

test.each<[string, Partial<EngineSpec>]>([
  ["role", { role: "prefill" }],
  ["protocol of transfers", { kvTransfer: { protocol: "nixl", host: undefined, port: undefined } }],
  ["weight", { weight: 0.5 }],
  ["region", { region: "eu" }],
  ["label's value", { labels: { zone: "b" } }],
  ["label more", { labels: { zone: "a", rack: "1" } }],
  ["label less", { labels: {} }],
  ["label of another name", { labels: { rack: "a" } }],
  ["model", { models: ["other"] }],
  ["model more", { models: ["m", "n"] }],
  ["place of KV events", { kvEvents: { endpoint: "tcp://a:5557", replay: undefined, topic: "" } }],
])("another %s is a change in place: target, load and state stay", async (_, changes) => {
  const harness = await startHarness();
  const spec = named("a", { labels: { zone: "a" } });
  harness.fleet.apply([spec]);
  const engine = harness.engine("a", spec);
  await harness.time.advanceAsync(3_000);
  const record = harness.record("a");
  const target = harness.target("a");
  const ticket = target.load.begin(size);
  expect(record.state).toBe("up");
  expect(harness.fleet.apply([{ ...spec, ...changes }]).changed).toEqual(["a"]);
  expect(harness.record("a")).toBe(record);
  expect(harness.target("a")).toBe(target);
  const { role, weight, labels } = { ...spec, ...changes };
  expect(record).toMatchObject({ state: "up", role, weight, labels });
  expect(record.labels).toEqual(labels);
  expect(record.models!.map(({ id }) => id)).toEqual(changes.models ?? ["m"]);
  expect(target.load.inFlight).toBe(1);
  ticket.end();
  expect(engine.times("/health").length).toBeGreaterThan(0);
});

test("engines stand in the order they were first seen, whatever order discovery gives them", () => {
  const harness = createHarness();
  harness.fleet.apply([named("c"), named("a")]);
  harness.fleet.apply([named("a"), named("b"), named("c")]);
  expect(idsOf(harness)).toEqual(["c", "a", "b"]);
  expect(keysOf(harness)).toEqual(["c", "a", "b"]);
  expect(harness.fleet.engines).toBe(harness.fleet.engines);
});

test("a pool is the same array until engines or their models change", async () => {
  const harness = await startHarness();
  const a = harness.engine("a");
  const b = harness.engine("b");
  await harness.apply(a, b);
  const pool = harness.fleet.pool("m");
  const models = harness.fleet.models();
  a.paths["/health"] = "refused";
  harness.fleet.setDraining(b.spec.id, true);
  for (let i = 0; i < 5; i++) harness.record("b").breaker.begin()!.failure("test");
  await harness.time.advanceAsync(20_000);
  harness.fleet.apply([{ ...a.spec, weight: 3 }, b.spec]);
  expect(harness.record("a").state).toBe("down");
  expect(harness.fleet.pool("m")).toBe(pool);
  expect(harness.fleet.models()).toBe(models);
  expect(pool.map(({ key, usable }) => [key, usable])).toEqual([
    ["a", false],
    ["b", false],
  ]);
  harness.fleet.apply([a.spec]);
  expect(harness.fleet.pool("m")).not.toBe(pool);
  expect(keysOf(harness)).toEqual(["a"]);
  expect(pool).toHaveLength(2);
});

test("an idle engine is gone as soon as it is removed", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  const reported: string[] = [];
  harness.fleet.onChange((change, { id, state }) => reported.push(`${change} ${id} ${state}`));
  harness.fleet.apply([]);
  expect(reported).toEqual(["state a removed", "gone a removed"]);
  expect(idsOf(harness)).toEqual([]);
  expect(harness.fleet.engine(engine.spec.id)).toBeUndefined();
  const seen = engine.seen.length;
  await harness.time.advanceAsync(60_000);
  expect(engine.seen).toHaveLength(seen);
});

test("a removed engine lingers until its last request ends, out of every pool", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a"));
  const target = harness.target("a");
  const tickets = [target.load.begin(size), target.load.begin(size)];
  harness.fleet.apply([]);
  expect(harness.record("a")).toMatchObject({ state: "removed", stateReason: "gone from discovery" });
  expect(target.usable).toBe(false);
  expect(keysOf(harness)).toEqual([]);
  expect(harness.fleet.models()).toEqual([]);
  expect(harness.fleet.usableCount()).toBe(0);
  expect(harness.fleet.target(target.index)).toBe(target);
  expect(harness.fleet.setDraining(asEngineId("a"), true)).toBe(false);
  tickets[0]!.firstToken();
  tickets[0]!.end();
  expect(idsOf(harness)).toEqual(["a"]);
  tickets[1]!.end();
  expect(idsOf(harness)).toEqual([]);
  expect(harness.fleet.target(target.index)).toBeUndefined();
  expect(harness.meter.names).toEqual([]);
});

test("a request that begins on an engine already gone is counted nowhere and harms nothing", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a"));
  const target = harness.target("a");
  harness.fleet.apply([]);
  const reported: string[] = [];
  harness.fleet.onChange((change) => reported.push(change));
  target.load.begin(size).end();
  expect(reported).toEqual([]);
  expect(harness.meter.names).toEqual([]);
});

test("an engine that comes back before it is gone is the same one, and starts over", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  const target = harness.target("a");
  const ticket = target.load.begin(size);
  harness.fleet.apply([]);
  await harness.time.advanceAsync(1_000);
  const report = harness.fleet.apply([{ ...engine.spec, weight: 7 }]);
  expect(report.added).toEqual(["a"]);
  expect(harness.record("a")).toMatchObject({ state: "starting", weight: 7 });
  expect(harness.target("a")).toBe(target);
  await harness.time.advanceAsync(0);
  expect(target.usable).toBe(true);
  expect(keysOf(harness)).toEqual(["a"]);
  expect(harness.meter.value("espalier_engine_requests_in_flight", "a")).toBe(1);
  expect(harness.meter.value("espalier_engine_up", "a")).toBe(1);
  ticket.end();
  expect(harness.meter.value("espalier_engine_requests_in_flight", "a")).toBe(0);
  expect(idsOf(harness)).toEqual(["a"]);
});

test("an engine that came back and is removed again lingers and goes like any other", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  const target = harness.target("a");
  const ticket = target.load.begin(size);
  for (let round = 0; round < 3; round++) {
    harness.fleet.apply([]);
    expect(keysOf(harness)).toEqual([]);
    harness.fleet.apply([engine.spec]);
    expect(keysOf(harness)).toEqual(["a"]);
  }
  ticket.end();
  expect(idsOf(harness)).toEqual(["a"]);
  harness.fleet.apply([]);
  expect(idsOf(harness)).toEqual([]);
  expect(harness.meter.names).toEqual([]);
});

test("an engine that comes back at another address is not the one that lingers", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  const old = harness.target("a");
  const ticket = old.load.begin(size);
  harness.fleet.apply([]);
  const other = harness.engine("a", { url: "http://other:1" });
  await harness.apply(other);
  expect(harness.target("a")).not.toBe(old);
  expect(old.engine.state).toBe("removed");
  harness.fleet.apply([engine.spec]);
  expect(harness.target("a")).toBe(old);
  ticket.end();
  expect(idsOf(harness)).toEqual(["a"]);
});

test("another address is another engine under the same id", async () => {
  const harness = await startHarness();
  const old = harness.engine("a");
  await harness.apply(old);
  const oldTarget = harness.target("a");
  const ticket = oldTarget.load.begin(size);
  harness.fleet.setDraining(old.spec.id, true);
  const moved = harness.engine("a", { url: "http://elsewhere:1" }, { "/v1/models": modelsAnswer("n") });
  expect(harness.fleet.apply([moved.spec])).toMatchObject({ added: [], changed: ["a"], removed: [] });
  await harness.time.advanceAsync(0);
  const target = harness.target("a");
  expect(target).not.toBe(oldTarget);
  expect(target.index).not.toBe(oldTarget.index);
  expect(harness.record("a")).toMatchObject({ url: "http://elsewhere:1", state: "up", draining: true });
  expect(target.load.inFlight).toBe(0);
  expect(oldTarget.engine).toMatchObject({ state: "removed", stateReason: "moved to http://elsewhere:1" });
  expect(idsOf(harness)).toEqual(["a", "a"]);
  expect(keysOf(harness, "n")).toEqual(["a"]);
  expect(keysOf(harness, "m")).toEqual([]);
  ticket.end();
  expect(idsOf(harness)).toEqual(["a"]);
  expect(harness.meter.value("espalier_engine_requests_in_flight", "a")).toBe(0);
  expect(harness.meter.value("espalier_engine_up", "a")).toBe(1);
});

test("target indices are dense, and reused only once their engine is gone", async () => {
  const harness = createHarness();
  harness.fleet.apply([named("a"), named("b"), named("c")]);
  const indexOf = (id: string): number => harness.target(id).index;
  expect(["a", "b", "c"].map(indexOf)).toEqual([0, 1, 2]);
  const ticket = harness.target("b").load.begin(size);
  harness.fleet.apply([named("a"), named("c"), named("d")]);
  expect(indexOf("d")).toBe(3);
  ticket.end();
  harness.fleet.apply([named("a"), named("c"), named("d"), named("e")]);
  expect(indexOf("e")).toBe(1);
  harness.fleet.apply([named("f")]);
  expect(indexOf("f")).toBe(0);
  for (const { targets } of harness.fleet.engines) {
    for (const target of targets) expect(harness.fleet.target(target.index)).toBe(target);
  }
  expect(harness.fleet.target(asTargetIndex(9))).toBeUndefined();
});

test("engines beyond the limit are refused, and known ones can always be described anew", () => {
  const { fleet } = createHarness();
  const specs = Array.from({ length: maxEngines + 1 }, (_, number) => named(`e${number}`));
  const report = fleet.apply(specs);
  expect(report.added).toHaveLength(maxEngines);
  expect(report.refused).toEqual([{ id: `e${maxEngines}`, reason: "more than 4096 engines" }]);
  expect(fleet.engines).toHaveLength(maxEngines);
  expect(fleet.pool("m")).toHaveLength(maxEngines);
  const next = fleet.apply([...specs.slice(1)]);
  expect(next).toMatchObject({ added: [`e${maxEngines}`], removed: ["e0"], refused: [] });
  expect(fleet.target(asTargetIndex(maxEngines))).toBeUndefined();
});

test("of two engines with one id the first counts, which is said", () => {
  const harness = createHarness();
  const report = harness.fleet.apply([named("a"), named("a", { url: "http://other:1" })]);
  expect(report).toMatchObject({ added: ["a"], refused: [{ id: "a", reason: "another engine has this id" }] });
  expect(harness.record("a").url).toBe("http://a:8000");
  expect(harness.lines).toContainEqual({
    level: "error",
    message: "engine refused",
    fields: { engine: "a", reason: "another engine has this id" },
  });
});

// Its ranks were counted, and a fleet of two engines had three usable ones.
test("an engine of several ranks counts as one usable engine", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a", { ranks: 2 }), harness.engine("b"));
  expect(harness.fleet.pool("m")).toHaveLength(3);
  expect(harness.fleet.usableCount()).toBe(2);
});

test("a draining engine is up and unusable, until it is taken back", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine, harness.engine("b"));
  const reported: string[] = [];
  harness.fleet.onChange((change) => reported.push(change));
  expect(harness.fleet.setDraining(engine.spec.id, true)).toBe(true);
  expect(harness.fleet.setDraining(engine.spec.id, true)).toBe(true);
  expect(harness.record("a")).toMatchObject({ state: "up", draining: true });
  expect(harness.target("a").usable).toBe(false);
  expect(harness.fleet.usableCount()).toBe(1);
  expect(harness.fleet.setDraining(engine.spec.id, false)).toBe(true);
  expect(harness.target("a").usable).toBe(true);
  expect(reported).toEqual(["draining", "draining"]);
  expect(harness.fleet.setDraining(asEngineId("nobody"), true)).toBe(false);
});

test("listeners hear of everything in order, until they unsubscribe", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  const reported: string[] = [];
  const unsubscribe = harness.fleet.onChange((change) => reported.push(change));
  await harness.apply(engine);
  harness.fleet.apply([{ ...engine.spec, weight: 2 }]);
  expect(reported).toEqual(["added", "state", "models", "spec"]);
  unsubscribe();
  unsubscribe();
  harness.fleet.apply([]);
  expect(reported).toHaveLength(4);
});

test("a listener sees the fleet as it is after the change", async () => {
  const harness = await startHarness();
  const seen: string[] = [];
  harness.fleet.onChange((change) =>
    seen.push(`${change} ${keysOf(harness).join(",")} ${harness.fleet.usableCount()}`),
  );
  await harness.apply(harness.engine("a", { models: ["m"] }));
  harness.fleet.apply([]);
  expect(seen).toEqual(["added  0", "models a 0", "state a 1", "state  0", "gone  0"]);
});

test("a listener that throws is logged and stops nobody", async () => {
  const harness = await startHarness();
  const reported: string[] = [];
  harness.fleet.onChange(() => {
    throw new Error("broken listener");
  });
  harness.fleet.onChange((change) => reported.push(change));
  await harness.apply(harness.engine("a"));
  expect(reported).toEqual(["added", "state", "models"]);
  expect(harness.record("a").state).toBe("up");
  expect(harness.lines.filter(({ message }) => message === "a listener of the fleet failed")).toHaveLength(3);
});

test("random churn with requests in flight ends with nothing left", async () => {
  for (let seed = 1; seed <= 10; seed++) {
    const random = createSeededRandom(seed);
    const harness = await startHarness({}, seed);
    const scripted = Array.from({ length: 8 }, (_, number) => harness.engine(`e${number}`));
    const tickets: LoadTicket[] = [];
    for (let round = 0; round < 60; round++) {
      harness.fleet.apply(scripted.filter(() => random.float() < 0.6).map(({ spec }) => spec));
      await harness.time.advanceAsync(random.float() * 500);
      const pool = harness.fleet.pool("m");
      for (const target of pool) {
        expect(target.engine.state).not.toBe("removed");
        if (target.usable) tickets.push(target.load.begin(size));
      }
      for (let i = random.integer(12); i > 0; i--) tickets.splice(random.integer(tickets.length || 1), 1)[0]?.end();
      const indices = harness.fleet.engines.flatMap(({ targets }) => targets.map(({ index }) => index));
      expect(new Set(indices).size, `seed ${seed}`).toBe(indices.length);
      const inFlight = harness.fleet.engines.reduce((sum, { targets }) => sum + targets[0]!.load.inFlight, 0);
      expect(inFlight, `seed ${seed}`).toBe(tickets.length);
    }
    harness.fleet.apply([]);
    expect(harness.fleet.engines.every(({ state }) => state === "removed")).toBe(true);
    for (const ticket of tickets) ticket.end();
    await harness.time.advanceAsync(60_000);
    expect(harness.fleet.engines).toEqual([]);
    expect(harness.meter.names).toEqual([]);
    expect(harness.time.pendingCount).toBe(0);
  }
});

test("an engine has a target for each rank, and other ranks make it another engine", async () => {
  const harness = await startHarness();
  const spec = named("a", { ranks: 3 });
  harness.fleet.apply([named("before"), spec, named("after")]);
  const ranks = harness.record("a").targets;
  expect(ranks.map(({ key, rank, index }) => [key, rank, index])).toEqual([
    ["a", 0, 1],
    ["a#1", 1, 2],
    ["a#2", 2, 3],
  ]);
  expect(keysOf(harness)).toEqual(["before", "a", "a#1", "a#2", "after"]);
  expect(harness.fleet.apply([named("before"), named("a"), named("after")]).changed).toEqual(["a"]);
  expect(keysOf(harness)).toEqual(["before", "after", "a"]);
  expect(harness.fleet.target(asTargetIndex(2))).toBeUndefined();
  harness.fleet.apply([named("before"), named("a"), named("after"), named("late", { ranks: 2 })]);
  expect(harness.record("late").targets.map(({ index }) => index)).toEqual([2, 3]);
});

/** The ranks 4 to 7 of a second node were asked for as 0 to 3, which it refuses, and none of its numbers was read. */
test("ranks have the engine's own numbers: learned from its metrics, or of the entry", async () => {
  const harness = await startHarness();
  const page = [4, 5].map((rank) => `vllm:num_requests_running{engine="${rank}"} ${rank}\n`).join("");
  const paths = { "/metrics": { status: 200, body: page } };
  await harness.apply(harness.engine("a", { ranks: 2 }, paths), harness.engine("b", { ranks: 2, firstRank: 5 }, paths));
  await harness.time.advanceAsync(3_000);
  const [a, b] = [harness.record("a"), harness.record("b")];
  expect(a.targets.map(rankNumber)).toEqual([4, 5]);
  expect(a.targets.map(({ key, signals }) => [key, signals.running])).toEqual([
    ["a", 4],
    ["a#1", 5],
  ]);
  expect(b.targets.map(rankNumber)).toEqual([5, 6]);
  const warnings = harness.lines.filter(({ message }) => message.includes("metrics differ from its configuration"));
  expect(warnings).toHaveLength(1);
});

test("numbers below the first index are left to others, also when an engine is replaced", () => {
  const { fleet } = createHarness({}, 1, undefined, 3);
  fleet.apply([named("a", { ranks: 2 }), named("b")]);
  const indices = () => fleet.pool("m").map(({ key, index }) => `${key} ${index}`);
  expect(indices()).toEqual(["a 3", "a#1 4", "b 5"]);
  fleet.apply([named("b"), named("c")]);
  expect(indices()).toEqual(["b 5", "c 3"]);
  expect(fleet.target(asTargetIndex(0))).toBeUndefined();
});
