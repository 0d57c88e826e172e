import { startEngineSim } from "@espalier/engine-sim";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { at, chunksOf, startSim } from "./sim-client.ts";

test("a release turns on all its behaviours; what is neither a behaviour nor a release is refused", async () => {
  await startSim({ behaviours: ["sglang-0.5.23"] });
  await expect(startEngineSim({ behaviours: ["sglang-0.5.2"] })).rejects.toThrow(
    /^behaviour must be one of .*or a release$/,
  );
});

test("sglang-0.5.23:health-takes-a-second answers /health after its sleep", async () => {
  const time = createVirtualTime();
  const behaviours = ["sglang-0.5.23:health-takes-a-second"];
  const sim = await startSim({ speed: 1, behaviours, clock: time.clock, scheduler: time.scheduler });
  let isAnswered = false;
  const answer = sim.get("/health").then((health) => {
    isAnswered = true;
    return health.status;
  });
  // Real sockets live outside virtual time.
  await waitFor(() => time.pendingCount === 1, { what: "the sleep" });
  time.advance(1_000);
  expect((await sim.get("/version")).status).toBe(200);
  expect(isAnswered).toBe(false);
  time.advance(1);
  expect(await answer).toBe(200);
});

test.each([
  [
    "vllm",
    "vllm-0.32.0:errors-are-events",
    "/v1/chat/completions",
    'data: {"error":{"message":"injected fault: sick","type":"InternalServerError","param":null,"code":500}}\n\ndata: [DONE]\n\n',
  ],
  [
    "sglang",
    "sglang-0.5.23:errors-are-events",
    "/v1/chat/completions",
    'data: {"error":{"object":"error","message":"injected fault: sick","type":"InternalServerError","param":null,"code":500}}\n\ndata: [DONE]\n\n',
  ],
  [
    "vllm",
    "vllm-0.32.0:errors-are-events",
    "/v1/messages",
    'event: error\ndata: {"type":"error","error":{"type":"InternalServerError","message":"injected fault: sick"}}\n\n',
  ],
] as const)(
  "%s, %s: a streamed request to %s fails by an event, another one by its status",
  async (flavour, name, path, events) => {
    const sim = await startSim({ parameters: { flavour }, behaviours: [name] });
    await sim.post("/sim/faults", { kind: "sick" });
    const body = { messages: [{ role: "user", content: "hi" }], max_tokens: 4 };
    const streamed = await sim.post(path, { ...body, stream: true });
    expect([streamed.status, streamed.text]).toEqual([200, events]);
    expect((await sim.post(path, body)).status).toBe(500);
  },
);

test("vllm-0.32.0:keep-alive-comments breaks the silence of a stream every second", async () => {
  const time = createVirtualTime();
  const behaviours = ["vllm-0.32.0:keep-alive-comments"];
  const sim = await startSim({ speed: 1, behaviours, clock: time.clock, scheduler: time.scheduler });
  const body = { messages: [{ role: "user", content: "hi" }], max_tokens: 2, stream: true };
  await sim.post("/sim/faults", { kind: "slow", afterTokens: 1, delayMs: 2_500 });
  const before = time.pendingCount;
  const answer = sim.post("/v1/chat/completions", body);
  await waitFor(() => time.pendingCount > before + 1, { what: "a step, and the next comment" });
  time.advance(60_000);
  expect((await answer).text).toMatch(/\n\n(: keep-alive\n\n){2}data: [\s\S]*\[DONE\]\n\n$/);
});

test("llama.cpp has timings beside usage, answers without a limit, and says that it loads its model", async () => {
  const sim = await startSim({ behaviours: ["llama.cpp-00efb3e"], parameters: { maxModelLength: 512 } });
  const body = { prompt: "one two three", max_tokens: -1, ignore_eos: true };
  const whole = (await sim.post("/v1/completions", body)).json;
  expect(whole).toMatchObject({ timings: { cache_n: 0, predicted_n: at(whole, "usage", "completion_tokens") } });
  expect(at(whole, "usage", "completion_tokens")).toBeGreaterThan(16);
  const streamed = { ...body, max_tokens: 4, stream: true, stream_options: { include_usage: true } };
  const chunks = chunksOf(await sim.events("/v1/completions", streamed));
  expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 4 }, timings: { predicted_n: 4 } });
  await sim.post("/sim/faults", { kind: "unhealthy", path: "/health" });
  const { status, json } = await sim.get("/health");
  expect([status, json]).toEqual([503, { error: { message: "Loading model", type: "unavailable_error", code: 503 } }]);
});

test("trtllm-00057725:metrics-wait answers /metrics late with JSON, and has the page elsewhere", async () => {
  const time = createVirtualTime();
  const behaviours = ["trtllm-00057725:metrics-wait"];
  const sim = await startSim({ speed: 1, behaviours, clock: time.clock, scheduler: time.scheduler });
  const statistics = sim.get("/metrics");
  await waitFor(() => time.pendingCount === 1, { what: "the wait for statistics" });
  expect((await sim.get("/prometheus/metrics")).text).toMatch(/^trtllm_num_requests_running\{.*\} 0\.0$/m);
  time.advance(2_000);
  expect((await statistics).json).toEqual([]);
  expect((await (await startSim()).get("/prometheus/metrics")).status).toBe(404);
});

test("without its behaviours, max_tokens of -1 is refused and there are no timings", async () => {
  const sim = await startSim();
  expect((await sim.post("/v1/completions", { prompt: "a", max_tokens: -1 })).status).toBe(400);
  expect((await sim.post("/v1/completions", { prompt: "a", max_tokens: 1 })).json).not.toHaveProperty("timings");
});
