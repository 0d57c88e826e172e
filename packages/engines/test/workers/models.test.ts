import { createSeededRandom } from "@espalier/core";
import { createRecordingLogger, createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createFleet, type ModelEntry, maxModelNameLength, maxModelsPerEngine } from "../../src/workers/index.ts";
import { type Answer, type Harness, makeSpec, modelsAnswer, startHarness } from "./fleet-harness.ts";

const listAnswer = (...data: readonly unknown[]): Answer => ({
  status: 200,
  body: JSON.stringify({ object: "list", data }),
});

const idsOf = (harness: Harness): string[] => harness.fleet.models().map(({ id }) => id);
const keysOf = (harness: Harness, model: string): string[] => harness.fleet.pool(model).map(({ key }) => key);

test("the models of an engine are those it tells when it comes up", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/v1/models": modelsAnswer("beta", "alpha") });
  harness.fleet.apply([engine.spec]);
  expect(harness.record("a").models).toBeUndefined();
  expect(harness.fleet.models()).toEqual([]);
  await harness.time.advanceAsync(0);
  expect(idsOf(harness)).toEqual(["alpha", "beta"]);
  expect(keysOf(harness, "beta")).toEqual(["a"]);
  expect(keysOf(harness, "gamma")).toEqual([]);
  expect(engine.seen.find(({ path }) => path === "/v1/models")).toMatchObject({
    timeoutMs: 2_000,
    maxBytes: 1_048_576,
  });
});

test("an engine is of no use before its models are known", async () => {
  const harness = await startHarness();
  await harness.apply(
    harness.engine("a", {}, { "/v1/models": { ...(modelsAnswer("m") as object), afterMs: 100 } as Answer }),
  );
  expect(harness.record("a").state).toBe("up");
  expect(harness.fleet.usableCount()).toBe(0);
  await harness.time.advanceAsync(100);
  expect(harness.fleet.usableCount()).toBe(1);
});

test("the fleet's list merges what its engines tell", async () => {
  const harness = await startHarness();
  const shared = { id: "shared", object: "model" };
  const a = harness.engine(
    "a",
    {},
    {
      "/v1/models": listAnswer(
        { ...shared, created: 500, owned_by: "vllm", max_model_len: 8192 },
        { id: "adapter", created: 600, owned_by: "vllm", parent: "shared" },
      ),
    },
  );
  const b = harness.engine(
    "b",
    {},
    {
      "/v1/models": listAnswer({ ...shared, created: 400, owned_by: "sglang", max_model_len: 4096 }),
    },
  );
  const c = harness.engine("c", {}, { "/v1/models": listAnswer({ ...shared, created: 700, owned_by: "sglang" }) });
  await harness.apply(a, b, c);
  const expected: ModelEntry[] = [
    { id: "adapter", engines: [a.spec.id], created: 600, owned_by: "vllm", parent: "shared" },
    {
      id: "shared",
      engines: [a.spec.id, b.spec.id, c.spec.id],
      created: 400,
      max_model_len: 4096,
      owned_by: "vllm",
    },
  ];
  expect(harness.fleet.models()).toEqual(expected);
  expect(keysOf(harness, "shared")).toEqual(["a", "b", "c"]);
});

test("what is missing or of the wrong kind in an entry is filled in", async () => {
  const harness = await startHarness();
  await harness.apply(
    harness.engine(
      "a",
      {},
      {
        "/v1/models": listAnswer(
          { id: "bare" },
          { id: "odd", created: "yesterday", owned_by: 7, max_model_len: -1 },
          { id: "fraction", created: 1.5, max_model_len: 10.5 },
        ),
      },
    ),
  );
  const filled = { engines: ["a"], created: 1_700_000_000, owned_by: "unknown" };
  expect(harness.fleet.models()).toEqual([
    { id: "bare", ...filled },
    { id: "fraction", ...filled },
    { id: "odd", ...filled },
  ]);
});

