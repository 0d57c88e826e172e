import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { at, fiftyAtATime, type Json, openRequest, startSim, untilIdle } from "./sim-client.ts";

const chat = "/v1/chat/completions";
const completions = "/v1/completions";
const long = { prompt: "x".repeat(400), max_tokens: 20_000, stream: true };

test.each([
  ["a stream", { stream: true, n: 1 }],
  ["a whole answer", { stream: false, n: 1 }],
  ["several answers", { stream: true, n: 3 }],
])("a client that goes away during %s frees the engine at once", async (_what, more) => {
  const sim = await startSim({ speed: 20 });
  const request = openRequest(sim.url + completions, { ...long, ...more });
  await waitFor(async () => ((await sim.state()).stats.running as number) > 0, { what: "a running request" });
  const { active } = await sim.state();
  expect(active).toMatchObject([{ path: completions, model: "tiny", stream: more.stream }]);
  request.destroy();
  const state = await untilIdle(sim);
  expect(state.stats.kvUse).toBe(0);
  expect(state.totals).toMatchObject({ aborted: 1, finished: 0 });
  const [logged] = state.requests;
  expect(logged?.outcome).toBe("aborted");
  expect(logged?.reports).toHaveLength(more.n);
  for (const report of logged?.reports ?? []) {
    expect(report.finishReason).toBe("aborted");
    expect(report.outputTokens).toBeLessThan(20_000);
  }
});

test("a client that goes away while it waits is taken out of the queue", async () => {
  const sim = await startSim({ speed: 20, parameters: { maxRunning: 1 } });
  const first = openRequest(sim.url + completions, long);
  await first.head;
  const second = openRequest(sim.url + completions, long);
  await second.head;
  await waitFor(async () => (await sim.state()).stats.waiting === 1, { what: "a waiting request" });
  second.destroy();
  await waitFor(async () => (await sim.state()).active.length === 1, { what: "one request left" });
  const { stats } = await sim.state();
  expect([stats.running, stats.waiting]).toEqual([1, 0]);
  first.destroy();
});

test("a client that goes away before its body is complete leaves nothing", async () => {
  const sim = await startSim();
  const request = openRequest(sim.url + chat, { messages: [] }, { "content-length": "5000" });
  await sim.state();
  request.destroy();
  await request.ended;
  const state = await untilIdle(sim);
  expect(state.stats.promptTokens).toBe(0);
});

test("a client that stays behind for two seconds is dropped, and its request with it", async () => {
  // A long name makes every event long: half a second of this engine is more than all buffers hold.
  const model = "m".repeat(10_000);
  const time = createVirtualTime();
  const sim = await startSim({ speed: 100, models: [model], clock: time.clock, scheduler: time.scheduler });
  const request = openRequest(sim.url + completions, long);
  const response = await request.head;
  response.pause();
  const dropped = async () => (await sim.state()).totals["dropped-slow-client"];
  // It is behind from somewhere in the first half second on: 14 MB then, and the buffers of the kernel hold less.
  time.advance(500);
  await sim.state();
  time.advance(1_400);
  expect(await dropped()).toBe(0);
  time.advance(700);
  const { active, requests } = await sim.state();
  expect(await dropped()).toBe(1);
  expect(active).toEqual([]);
  expect(requests[0]?.reports[0]?.finishReason).toBe("aborted");
  request.destroy();
});

test("a client that reads gets everything, however large", async () => {
  const sim = await startSim({ speed: 2_000, models: ["m".repeat(1_000)] });
  const events = await sim.events(completions, { ...long, max_tokens: 5_000 });
  expect(events).toHaveLength(5_001);
});

test("4,096 sequences are queued, more are refused until there is room", async () => {
  const sim = await startSim({ speed: 1, parameters: { maxRunning: 1 } });
  const prompts = Array(256).fill("a");
  const open = Array.from({ length: 16 }, () =>
    openRequest(sim.url + completions, { prompt: prompts, max_tokens: 500, stream: true }),
  );
  await Promise.all(open.map(({ head }) => head));
  const refused = await sim.post(completions, { prompt: "a", max_tokens: 1 });
  expect(refused.status).toBe(503);
  expect(refused.json.error).toMatchObject({ code: 503 });
  open[0]?.destroy();
  const held = async () => {
    const { stats } = await sim.state();
    return (stats.running as number) + (stats.waiting as number);
  };
  await waitFor(async () => (await held()) === 15 * 256, { what: "room" });
  const taken = openRequest(sim.url + completions, { prompt: prompts, max_tokens: 500, stream: true });
  expect((await taken.head).statusCode).toBe(200);
  for (const { destroy } of [...open, taken]) destroy();
}, 20_000);

