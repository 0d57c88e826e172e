import { connect } from "node:net";
import {
  measureLoad,
  type PreparedRequest,
  prepareRequest,
  type StreamShape,
  type System,
  startBareProxy,
  startBenchEngine,
} from "@espalier/bench";
import { systemClock, systemScheduler } from "@espalier/common";
import { afterEach, expect, test } from "vitest";
import type { Stoppable } from "./rig.ts";

const parts: Stoppable[] = [];
afterEach(async () => {
  for (const part of parts.splice(0)) await part.stop();
});

async function startEngine(): Promise<string> {
  const engine = await startBenchEngine(1, systemScheduler);
  parts.unshift(engine);
  return engine.urls[0]!;
}

async function ask(url: string, stream: StreamShape | undefined, includeUsage: boolean): Promise<Response> {
  const headers = { "content-type": "application/json" };
  const shape = stream ? { stream: true, stop: `stream ${stream.tokens},${stream.gapMs}` } : {};
  const options = includeUsage ? { stream_options: { include_usage: true } } : {};
  const body = JSON.stringify({ model: "bench-model", messages: [], ...shape, ...options });
  return fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
}

test("a plain request is answered with JSON of about 700 bytes that reports usage", async () => {
  const response = await ask(await startEngine(), undefined, false);
  const text = await response.text();
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(text.length).toBeGreaterThan(600);
  expect(text.length).toBeLessThan(900);
  expect(JSON.parse(text).usage).toMatchObject({ prompt_tokens: 1_024, completion_tokens: 64 });
});

test.each([
  { gapMs: 0, includeUsage: false },
  { gapMs: 0, includeUsage: true },
  { gapMs: 1, includeUsage: true },
])("a stream has one event a token, and usage when asked for: $gapMs ms, $includeUsage", async (shape) => {
  const response = await ask(await startEngine(), { tokens: 5, gapMs: shape.gapMs }, shape.includeUsage);
  expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
  const events = (await response.text()).split("\n\n").filter((event) => event !== "");
  expect(events.at(-1)).toBe("data: [DONE]");
  const chunks = events.slice(0, -1).map((event) => JSON.parse(event.slice("data: ".length)));
  const contents = chunks.map((chunk) => chunk.choices[0]?.delta.content).filter((content) => content);
  expect(contents).toEqual([" word0", " word1", " word2", " word3", " word4"]);
  expect(chunks.filter((chunk) => chunk.choices[0]?.finish_reason === "stop")).toHaveLength(1);
  expect(chunks.filter((chunk) => chunk.usage)).toHaveLength(shape.includeUsage ? 1 : 0);
});

test("a stream of one token is complete", async () => {
  const response = await ask(await startEngine(), { tokens: 1, gapMs: 5 }, false);
  expect(await response.text()).toMatch(/word0.*finish_reason":"stop".*\[DONE\]\n\n$/s);
});

test("the engine looks like one to a router", async () => {
  const url = await startEngine();
  expect((await fetch(`${url}/health`)).status).toBe(200);
  const models = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
  expect(models.data.map(({ id }) => id)).toEqual(["bench-model"]);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  expect(metrics).toMatch(/^vllm:num_requests_running\{.*\} 0$/m);
  expect(metrics).toMatch(/^process_cpu_seconds_total \d/m);
});

test("a head that does not end costs the client its connection", async () => {
  const url = await startEngine();
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  const closed = new Promise<boolean>((resolve) => socket.on("error", () => {}).on("close", () => resolve(true)));
  socket.write(`GET / HTTP/1.1\r\nlong: ${"x".repeat(70_000)}`);
  expect(await closed).toBe(true);
});

test.each([4_096, 49_152])(
  "the bare proxy passes bodies of %d bytes and spreads them over engines",
  async (bodyBytes) => {
    const engine = await startBenchEngine(2, systemScheduler);
    const bare = await startBareProxy(engine.urls);
    parts.push(bare, engine);
    const request: PreparedRequest = prepareRequest({ bodyBytes, messages: 2 });
    const system: System = { name: "bare", urls: [bare.url], metricsUrl: `${bare.url}/metrics` };
    const ports = { clock: systemClock, scheduler: systemScheduler, engineMetricsUrl: `${engine.urls[0]}/metrics` };
    const load = {
      request,
      pace: { kind: "closed", concurrency: 4 },
      warmUp: { requests: 5 },
      extent: { requests: 50 },
    } as const;
    const measured = await measureLoad(system, load, ports);
    expect(measured.requests).toBe(50);
    expect(measured.totalMs).toHaveLength(50);
    expect(measured.totalMs).toEqual(measured.totalMs.toSorted());
    expect(measured.cpuMicrosPerRequest).toBeGreaterThan(0);
  },
);

test("an open loop sends at its rate, whatever the system does", async () => {
  const url = await startEngine();
  const request = prepareRequest({ bodyBytes: 1_000, messages: 2, stream: { tokens: 8, gapMs: 10 } });
  const ports = { clock: systemClock, scheduler: systemScheduler, engineMetricsUrl: `${url}/metrics` };
  const pace = { kind: "open", ratePerSecond: 500, seed: 7 } as const;
  const measured = await measureLoad(
    { name: "direct", urls: [url] },
    { request, pace, warmUp: { requests: 1 }, extent: { requests: 60 } },
    ports,
  );
  expect(measured.requests).toBe(60);
  expect(measured.cpuMicrosPerRequest).toBeNaN();
  // Each takes 70 ms, so one after the other they would take over 4 s.
  expect(measured.totalMs[0]).toBeGreaterThan(60);
  expect(measured.requestsPerSecond).toBeGreaterThan(60);
});