test("a list is fetched again every half minute, and a change takes effect", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  const reported: string[] = [];
  harness.fleet.onChange((change) => reported.push(change));
  await harness.time.advanceAsync(29_000);
  expect(engine.times("/v1/models")).toEqual([0]);
  engine.paths["/v1/models"] = modelsAnswer("m", "late");
  await harness.time.advanceAsync(1_000);
  expect(engine.times("/v1/models")).toEqual([0, 30_000]);
  expect(idsOf(harness)).toEqual(["late", "m"]);
  expect(reported).toEqual(["models"]);
  engine.paths["/v1/models"] = modelsAnswer();
  await harness.time.advanceAsync(30_000);
  expect(idsOf(harness)).toEqual([]);
  expect(harness.record("a").models).toEqual([]);
});

test("vLLM stamps every answer anew, which is no change", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/v1/models": listAnswer({ id: "m", created: 100 }) });
  await harness.apply(engine);
  const pool = harness.fleet.pool("m");
  const models = harness.fleet.models();
  engine.paths["/v1/models"] = listAnswer({ id: "m", created: 130 });
  await harness.time.advanceAsync(30_000);
  expect(harness.fleet.pool("m")).toBe(pool);
  expect(harness.fleet.models()).toBe(models);
  engine.paths["/v1/models"] = listAnswer({ id: "m", created: 160 }, { id: "n", created: 160 });
  await harness.time.advanceAsync(30_000);
  expect(harness.fleet.models().map(({ id, created }) => [id, created])).toEqual([
    ["m", 100],
    ["n", 160],
  ]);
});

test.each<[string, Answer, string]>([
  ["is refused", "refused", "unreachable"],
  ["is not there", { status: 404 }, "status 404"],
  ["is not JSON", { status: 200, body: "<html>" }, "not a list of models"],
  ["is null", { status: 200, body: "null" }, "not a list of models"],
  ["has no data", { status: 200, body: "{}" }, "not a list of models"],
  ["has data of another kind", { status: 200, body: '{"data":{"id":"m"}}' }, "not a list of models"],
  ["is too long", { status: 200, body: `{"data":[]}${" ".repeat(1_048_576)}` }, "protocol"],
])("while a list %s the last one stays, and it is asked for soon, then more rarely", async (_, answer, reason) => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/v1/models"] = answer;
  await harness.time.advanceAsync(60_000);
  expect(idsOf(harness)).toEqual(["m"]);
  const attempts = engine.times("/v1/models").filter((time) => time >= 30_000);
  expect(attempts[1]! - attempts[0]!).toBeLessThanOrEqual(250);
  expect(attempts.length).toBeLessThan(14);
  const warnings = harness.lines.filter(({ message }) => message === "model list of an engine unreadable");
  expect(warnings.map(({ fields }) => fields)).toEqual([{ engine: "a", reason }]);
  engine.paths["/v1/models"] = modelsAnswer("other");
  await harness.time.advanceAsync(31_000);
  expect(idsOf(harness)).toEqual(["other"]);
});

test("a list that comes after the engine went down is not taken", async () => {
  const harness = await startHarness({ models: { timeoutMs: 30_000 } });
  const late = { ...(modelsAnswer("late") as object), afterMs: 20_000 } as Answer;
  const engine = harness.engine("a", {}, { "/v1/models": late });
  await harness.apply(engine);
  engine.paths["/health"] = "refused";
  await harness.time.advanceAsync(25_000);
  expect(harness.record("a")).toMatchObject({ state: "down", models: undefined });
  expect(engine.times("/v1/models")).toEqual([0]);
});

test("a down engine is not asked for its models", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/health"] = "refused";
  await harness.time.advanceAsync(120_000);
  expect(engine.times("/v1/models")).toEqual([0]);
  harness.fleet.apply([{ ...engine.spec, weight: 2 }]);
  await harness.time.advanceAsync(1_000);
  expect(engine.times("/v1/models")).toEqual([0]);
});

test("each run of failures is warned of once, and its delays start over", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  for (let run = 1; run <= 3; run++) {
    engine.paths["/v1/models"] = "refused";
    const from = engine.times("/v1/models").length;
    while (engine.times("/v1/models").length < from + 4) await harness.time.advanceAsync(50);
    const [first, second] = engine.times("/v1/models").slice(from) as [number, number];
    expect(second - first).toBeLessThanOrEqual(250);
    const warnings = harness.lines.filter(({ message }) => message === "model list of an engine unreadable");
    expect(warnings).toHaveLength(run);
    engine.paths["/v1/models"] = modelsAnswer("m");
    while (engine.times("/v1/models").length < from + 5) await harness.time.advanceAsync(50);
  }
});

