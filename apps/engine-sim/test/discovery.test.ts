import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type EventDialect, eventDialects } from "@espalier/engine-model/kv-events";
import { readSglangEventSources, readVllmEventSources } from "@espalier/shared-tree/events";
import { describe, expect, test } from "vitest";
import { channelOf } from "./event-feed.ts";
import { at, captureFolder, type Json, shapeOf, startSim, type TestSim } from "./sim-client.ts";

const startPublishing = (dialect: EventDialect, more: object = {}): Promise<TestSim> =>
  startSim({
    kvEvents: { dialect, topic: "kv-events", ...more },
    parameters: { flavour: dialect.startsWith("sglang") ? "sglang" : "vllm", blockSize: 32 },
  });

test("vLLM tells its sources by rank, as a router reads them", async () => {
  const sim = await startPublishing("vllm-0.32", { bufferSteps: 12 });
  const { port, replayPort } = await channelOf(sim);
  const answer = await sim.get("/kv_event_sources");
  expect(answer.json).toEqual({
    "0": {
      enable_kv_cache_events: true,
      publisher: "zmq",
      endpoint: `tcp://*:${port}`,
      replay_endpoint: `tcp://*:${replayPort}`,
      buffer_steps: 12,
      hwm: 100_000,
      max_queue_size: 100_000,
      topic: "kv-events",
    },
  });
  expect(readVllmEventSources(answer.json, "127.0.0.1")).toEqual([
    {
      rank: 0,
      blockSize: undefined,
      endpoint: `tcp://127.0.0.1:${port}`,
      mode: "connect",
      replayEndpoint: `tcp://127.0.0.1:${replayPort}`,
      topic: "kv-events",
    },
  ]);
});

test("SGLang tells its ports in server_info, as a router reads them", async () => {
  const sim = await startPublishing("sglang-0.5.23");
  const { port, replayPort } = await channelOf(sim);
  const { json } = await sim.get("/server_info");
  expect(json.kv_events).toEqual({
    publisher: "zmq",
    endpoint_host: "*",
    endpoint_port_base: port,
    topic: "kv-events",
    block_size: 32,
    dp_size: 1,
    replay_endpoint_port_base: replayPort,
  });
  expect(JSON.parse(json.kv_events_config as string)).toEqual({
    publisher: "zmq",
    endpoint: `tcp://*:${port}`,
    replay_endpoint: `tcp://*:${replayPort}`,
    buffer_steps: 10_000,
    topic: "kv-events",
  });
  expect(readSglangEventSources(json, "127.0.0.1")).toMatchObject([
    { rank: 0, blockSize: 32, endpoint: `tcp://127.0.0.1:${port}`, replayEndpoint: `tcp://127.0.0.1:${replayPort}` },
  ]);
});

test("without replay neither names an endpoint for it", async () => {
  const vllm = (await (await startPublishing("vllm-0.32", { replay: false })).get("/kv_event_sources")).json;
  expect(at(vllm, "0", "replay_endpoint")).toBeNull();
  expect(readVllmEventSources(vllm, "127.0.0.1")).toMatchObject([{ replayEndpoint: undefined }]);
  const sglang = (await (await startPublishing("sglang-0.5.23", { replay: false })).get("/server_info")).json;
  expect(sglang.kv_events).not.toHaveProperty("replay_endpoint_port_base");
  expect(sglang.kv_events_config).not.toContain("replay");
  expect(readSglangEventSources(sglang, "127.0.0.1")).toMatchObject([{ replayEndpoint: undefined }]);
});

test.each(eventDialects.filter((dialect) => dialect !== "vllm-0.32"))(
  "an engine that speaks %s has no /kv_event_sources",
  async (dialect) => {
    expect((await (await startPublishing(dialect)).get("/kv_event_sources")).status).toBe(404);
  },
);

test("without events there are no sources", async () => {
  const vllm = await startSim();
  expect((await vllm.get("/kv_event_sources")).json).toEqual({});
  const sglang = await startSim({ parameters: { flavour: "sglang" } });
  expect((await sglang.get("/kv_event_sources")).status).toBe(404);
  expect((await sglang.get("/server_info")).json).toMatchObject({ kv_events: null, kv_events_config: null });
});

test("sources ask for the key where there is one", async () => {
  const sim = await startSim({ kvEvents: { dialect: "auto" }, apiKey: "k" });
  expect((await sim.get("/kv_event_sources")).status).toBe(401);
  expect((await sim.get("/kv_event_sources", { authorization: "Bearer k" })).status).toBe(200);
});

const sessionsOf = (folder: string): Json[] =>
  JSON.parse(readFileSync(join(folder, "sessions.json"), "utf8")) as Json[];

describe("as the real engines", () => {
  const vllmFolder = captureFolder("vllm-0.32.0");
  const sglangFolder = captureFolder("sglang-0.5.23");

  test.skipIf(!vllmFolder)("the sources of vLLM 0.32 have the same fields", async () => {
    const real = sessionsOf(vllmFolder as string)[0]?.["/kv_event_sources"];
    const { json } = await (await startPublishing("vllm-0.32")).get("/kv_event_sources");
    expect(shapeOf(json)).toEqual(shapeOf(real));
    const constant = ({ endpoint: _, replay_endpoint: __, ...rest }: Json): Json => rest;
    expect(constant(json["0"] as Json)).toEqual(constant((real as Json)["0"] as Json));
  });

  test.skipIf(!sglangFolder)("what SGLang 0.5.23 says of its publisher has the same fields", async () => {
    const real = sessionsOf(sglangFolder as string)[0]?.["/server_info"] as Json;
    const { json } = await (await startPublishing("sglang-0.5.23")).get("/server_info");
    expect(shapeOf(json.kv_events)).toEqual(shapeOf(real.kv_events));
    expect(shapeOf(json)).toEqual(shapeOf(real));
  });

  test.skipIf(!vllmFolder)("an adapter is listed with the same fields", async () => {
    const real = at(sessionsOf(vllmFolder as string)[2], "/v1/models", "data", 1) as Json;
    const sim = await startSim({ models: ["tiny-public"], adapters: ["adapter-a"] });
    const listed = at((await sim.get("/v1/models")).json, "data", 1) as Json;
    const { permission: _, created: __, root: ___, ...fields } = real;
    expect(listed).toMatchObject(fields);
  });
});
