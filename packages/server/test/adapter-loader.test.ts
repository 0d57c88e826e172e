/** Engines are told to load the adapters of the configuration, once each, and not again where they would not. */
import { EspalierError, type HttpRequest, type HttpResponse } from "@espalier/common";
import { createRecordingLogger, createSeriesMeter, createVirtualTime } from "@espalier/testing";
import type { EngineRecord, FleetChange } from "@espalier/workers";
import { expect, test } from "vitest";
import { createAdapterLoader, maxLoadsUnderWay } from "../src/routing/adapter-loader.ts";

/** As much of an engine as loading looks at. */
const engineOf = (id: string, ...models: string[]): EngineRecord =>
  ({ id, url: `http://${id}`, models: models.map((model) => ({ id: model })) }) as unknown as EngineRecord;

function rig(names: readonly string[] = ["sql", "law"]) {
  const { clock, advance } = createVirtualTime();
  const logger = createRecordingLogger();
  const meter = createSeriesMeter();
  const asked: HttpRequest[] = [];
  const waiting: { answer(response: Partial<HttpResponse>): void; fail(error: unknown): void }[] = [];
  const listeners: ((change: FleetChange, engine: EngineRecord) => void)[] = [];
  const loader = createAdapterLoader({
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
    ...{ clock, logger, meter },
  });
  return {
    ...{ loader, asked, waiting, logger, meter, advance },
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