test("an engine that comes back is asked eagerly and warned of again", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/v1/models": "refused" });
  await harness.apply(engine);
  await harness.time.advanceAsync(20_000);
  engine.paths["/health"] = "refused";
  while (harness.record("a").state === "up") await harness.time.advanceAsync(50);
  engine.paths["/health"] = { status: 200 };
  while (harness.record("a").state !== "up") await harness.time.advanceAsync(10);
  const from = engine.times("/v1/models").length - 1;
  await harness.time.advanceAsync(300);
  expect(engine.times("/v1/models").length - from).toBeGreaterThanOrEqual(2);
  const warnings = harness.lines.filter(({ message }) => message === "model list of an engine unreadable");
  expect(warnings).toHaveLength(2);
});

test.each<[string, object, object]>([
  ["owner", { owned_by: "vllm" }, { owned_by: "me" }],
  ["longest context", { max_model_len: 100 }, { max_model_len: 200 }],
  ["longest context, told at last", {}, { max_model_len: 200 }],
  ["root", { root: "/a" }, { root: "/b" }],
])("another %s is a change of the list", async (_, before, after) => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/v1/models": listAnswer({ id: "m", ...before }) });
  await harness.apply(engine);
  engine.paths["/v1/models"] = listAnswer({ id: "m", ...after });
  await harness.time.advanceAsync(30_000);
  expect(harness.fleet.models()[0]).toMatchObject(after);
});

test.each<[string, readonly (string | undefined)[], string | undefined]>([
  ["one", ["/a", "/a"], "/a"],
  ["one, where others give none", [undefined, "/a", undefined], "/a"],
  ["none", [undefined, undefined], undefined],
  ["two: the model's name", ["/a", "/b", "/a"], "m"],
  ["one of 4,096 characters", ["r".repeat(4_096)], "r".repeat(4_096)],
  ["one of 4,097 characters: none", ["r".repeat(4_097)], undefined],
])("the root of a model of which engines give %s", async (_, roots, expected) => {
  const harness = await startHarness();
  const engines = roots.map((root, at) =>
    harness.engine(`e${at}`, {}, { "/v1/models": listAnswer({ id: "m", ...(root === undefined ? {} : { root }) }) }),
  );
  await harness.apply(...engines);
  expect(harness.fleet.models()).toMatchObject([{ id: "m", engines: engines.map(({ spec }) => spec.id) }]);
  expect(harness.fleet.model("m")?.root).toBe(expected);
});

test("of two entries with one name the first counts", async () => {
  const harness = await startHarness();
  const twice = listAnswer({ id: "m", owned_by: "first" }, { id: "m", owned_by: "second" });
  await harness.apply(harness.engine("a", {}, { "/v1/models": twice }));
  expect(harness.fleet.models()).toMatchObject([{ id: "m", owned_by: "first", engines: ["a"] }]);
  expect(keysOf(harness, "m")).toEqual(["a"]);
});

test("after a restart the list is fetched at once", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/health"] = "refused";
  await harness.time.advanceAsync(8_000);
  expect(harness.record("a").state).toBe("down");
  expect(keysOf(harness, "m")).toEqual(["a"]);
  engine.paths["/v1/models"] = modelsAnswer("new");
  engine.paths["/health"] = { status: 200 };
  while (harness.record("a").state !== "up") await harness.time.advanceAsync(20);
  expect(idsOf(harness)).toEqual(["new"]);
  expect(keysOf(harness, "m")).toEqual([]);
});

test("models that discovery names are taken at once, and the engine is not asked", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", { models: ["named", "other"] }, { "/v1/models": modelsAnswer("told") });
  harness.fleet.apply([engine.spec]);
  expect(harness.fleet.models()).toEqual([
    { id: "named", engines: ["a"], created: 1_700_000_000, owned_by: "espalier" },
    { id: "other", engines: ["a"], created: 1_700_000_000, owned_by: "espalier" },
  ]);
  await harness.time.advanceAsync(60_000);
  expect(engine.times("/v1/models")).toEqual([]);
});

