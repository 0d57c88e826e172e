import { EspalierError, type HttpClient, type HttpRequest } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { findEventSources, sourceBySpec } from "../../src/prefix/engine-feeds.ts";

const url = "http://10.1.2.3:8000";

type Reply = { readonly status: number; readonly body: string } | Error;

const json = (body: unknown): Reply => ({ status: 200, body: JSON.stringify(body) });
const status = (code: number, body = ""): Reply => ({ status: code, body });

/** Answers by path; paths that are absent are 404. */
function httpOf(replies: Readonly<Record<string, Reply>>): HttpClient & { readonly seen: HttpRequest[] } {
  const seen: HttpRequest[] = [];
  const http: HttpClient = async (request) => {
    seen.push(request);
    const reply = replies[new URL(request.url).pathname] ?? status(404, '{"detail":"Not Found"}');
    if (reply instanceof Error) throw reply;
    return { ...reply, headers: {} };
  };
  return Object.assign(http, { seen });
}

const pathsOf = ({ seen }: { readonly seen: readonly HttpRequest[] }) =>
  seen.map((asked) => new URL(asked.url).pathname);

/** As vLLM 0.32 answers for each rank. */
const vllmRank = (port: number, replayPort: number) => ({
  enable_kv_cache_events: true,
  publisher: "zmq",
  endpoint: `tcp://*:${port}`,
  replay_endpoint: `tcp://*:${replayPort}`,
  buffer_steps: 10_000,
  hwm: 100_000,
  max_queue_size: 100_000,
  topic: "kv-events",
});

/** The part of SGLang 0.5.23's answer that matters, and some around it. */
const sglangInfo = (changes: object = {}) => ({
  version: "0.5.23",
  page_size: 16,
  kv_events_config: '{"publisher": "zmq", "endpoint": "tcp://*:5601", "replay_endpoint": "tcp://*:5701"}',
  kv_events: {
    publisher: "zmq",
    endpoint_host: "*",
    endpoint_port_base: 5601,
    topic: "kv-events",
    block_size: 16,
    dp_size: 1,
    replay_endpoint_port_base: 5701,
    ...changes,
  },
  max_total_num_tokens: 3_072,
  served_model_name: "tiny-public",
});

describe("an engine that says where its events are", () => {
  test("vLLM with one rank", async () => {
    const http = httpOf({ "/kv_event_sources": json({ 0: vllmRank(5571, 5671) }) });
    expect(await findEventSources(http, url)).toEqual([
      {
        rank: 0,
        blockSize: undefined,
        endpoint: "tcp://10.1.2.3:5571",
        replayEndpoint: "tcp://10.1.2.3:5671",
        mode: "connect",
        topic: "kv-events",
      },
    ]);
    expect(pathsOf(http)).toEqual(["/kv_event_sources"]);
  });

  test("vLLM with two ranks, whose ports are in the answer already", async () => {
    const http = httpOf({ "/kv_event_sources": json({ 1: vllmRank(5572, 5672), 0: vllmRank(5571, 5671) }) });
    const sources = await findEventSources(http, url);
    expect(sources?.map(({ rank, endpoint, replayEndpoint }) => [rank, endpoint, replayEndpoint])).toEqual([
      [0, "tcp://10.1.2.3:5571", "tcp://10.1.2.3:5671"],
      [1, "tcp://10.1.2.3:5572", "tcp://10.1.2.3:5672"],
    ]);
  });

  test("SGLang, which knows nothing of vLLM's path", async () => {
    const http = httpOf({ "/server_info": json(sglangInfo()) });
    expect(await findEventSources(http, url)).toEqual([
      {
        rank: 0,
        blockSize: 16,
        endpoint: "tcp://10.1.2.3:5601",
        replayEndpoint: "tcp://10.1.2.3:5701",
        mode: "connect",
        topic: "kv-events",
      },
    ]);
    expect(pathsOf(http)).toEqual(["/kv_event_sources", "/server_info"]);
  });

  test("SGLang with ranks, to whose base port the rank is added", async () => {
    const http = httpOf({ "/server_info": json(sglangInfo({ dp_size: 3, replay_endpoint_port_base: null })) });
    const sources = await findEventSources(http, url);
    expect(sources?.map(({ endpoint }) => endpoint)).toEqual([
      "tcp://10.1.2.3:5601",
      "tcp://10.1.2.3:5602",
      "tcp://10.1.2.3:5603",
    ]);
    expect(sources?.every(({ replayEndpoint }) => replayEndpoint === undefined)).toBe(true);
  });

  test.each<[string, string]>([
    ["http://engine.example:8000", "tcp://engine.example:5571"],
    ["https://engine.example", "tcp://engine.example:5571"],
    ["http://[2001:db8::7]:8000", "tcp://[2001:db8::7]:5571"],
    ["http://gateway:80/engines/7", "tcp://gateway:5571"],
  ])("the address of %s stands for the star", async (engine, endpoint) => {
    const prefix = new URL(engine).pathname.replace(/\/$/, "");
    const http = httpOf({ [`${prefix}/kv_event_sources`]: json({ 0: vllmRank(5571, 5671) }) });
    const sources = await findEventSources(http, engine);
    expect(sources?.map((source) => source.endpoint)).toEqual([endpoint]);
    expect(http.seen[0]?.url).toBe(`${engine}/kv_event_sources`);
  });

  test("an engine that dials is waited for", async () => {
    const dials = { ...vllmRank(5571, 5671), endpoint: "tcp://router.example:5557" };
    const http = httpOf({ "/kv_event_sources": json({ 0: dials }) });
    expect(await findEventSources(http, url)).toMatchObject([{ endpoint: "tcp://router.example:5557", mode: "bind" }]);
  });

  test("both questions are bounded in time and size", async () => {
    const http = httpOf({});
    await findEventSources(http, url);
    for (const { timeoutMs, maxBytes } of http.seen) expect([timeoutMs, maxBytes]).toEqual([2_000, 1_048_576]);
  });
});

