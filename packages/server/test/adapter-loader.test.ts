/** Engines are told to load the adapters of the configuration, once each, and to unload those that nobody uses. */
import { createSeededRandom, EspalierError, type HttpRequest, type HttpResponse } from "@espalier/core";
import type { EngineRecord, FleetChange } from "@espalier/engines";
import { createRecordingLogger, createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { AdapterLoader, maxLoadsUnderWay, maxUnloadsPerLoad } from "../src/adapters/adapter-loader.ts";
import { createAdapterUse } from "../src/adapters/adapter-use.ts";

/** As much of an engine as loading looks at. */
const engineOf = (id: string, ...models: string[]): EngineRecord =>
  ({
    id,
    url: `http://${id}`,
    models: models.map((model) => ({ id: model, ownedBy: "vllm" })),
    targets: [{ adapters: { unloaded() {}, reading: undefined }, signals: { dialect: undefined, ageMs: () => 0 } }],
  }) as unknown as EngineRecord;

function rig(names: readonly string[] = ["sql", "law"], maxLoaded = 1_000) {
  const time = createVirtualTime();
  const { clock, advance } = time;
  const use = createAdapterUse({ clock, scheduler: time.scheduler, random: createSeededRandom(1), shared: undefined });
  const logger = createRecordingLogger();
  const meter = createSeriesMeter();
  const asked: HttpRequest[] = [];
  const waiting: { answer(response: Partial<HttpResponse>): void; fail(error: unknown): void }[] = [];
  const listeners: ((change: FleetChange, engine: EngineRecord) => void)[] = [];
  const loader = new AdapterLoader({
    adapters: Object.fromEntries(names.map((name) => [name, { path: `/adapters/${name}` }])),
    fleet: {
      onChange(listener) {
        listeners.push(listener);
        return () => {};
      },
    },
    http: (request) => {
      asked.push(request);
      return new Promise((resolve, reject) => {
        waiting.push({
          answer: (response) => resolve({ status: 200, headers: {}, body: "", ...response }),
          fail: reject,
        });
      });
    },
    ...{ clock, logger, meter, use, maxLoadedAdapters: maxLoaded },
  });
  /** Path and name of every call. */
  const calls = (): string[] =>
    asked.map(({ url, body }) => `${new URL(url).pathname} ${(JSON.parse(body!) as { lora_name: string }).lora_name}`);
  return {
    ...{ loader, asked, waiting, logger, meter, advance, use, calls },
    changed(change: FleetChange, engine: EngineRecord): void {
      for (const listener of listeners) listener(change, engine);
    },
  };
}

test("what an engine has, and what is none of the router's, needs nothing", () => {
  const { loader, asked } = rig();
  const engine = engineOf("e", "base", "sql");
  expect(loader.load(engine, "sql", [])).toBeUndefined();
  expect(loader.load(engine, "unknown", [])).toBeUndefined();
  expect(loader.load(engine, "toString", [])).toBeUndefined();
  expect(asked).toEqual([]);
});

test("an engine is told name and path, with its credentials, once for all that wait", async () => {
  const { loader, asked, waiting, meter } = rig();
  const engine = engineOf("e", "base");
  const loads = [1, 2, 3].map(() => loader.load(engine, "sql", ["authorization", "Bearer k"]));
  expect(asked).toMatchObject([{ url: "http://e/v1/load_lora_adapter", method: "POST", timeoutMs: 30_000 }]);
  expect(asked[0]!.headers).toEqual({ "content-type": "application/json", authorization: "Bearer k" });
  expect(JSON.parse(asked[0]!.body!)).toEqual({ lora_name: "sql", lora_path: "/adapters/sql" });
  waiting[0]!.answer({ body: "Success: LoRA adapter 'sql' added successfully." });
  expect(await Promise.all(loads)).toEqual([true, true, true]);
  expect(loader.load(engine, "sql", [])).toBeUndefined();
  expect(loader.load(engineOf("other", "base"), "sql", [])).toBeInstanceOf(Promise);
  expect(meter.value("espalier_adapter_loads_total", "loaded")).toBe(1);
});

test("another router that was first is no failure", async () => {
  const { loader, waiting } = rig();
  const loading = loader.load(engineOf("e"), "sql", []);
  waiting[0]!.answer({ status: 400, body: '{"message":"The lora adapter \'sql\' has already been loaded."}' });
  expect(await loading).toBe(true);
});

test.each([
  ["a refusal", (one: { answer(r: Partial<HttpResponse>): void }) => one.answer({ status: 404, body: "no such path" })],
  [
    "no answer",
    (one: { fail(error: unknown): void }) => one.fail(new EspalierError("upstream_timeout", "It took too long.")),
  ],
])("%s is said, and the engine is left alone for five seconds", async (_, happen) => {
  const { loader, asked, waiting, logger, advance } = rig();
  const engine = engineOf("e");
  const loading = loader.load(engine, "sql", []);
  happen(waiting[0]!);
  expect(await loading).toBe(false);
  expect(logger.lines.filter(({ level }) => level === "warn")).toHaveLength(1);
  advance(4_999);
  expect(await loader.load(engine, "sql", [])).toBe(false);
  expect(asked).toHaveLength(1);
  const other = loader.load(engine, "law", []);
  expect(asked).toHaveLength(2);
  waiting[1]!.answer({});
  expect(await other).toBe(true);
  advance(1);
  const again = loader.load(engine, "sql", []);
  expect(asked).toHaveLength(3);
  waiting[2]!.answer({});
  expect(await again).toBe(true);
});

test.each(["models", "restarted", "state"] as const)("what was loaded is asked for again after %s", async (change) => {
  const { loader, asked, waiting, changed } = rig();
  const [engine, other] = [engineOf("e"), engineOf("o")];
  for (const [at, one] of [engine, other].entries()) {
    const loading = loader.load(one, "sql", []);
    waiting[at]!.answer({});
    await loading;
  }
  changed("draining", engine);
  expect(loader.load(engine, "sql", [])).toBeUndefined();
  changed(change, engine);
  expect(loader.load(other, "sql", [])).toBeUndefined();
  expect(loader.load(engine, "sql", [])).toBeInstanceOf(Promise);
  expect(asked).toHaveLength(3);
});

test(`with ${maxLoadsUnderWay} loads under way one more is refused, and taken again when one is over`, async () => {
  const names = Array.from({ length: maxLoadsUnderWay + 1 }, (_, number) => `a${number}`);
  const { loader, asked, waiting } = rig(names);
  const engine = engineOf("e");
  const loads = names.slice(0, -1).map((name) => loader.load(engine, name, []));
  expect(await loader.load(engine, names.at(-1)!, [])).toBe(false);
  expect(asked).toHaveLength(maxLoadsUnderWay);
  waiting[0]!.answer({});
  expect(await loads[0]).toBe(true);
  void loader.load(engine, names.at(-1)!, []);
  expect(asked).toHaveLength(maxLoadsUnderWay + 1);
});

/** Answers every call that waits, until none does. */
async function settle(waiting: ReturnType<typeof rig>["waiting"], from = 0, response: Partial<HttpResponse> = {}) {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  for (let at = from; at < waiting.length; at++) {
    waiting[at]!.answer(response);
    // What an answer brings forth is asked some turns of the queue of promises later.
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  }
}

describe("unloading", () => {
  const [load, unload] = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"];

  /** An engine whose loaded adapters were used for a moment, in this order. */
  async function full(names: readonly string[], maxLoaded: number, used = names.slice(0, maxLoaded)) {
    const parts = rig(names, maxLoaded);
    const engine = engineOf("e", "base");
    for (const name of used) {
      const end = parts.use.begin(engine, name);
      const loading = parts.loader.load(engine, name, []);
      await settle(parts.waiting, parts.asked.length - 1);
      expect(await loading).toBe(true);
      parts.advance(10);
      end();
    }
    return { ...parts, engine, before: parts.asked.length };
  }

  test("before an engine has one too many, the one used longest ago goes; both calls carry the credentials", async () => {
    const { loader, engine, use, waiting, calls, asked, before, meter, advance } = await full(["a", "b", "c"], 2);
    advance(1);
    use.begin(engine, "a")();
    const loading = loader.load(engine, "c", ["authorization", "Bearer k"]);
    await settle(waiting, before);
    expect(await loading).toBe(true);
    expect(calls().slice(before)).toEqual([`${unload} b`, `${load} c`]);
    for (const { headers } of asked.slice(before)) expect(headers).toMatchObject({ authorization: "Bearer k" });
    expect(meter.value("espalier_adapter_unloads_total", "unloaded")).toBe(1);
    // It is loaded again when it is asked for.
    expect(loader.load(engine, "b", [])).toBeInstanceOf(Promise);
  });

  test("with as many as it may have nothing goes", async () => {
    const { loader, engine, waiting, calls, before } = await full(["a", "b", "c"], 3, ["a", "b"]);
    const loading = loader.load(engine, "c", []);
    await settle(waiting, before);
    expect(await loading).toBe(true);
    expect(calls().slice(before)).toEqual([`${load} c`]);
  });

  test("what is in use stays; with nothing else there the engine cannot, until a use has ended", async () => {
    const { loader, engine, use, waiting, calls, before, meter } = await full(["a", "b", "c"], 2);
    const [endA] = [use.begin(engine, "a"), use.begin(engine, "b")];
    expect(await loader.load(engine, "c", [])).toBe(false);
    expect(calls()).toHaveLength(before);
    expect(meter.value("espalier_adapter_loads_total", "full")).toBe(1);
    endA();
    const loading = loader.load(engine, "c", []);
    await settle(waiting, before);
    expect(await loading).toBe(true);
    expect(calls().slice(before)).toEqual([`${unload} a`, `${load} c`]);
  });

  test("a request for what is being unloaded waits, and has it loaded again", async () => {
    const { loader, engine, waiting, calls, before } = await full(["a", "b", "c"], 2);
    const other = loader.load(engine, "c", []);
    const again = loader.load(engine, "a", []);
    expect(calls().slice(before)).toEqual([`${unload} a`]);
    await settle(waiting, before);
    expect(await other).toBe(true);
    expect(await again).toBe(true);
    expect(calls().slice(before).sort()).toEqual([`${load} a`, `${load} c`, `${unload} a`, `${unload} b`].sort());
  });

  test("two loads at a time make room for two", async () => {
    const { loader, engine, waiting, calls, before } = await full(["a", "b", "c", "d"], 2);
    const loads = ["c", "d"].map((name) => loader.load(engine, name, []));
    await settle(waiting, before);
    expect(await Promise.all(loads)).toEqual([true, true]);
    expect(calls().slice(before).sort()).toEqual([`${load} c`, `${load} d`, `${unload} a`, `${unload} b`].sort());
  });

  test("what another router unloaded counts as gone, and what is no adapter of the configuration stays", async () => {
    const { loader, waiting, calls } = rig(["a", "b"], 1);
    const engine = engineOf("e", "base", "a", "somebody's");
    const loading = loader.load(engine, "b", []);
    await Promise.resolve();
    waiting[0]!.answer({ status: 404, body: "The lora adapter 'a' cannot be found." });
    await settle(waiting, 1);
    expect(await loading).toBe(true);
    expect(calls()).toEqual([`${unload} a`, `${load} b`]);
    expect(loader.load(engine, "a", [])).toBeInstanceOf(Promise);
  });

  test("an engine that does not unload is not given more, and not asked again for five seconds", async () => {
    const { loader, engine, waiting, calls, before, advance, logger, meter } = await full(["a", "b"], 1, ["a"]);
    const loading = loader.load(engine, "b", []);
    await settle(waiting, before, { status: 500 });
    expect(await loading).toBe(false);
    expect(await loader.load(engine, "b", [])).toBe(false);
    expect(calls().slice(before)).toEqual([`${unload} a`]);
    expect(logger.lines.filter(({ level }) => level === "warn")).toHaveLength(1);
    expect(meter.value("espalier_adapter_unloads_total", "refused")).toBe(1);
    advance(5_000);
    const again = loader.load(engine, "b", []);
    await settle(waiting, before + 1);
    expect(await again).toBe(true);
  });

  test(`one load has at most ${maxUnloadsPerLoad} unloaded where there are far too many`, async () => {
    const names = Array.from({ length: maxUnloadsPerLoad + 4 }, (_, at) => `a${at}`);
    const { loader, waiting, calls } = rig([...names, "new"], 1);
    const engine = engineOf("e", "base", ...names);
    const loading = loader.load(engine, "new", []);
    await Promise.resolve();
    await settle(waiting);
    expect(await loading).toBe(true);
    expect(calls()).toEqual([...names.slice(0, maxUnloadsPerLoad).map((name) => `${unload} ${name}`), `${load} new`]);
  });
});

test("an engine that says it has no such adapter is told to load it, whatever its list says", async () => {
  const { loader, waiting, calls } = rig(["a"]);
  const engine = engineOf("e", "base", "a");
  expect(loader.load(engine, "a", [])).toBeUndefined();
  loader.missing(engine, "a");
  const loading = loader.load(engine, "a", []);
  await settle(waiting);
  expect(await loading).toBe(true);
  expect(calls()).toEqual(["/v1/load_lora_adapter a"]);
  expect(loader.load(engine, "a", [])).toBeUndefined();
});

describe("SGLang", () => {
  const sglang = (...models: string[]): EngineRecord => {
    const engine = engineOf("s");
    return { ...engine, models: models.map((id) => ({ id, ownedBy: "sglang", created: 1 })) };
  };

  test("is told in its own words", async () => {
    const { loader, asked, waiting } = rig();
    const loading = loader.load(sglang("base"), "sql", []);
    await settle(waiting, 0, { body: '{"success":true}' });
    expect(await loading).toBe(true);
    expect(asked[0]!.url).toBe("http://s/load_lora_adapter");
    expect(JSON.parse(asked[0]!.body!)).toEqual({ lora_name: "sql", lora_path: "/adapters/sql" });
  });

  test.each([
    ["Failed to load LoRA adapter sql because it is already loaded"],
    ["LoRA with name sql already exists. Loaded LoRAs: dict_keys(['sql'])"],
  ])("what it has already is no failure: %s", async (error_message) => {
    const { loader, waiting } = rig();
    const loading = loader.load(sglang("base"), "sql", []);
    await settle(waiting, 0, { status: 400, body: JSON.stringify({ success: false, error_message }) });
    expect(await loading).toBe(true);
  });

  test("one that says it is full has its oldest unloaded, and is asked again", async () => {
    const { loader, waiting, calls } = rig();
    const loading = loader.load(sglang("base", "law"), "sql", []);
    await Promise.resolve();
    waiting[0]!.answer({
      status: 400,
      body: "Cannot load LoRA adapter sql at path /adapters/sql. Maximum number of loaded LoRA adapters is 1.",
    });
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    await settle(waiting, 1);
    expect(await loading).toBe(true);
    expect(calls()).toEqual(["/load_lora_adapter sql", "/unload_lora_adapter law", "/load_lora_adapter sql"]);
  });
});