test("discovery may begin and cease to name models", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/v1/models": modelsAnswer("told") });
  await harness.apply(engine);
  expect(idsOf(harness)).toEqual(["told"]);
  harness.fleet.apply([{ ...engine.spec, models: ["named"] }]);
  expect(idsOf(harness)).toEqual(["named"]);
  const asked = engine.times("/v1/models").length;
  await harness.time.advanceAsync(60_000);
  expect(engine.times("/v1/models")).toHaveLength(asked);
  harness.fleet.apply([engine.spec]);
  expect(idsOf(harness)).toEqual(["named"]);
  await harness.time.advanceAsync(0);
  expect(idsOf(harness)).toEqual(["told"]);
});

test("models beyond the limits are left out, which is said", async () => {
  const harness = await startHarness();
  const longest = "x".repeat(maxModelNameLength);
  const others = Array.from({ length: maxModelsPerEngine }, (_, number) => `m${String(number).padStart(3, "0")}`);
  const engine = harness.engine("a", {}, { "/v1/models": modelsAnswer(longest, `${longest}x`, "", "m000", ...others) });
  await harness.apply(engine);
  expect(harness.record("a").models).toHaveLength(maxModelsPerEngine);
  expect(idsOf(harness)).toContain(longest);
  expect(idsOf(harness)).toContain("m254");
  expect(idsOf(harness)).not.toContain("m255");
  expect(harness.lines).toContainEqual(expect.objectContaining({ level: "warn", fields: { engine: "a", ignored: 4 } }));
});

test("names given by discovery are held to the same limits", async () => {
  const harness = await startHarness();
  const names = Array.from({ length: maxModelsPerEngine + 1 }, (_, number) => `m${number}`);
  await harness.apply(harness.engine("a", { models: ["x".repeat(maxModelNameLength + 1), ...names] }));
  expect(harness.record("a").models).toHaveLength(maxModelsPerEngine);
  expect(idsOf(harness)).not.toContain(`m${maxModelsPerEngine}`);
});

test("entries that are no models are left out", async () => {
  const harness = await startHarness();
  await harness.apply(
    harness.engine(
      "a",
      {},
      { "/v1/models": listAnswer(null, 5, "m", [], { id: 3 }, { name: "x" }, { id: "__proto__" }, { id: "ok" }) },
    ),
  );
  expect(idsOf(harness)).toEqual(["__proto__", "ok"]);
  expect(keysOf(harness, "__proto__")).toEqual(["a"]);
  expect(keysOf(harness, "constructor")).toEqual([]);
});

test("an adapter names the model that it is one of", async () => {
  const harness = await startHarness();
  const list = listAnswer({ id: "base" }, { id: "adapter", parent: "base" }, { id: "odd", parent: 7 });
  await harness.apply(harness.engine("a", {}, { "/v1/models": list }));
  expect(harness.fleet.model("adapter")).toMatchObject({ id: "adapter", parent: "base", engines: ["a"] });
  expect(harness.fleet.model("base")?.parent).toBeUndefined();
  expect(harness.fleet.model("odd")?.parent).toBeUndefined();
  expect(harness.fleet.model("stranger")).toBeUndefined();
});

test("an adapter that engines are told to load is a model of all that serve its own", async () => {
  const time = createVirtualTime();
  const bases: Record<string, readonly object[]> = {
    "http://a:8000": [{ id: "base", owned_by: "vllm", max_model_len: 100 }],
    "http://b:8000": [{ id: "base" }, { id: "sql", parent: "base", created: 7 }],
    "http://c:8000": [{ id: "other" }],
  };
  const fleet = createFleet({
    ...{ clock: time.clock, scheduler: time.scheduler, random: createSeededRandom(1) },
    ...{ logger: createRecordingLogger(), meter: createSeriesMeter() },
    http: async ({ url }) => {
      const data = bases[url.replace("/v1/models", "")];
      return { status: 200, headers: {}, body: data ? JSON.stringify({ object: "list", data }) : "" };
    },
    adapters: [
      { name: "sql", model: "base" },
      { name: "law", model: "base" },
      { name: "lost", model: "nowhere" },
    ],
  });
  fleet.apply(["a", "b", "c"].map((id) => makeSpec(id)));
  await fleet.start();
  await time.advanceAsync(0);
  const keys = (model: string): string[] => fleet.pool(model).map(({ key }) => key);
  expect(fleet.models().map(({ id }) => id)).toEqual(["base", "law", "other", "sql"]);
  expect([keys("sql"), keys("law"), keys("lost")]).toEqual([["a", "b"], ["a", "b"], []]);
  expect(fleet.model("sql")).toMatchObject({ parent: "base", engines: ["a", "b"], created: 7, max_model_len: 100 });
  // What an engine itself tells stays as it is.
  expect(fleet.engines.map(({ models }) => models?.map(({ id }) => id))).toEqual([
    ["base"],
    ["base", "sql"],
    ["other"],
  ]);
  await fleet.stop();
});

