import { readFileSync } from "node:fs";
import { createSeededRandom } from "@espalier/core";
import { sharedPath } from "@espalier/testing";
import { expect, test } from "vitest";
import { endpointsOfRank, readSglangEventSources, readVllmEventSources } from "../../src/events/event-sources.ts";

const vllmRank = (port: number, topic = "kv-events") => ({
  enable_kv_cache_events: true,
  publisher: "zmq",
  endpoint: `tcp://*:${port}`,
  replay_endpoint: `tcp://*:${port + 100}`,
  buffer_steps: 10_000,
  topic,
});

test("vLLM names each rank's sockets; the star stands for the engine's host", () => {
  expect(readVllmEventSources({ "1": vllmRank(5572), "0": vllmRank(5571) }, "10.0.0.7")).toEqual([
    ...[0, 1].map((rank) => ({
      rank,
      blockSize: undefined,
      endpoint: `tcp://10.0.0.7:${5571 + rank}`,
      mode: "connect",
      replayEndpoint: `tcp://10.0.0.7:${5671 + rank}`,
      topic: "kv-events",
    })),
  ]);
});

test("SGLang names base ports, to which the rank is added on both sockets", () => {
  const kv_events = {
    ...{ publisher: "zmq", endpoint_host: "*", endpoint_port_base: 5601, topic: "kv-events", block_size: 16 },
    ...{ dp_size: 2, replay_endpoint_port_base: 5701 },
  };
  expect(readSglangEventSources({ kv_events }, "fd00::7")).toEqual([
    ...[0, 1].map((rank) => ({
      rank,
      blockSize: 16,
      endpoint: `tcp://[fd00::7]:${5601 + rank}`,
      mode: "connect",
      replayEndpoint: `tcp://[fd00::7]:${5701 + rank}`,
      topic: "kv-events",
    })),
  ]);
});

test.each([
  ["a star", "tcp://*:5557", 0, "tcp://host:5557", "connect"],
  ["the second rank", "tcp://*:5557", 2, "tcp://host:5559", "connect"],
  ["all IPv6 addresses", "tcp://[::]:5557", 0, "tcp://host:5557", "connect"],
  ["one IPv6 address", "tcp://[fd00::1]:5557", 0, "tcp://[fd00::1]:5557", "connect"],
  ["a name: the engine dials it", "tcp://router:5557", 1, "tcp://router:5558", "bind"],
  ["a file", "ipc:///tmp/kv", 0, "ipc:///tmp/kv", "connect"],
] as const)("an endpoint with %s", (_what, written, rank, endpoint, mode) => {
  const found = endpointsOfRank(
    { endpoint: written, replayEndpoint: undefined, topic: undefined },
    { host: "host", rank },
  );
  expect(found).toEqual({ endpoint, mode, replayEndpoint: undefined, topic: "" });
});

test("the replay socket is the engine's own, also where the engine dials the reader", () => {
  const written = { endpoint: "tcp://router:5557", replayEndpoint: "tcp://*:5657", topic: "kv@a" };
  expect(endpointsOfRank(written, { host: "host", rank: 1 })).toEqual({
    endpoint: "tcp://router:5558",
    mode: "bind",
    replayEndpoint: "tcp://host:5658",
    topic: "kv@a",
  });
});

test.each([
  undefined,
  "",
  "tcp://*",
  "tcp://*:0",
  "tcp://*:65536",
  "tcp://*:port",
  "tcp://:5557",
  "tcp://a/b:5557",
  "udp://*:5557",
  "inproc://kv",
  "ipc://",
])("an endpoint that cannot be used: %s", (endpoint) => {
  expect(endpointsOfRank({ endpoint, replayEndpoint: undefined, topic: "" }, { host: "h", rank: 0 })).toBeUndefined();
});

test("ranks beyond the last port, and ranks of a file endpoint, have none", () => {
  const written = { replayEndpoint: undefined, topic: "" };
  expect(endpointsOfRank({ ...written, endpoint: "tcp://*:65535" }, { host: "h", rank: 1 })).toBeUndefined();
  expect(endpointsOfRank({ ...written, endpoint: "ipc:///a" }, { host: "h", rank: 1 })).toBeUndefined();
});