test("a restart forgets cache, counters, log and answers, and resets what runs", async () => {
  const sim = await startSim({ speed: 50 });
  const prompt = "y".repeat(400);
  await sim.post(completions, { prompt, max_tokens: 2 });
  const stored = (await sim.post("/v1/responses", { input: "hello", max_output_tokens: 1 })).json.id;
  const running = openRequest(sim.url + completions, long);
  await running.head;
  expect((await sim.post("/sim/reset", "")).json).toEqual({ epoch: 1 });
  expect((await running.ended).error?.code).toBe("ECONNRESET");
  const state = await sim.state();
  expect(state.epoch).toBe(1);
  expect(state.active).toEqual([]);
  expect(state.requests).toEqual([]);
  expect(Object.values(state.totals).every((count) => count === 0)).toBe(true);
  expect(state.stats).toMatchObject({ running: 0, promptTokens: 0, generatedTokens: 0, cachedBlocks: 0, steps: 0 });
  expect((await sim.get("/metrics")).text).toMatch(/^vllm:e2e_request_latency_seconds_count\{.*\} 0\.0$/m);
  expect((await sim.get(`/v1/responses/${stored}`)).status).toBe(404);
  const again = (await sim.post(completions, { prompt, max_tokens: 2 })).json;
  expect(at(again, "usage", "prompt_tokens_details", "cached_tokens")).toBe(0);
  expect((await sim.post("/sim/reset", "")).json).toEqual({ epoch: 2 });
});

test("the log tells what was received, without secrets", async () => {
  const sim = await startSim();
  const headers = {
    "x-request-id": "r-1",
    "x-session-id": "s-1",
    authorization: "Bearer secret",
    "x-api-key": "secret",
    "x-long": "v".repeat(400),
  };
  await sim.post(chat, { messages: [{ role: "user", content: "hello" }], max_tokens: 7 }, headers);
  const state = await sim.state();
  expect(JSON.stringify(state)).not.toContain("secret");
  const [entry] = state.requests;
  expect(entry).toMatchObject({
    path: chat,
    requestId: "r-1",
    model: "tiny",
    stream: false,
    outcome: "finished",
    status: 200,
    headers: { "x-request-id": "r-1", "x-session-id": "s-1", authorization: "present", "x-api-key": "present" },
    reports: [{ outputTokens: 7, cachedTokens: 0, finishReason: "length" }],
  });
  expect(entry?.headers["x-long"]).toHaveLength(256);
  const report = entry?.reports[0] as Record<string, number>;
  expect(report.arrivedMs).toBeLessThanOrEqual(report.scheduledMs as number);
  expect(report.scheduledMs).toBeLessThan(report.firstTokenMs as number);
  expect(report.firstTokenMs).toBeLessThan(report.finishedMs as number);
});

test("a refused request is in the log with its status", async () => {
  const sim = await startSim();
  await sim.post(chat, { messages: 5 }, { "x-request-id": "bad" });
  expect((await sim.state()).requests).toMatchObject([
    { outcome: "rejected", status: 400, requestId: "bad", reports: [] },
  ]);
  // What is no request to a model is not in the log.
  await sim.get("/nothing");
  await sim.get("/v1/models");
  expect((await sim.state()).requests).toHaveLength(1);
});

test("the log keeps the newest thousand, the totals count all", async () => {
  const sim = await startSim();
  const send = (round: number): Promise<unknown> => sim.post(chat, "{", { "x-request-id": `r${round}` });
  await send(0);
  await send(1);
  await fiftyAtATime(998, (index) => send(2 + index));
  await send(1_000);
  const state = await sim.state();
  expect(state.requests).toHaveLength(1_000);
  expect(state.requests[0]?.requestId).toBe("r1");
  expect(state.requests.at(-1)?.requestId).toBe("r1000");
  expect(state.totals.rejected).toBe(1_001);
}, 20_000);

test("two requests with the same id are two requests", async () => {
  const sim = await startSim();
  const ask = (): Promise<{ json: Json }> =>
    sim.post(completions, { prompt: "a", max_tokens: 30 }, { "x-request-id": "same" });
  const answers = await Promise.all([ask(), ask()]);
  expect(answers.map(({ json }) => at(json, "usage", "completion_tokens"))).toEqual([30, 30]);
  expect((await sim.state()).totals.finished).toBe(2);
});

test("preemption shows in the statistics, and answers come out whole", async () => {
  const sim = await startSim({ parameters: { blockCount: 20, blockSize: 16 } });
  const answers = await Promise.all(
    Array.from({ length: 6 }, (_, index) => sim.post(completions, { prompt: `${index}`.repeat(64), max_tokens: 150 })),
  );
  for (const { json } of answers) expect(at(json, "usage", "completion_tokens")).toBe(150);
  const { stats, requests } = await sim.state();
  expect(stats.preemptions).toBeGreaterThan(0);
  const preempted = requests.flatMap(({ reports }) => reports.map(({ preemptions }) => preemptions as number));
  expect(preempted.reduce((sum, count) => sum + count)).toBe(stats.preemptions);
});