/*
 * With adapters that are loaded on demand, engines change their lists all the time. Each change made the index of the whole
 * fleet anew: 54 ms of the event loop with 512 engines of 8 ranks and 128 adapters.
 */
test("a changed list changes what it names, and leaves the pools of other models as they were", async () => {
  const harness = await startHarness();
  const a = harness.engine("a", {}, { "/v1/models": modelsAnswer("base", "old") });
  const b = harness.engine("b", {}, { "/v1/models": modelsAnswer("base", "old", "other") });
  await harness.apply(a, b);
  const before = new Map(["base", "other", "old"].map((id) => [id, harness.fleet.pool(id)]));
  const entry = harness.fleet.model("base");
  a.paths["/v1/models"] = modelsAnswer("base", "new");
  await harness.time.advanceAsync(30_000);
  expect(harness.fleet.pool("base")).toBe(before.get("base"));
  expect(harness.fleet.pool("other")).toBe(before.get("other"));
  expect(harness.fleet.model("base")).toBe(entry);
  expect(keysOf(harness, "old")).toEqual(["b"]);
  expect(keysOf(harness, "new")).toEqual(["a"]);
  expect(idsOf(harness)).toEqual(["base", "new", "old", "other"]);
});

test("after any changes, models and pools are those of a fleet that begins so", async () => {
  for (const seed of [1, 2, 3, 4, 5]) {
    const random = createSeededRandom(seed);
    const harness = await startHarness();
    const names = ["a", "b", "c", "d"];
    const models = ["base", "left", "right", "late", "long"];
    const list = (): Answer =>
      listAnswer(
        ...models
          .filter(() => random.integer(2) === 0)
          .map((id) => ({
            id,
            created: 1_000 + random.integer(3),
            owned_by: "x",
            ...(random.integer(2) === 0 ? { max_model_len: 1_024 * (1 + random.integer(3)) } : {}),
            ...(random.integer(2) === 0 ? { root: models[random.integer(2)] } : {}),
          })),
      );
    const engines = names.map((name) =>
      harness.engine(name, { ranks: 1 + random.integer(2) }, { "/v1/models": list() }),
    );
    let present = engines;
    for (let step = 0; step < 12; step++) {
      for (const engine of engines) if (random.integer(2) === 0) engine.paths["/v1/models"] = list();
      present = engines.filter((engine) => (present.includes(engine) ? random.integer(5) > 0 : random.integer(2) > 0));
      harness.fleet.apply(present.map(({ spec }) => spec));
      await harness.time.advanceAsync(30_000);
      harness.fleet.models();
      for (const id of models) harness.fleet.pool(id);
    }
    const served = (id: string): string[] =>
      harness.fleet.engines
        .filter((engine) => engine.models?.some((model) => model.id === id))
        .flatMap(({ targets }) => targets.map(({ key }) => key));
    for (const id of models) expect([seed, id, keysOf(harness, id)]).toEqual([seed, id, served(id)]);
    for (const { id, engines: at, created, max_model_len, root } of harness.fleet.models()) {
      const listed = at.map((name) => harness.record(name).models!.find((model) => model.id === id)!);
      const lengths = listed.flatMap(({ maxModelLen = [] }) => maxModelLen);
      const roots = [...new Set(listed.flatMap((model) => model.root ?? []))];
      expect([seed, id, created]).toEqual([seed, id, Math.min(...listed.map((model) => model.created))]);
      expect(max_model_len).toBe(lengths.length === 0 ? undefined : Math.min(...lengths));
      expect(root).toBe(roots.length > 1 ? id : roots[0]);
    }
    expect(idsOf(harness)).toEqual(models.filter((id) => served(id).length > 0).sort());
    await harness.fleet.stop();
  }
});