test("publishers that are off or of another kind give nothing", () => {
  for (const change of [
    { enable_kv_cache_events: false },
    { publisher: "null" },
    { endpoint: 7 },
    { endpoint: undefined },
  ]) {
    expect(readVllmEventSources({ "0": { ...vllmRank(5571), ...change } }, "h")).toEqual([]);
  }
  expect(readVllmEventSources({ zero: vllmRank(5571) }, "h")).toEqual([]);
  expect(readSglangEventSources({ kv_events: { endpoint_port_base: 5601, publisher: "null" } }, "h")).toEqual([]);
});

test("ranks are bounded: one more than the bound is left out", () => {
  const many = Object.fromEntries(Array.from({ length: 1_025 }, (_, rank) => [rank, vllmRank(5_000 + rank)]));
  expect(readVllmEventSources(many, "h")).toHaveLength(1_024);
  const ranks = (dp_size: number) => readSglangEventSources({ kv_events: { endpoint_port_base: 5_000, dp_size } }, "h");
  expect(ranks(1_024)).toHaveLength(1_024);
  expect(ranks(1_025)).toHaveLength(1);
});

test("a topic that is too long is not taken", () => {
  expect(readVllmEventSources({ "0": vllmRank(1, "x".repeat(1_024)) }, "h")[0]!.topic).toHaveLength(1_024);
  expect(readVllmEventSources({ "0": vllmRank(1, "x".repeat(1_025)) }, "h")[0]!.topic).toBe("");
});

test("answers of any shape are survived", () => {
  const random = createSeededRandom(11);
  const leaves = [null, undefined, 0, -1, 1e300, "", "zmq", "tcp://*:1", true, Number.NaN];
  const keys = ["0", "1", "kv_events", "endpoint", "endpoint_port_base", "publisher", "dp_size", "__proto__"];
  const make = (depth: number): unknown => {
    if (depth === 0 || random.integer(4) === 0) return leaves[random.integer(leaves.length)];
    const entries = Array.from({ length: random.integer(5) }, () => make(depth - 1));
    if (random.integer(4) === 0) return entries;
    return Object.fromEntries(entries.map((value) => [keys[random.integer(keys.length)]!, value]));
  };
  for (let round = 0; round < 10_000; round++) {
    const answer = make(4);
    for (const source of [...readVllmEventSources(answer, "h"), ...readSglangEventSources(answer, "h")]) {
      expect(source.endpoint).toMatch(/^tcp:\/\/h:\d+$/);
    }
  }
});

interface Session {
  readonly "/kv_event_sources"?: unknown;
  readonly "/server_info"?: unknown;
}

function sessionsOf(engine: string): readonly Session[] {
  const path = sharedPath("fixtures", engine, "sessions.json");
  return path === undefined ? [] : JSON.parse(readFileSync(path, "utf8"));
}

const [vllm, oldVllm, sglang] = [sessionsOf("vllm-0.32.0"), sessionsOf("vllm-0.23.0"), sessionsOf("sglang-0.5.23")];

test.skipIf(vllm.length === 0)("what a real vLLM 0.32 answers", () => {
  const found = vllm.map((session) => readVllmEventSources(session["/kv_event_sources"], "10.0.0.1"));
  expect(found.map((sources) => sources.length)).toEqual([1, 1, 1, 1, 2]);
  expect(found[4]![1]).toEqual({
    rank: 1,
    blockSize: undefined,
    endpoint: "tcp://10.0.0.1:5572",
    mode: "connect",
    replayEndpoint: "tcp://10.0.0.1:5672",
    topic: "kv-events",
  });
});

test.skipIf(oldVllm.length === 0)("vLLM 0.23 has no such answer", () => {
  for (const session of oldVllm) expect(readVllmEventSources(session["/kv_event_sources"], "h")).toEqual([]);
});

test.skipIf(sglang.length === 0)("what a real SGLang 0.5.23 answers", () => {
  const found = sglang.map((session) => readSglangEventSources(session["/server_info"], "10.0.0.1"));
  expect(found.map((sources) => sources.map(({ blockSize }) => blockSize))).toEqual([[16], [16], [1]]);
  expect(found[0]).toEqual([
    {
      rank: 0,
      blockSize: 16,
      endpoint: "tcp://10.0.0.1:5601",
      mode: "connect",
      replayEndpoint: "tcp://10.0.0.1:5701",
      topic: "kv-events",
    },
  ]);
});