describe("an engine that publishes none, as far as it says", () => {
  const off = { ...vllmRank(5571, 5671), enable_kv_cache_events: false };

  test.each<[string, Readonly<Record<string, Reply>>]>([
    ["knows neither path", {}],
    ["refuses both", { "/kv_event_sources": status(401), "/server_info": status(403) }],
    ["answers with pages", { "/kv_event_sources": status(200, "<html>"), "/server_info": status(200, "") }],
    ["answers with other JSON", { "/kv_event_sources": json([]), "/server_info": json("up") }],
    ["answers with nothing", { "/kv_event_sources": json(null), "/server_info": json(null) }],
    ["is vLLM without events", { "/kv_event_sources": json({}), "/server_info": json({ vllm_config: "model='m'" }) }],
    ["has them switched off", { "/kv_event_sources": json({ 0: off }) }],
    ["keeps them to itself", { "/kv_event_sources": json({ 0: { ...vllmRank(1, 2), publisher: "null" } }) }],
    ["has another publisher", { "/server_info": json(sglangInfo({ publisher: "null" })) }],
    ["is SGLang without events", { "/server_info": json({ ...sglangInfo(), kv_events: null }) }],
    ["has ports that are none", { "/server_info": json(sglangInfo({ endpoint_port_base: 65_536 })) }],
    ["says so with a status of its own", { "/server_info": status(204) }],
  ])("%s", async (_, replies) => {
    const http = httpOf(replies);
    expect(await findEventSources(http, url)).toEqual([]);
    expect(pathsOf(http)).toEqual(["/kv_event_sources", "/server_info"]);
  });
});

describe("an engine that did not answer is to be asked again", () => {
  const failures: readonly [string, Reply][] = [
    ["refuses the connection", new EspalierError("upstream_connect_failed")],
    ["is silent", new EspalierError("upstream_timeout")],
    ["says too much, or no HTTP", new EspalierError("upstream_protocol_error")],
  ];

  test.each(failures)("it %s at the first question", async (_, failure) => {
    const http = httpOf({ "/kv_event_sources": failure, "/server_info": json(sglangInfo()) });
    expect(await findEventSources(http, url)).toBeUndefined();
    expect(pathsOf(http)).toEqual(["/kv_event_sources"]);
  });

  test.each(failures)("it %s at the second one", async (_, failure) => {
    expect(await findEventSources(httpOf({ "/server_info": failure }), url)).toBeUndefined();
  });

  // An engine that still loads its model has answers of 503 for a while; taken for "none", it would never be asked again.
  test.each<[string, Readonly<Record<string, Reply>>]>([
    ["both questions", { "/kv_event_sources": status(503), "/server_info": status(503) }],
    ["the first", { "/kv_event_sources": status(500) }],
    ["the second", { "/server_info": status(502, "bad gateway") }],
  ])("it has an error of its own at %s", async (_, replies) => {
    const http = httpOf(replies);
    expect(await findEventSources(http, url)).toBeUndefined();
    expect(pathsOf(http)).toEqual(["/kv_event_sources", "/server_info"]);
  });

  test("but not when the other question is answered", async () => {
    const http = httpOf({ "/kv_event_sources": status(500), "/server_info": json(sglangInfo()) });
    expect(await findEventSources(http, url)).toHaveLength(1);
  });
});

describe("an engine's entry in the configuration", () => {
  const spec = { endpoint: "tcp://10.0.0.5:5557", replay: "tcp://10.0.0.5:5657", topic: "kv" };

  test.each([0, 1, 7])("rank %i has the ports so much above", (rank) => {
    expect(sourceBySpec(spec, rank)).toEqual({
      endpoint: `tcp://10.0.0.5:${5557 + rank}`,
      replayEndpoint: `tcp://10.0.0.5:${5657 + rank}`,
      mode: "connect",
      topic: "kv",
    });
  });

  test.each<{ name: string; endpoint: string; replay?: string; found: object }>([
    { name: "a name", endpoint: "tcp://engine:5557", found: { endpoint: "tcp://engine:5557", mode: "connect" } },
    { name: "IPv6", endpoint: "tcp://[2001:db8::7]:5557", found: { endpoint: "tcp://[2001:db8::7]:5557" } },
    {
      name: "replay at another host",
      endpoint: "tcp://engine:5557",
      replay: "tcp://other:6000",
      found: { replayEndpoint: "tcp://other:6000" },
    },
    {
      name: "a star for replay, which is the host of the events",
      endpoint: "tcp://engine:5557",
      replay: "tcp://*:5657",
      found: { replayEndpoint: "tcp://engine:5657" },
    },
  ])("$name", ({ endpoint, replay, found }) => {
    expect(sourceBySpec({ endpoint, replay, topic: "" }, 0)).toMatchObject({ mode: "connect", ...found });
  });

  test("a rank whose port would be none has no events", () => {
    const last = { ...spec, endpoint: "tcp://10.0.0.5:65535" };
    expect(sourceBySpec(last, 0)?.endpoint).toBe("tcp://10.0.0.5:65535");
    expect(sourceBySpec(last, 1)).toBeUndefined();
  });

  test("a replay port that would be none leaves the events without replay", () => {
    const last = { ...spec, replay: "tcp://10.0.0.5:65535" };
    expect(sourceBySpec(last, 1)).toMatchObject({ endpoint: "tcp://10.0.0.5:5558", replayEndpoint: undefined });
  });
});
