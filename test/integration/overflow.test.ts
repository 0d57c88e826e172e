import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, errorOf, eventData, type Json, openPost, post } from "./client.ts";
import { httpEngine, jsonEngine, type SeenRequest } from "./engines.ts";
import { meshRouters } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const key = "the-key-of-the-provider";

/** A provider that answers for `tiny`. */
const backend = (url: string, fields: Json = {}): Json => ({
  ...{ name: "provider", url, key, models: { tiny: "tiny-at-provider" } },
  price: { input: 1_000, output: 2_000 },
  ...fields,
});

const provider = () => rig.sims(1, { models: ["tiny-at-provider"], apiKey: key }).then(([sim]) => sim!);

const chatUrl = (router: RunningRouter): string => `${router.url}/v1/chat/completions`;

interface Status {
  readonly overflow: readonly {
    readonly name: string;
    readonly inFlight: number;
    readonly isPaused: boolean;
    readonly spent: { readonly hour: number; readonly day: number };
  }[];
}

const statusOf = async (router: RunningRouter) =>
  ((await router.admin("GET", "/admin/status")).json as unknown as Status).overflow[0]!;

test("with no engine up a request goes to the provider, says so, and is paid for; with engines it goes to them", async () => {
  const { url } = await provider();
  const router = await rig.router({ config: { overflow: [backend(`${url}/v1/`)] } });
  expect((await router.admin("GET", "/readyz")).status).toBe(200);
  const answer = await post(chatUrl(router), chat());
  expect(answer.status).toBe(200);
  expect(answer.headers).toMatchObject({
    "x-espalier-overflow": "provider",
    "x-espalier-overflow-reason": "no_engine",
  });
  expect(answer.headers["x-espalier-engine"]).toBeUndefined();
  const usage = answer.json.usage as { prompt_tokens: number; completion_tokens: number };
  const cost = (usage.prompt_tokens * 1_000 + usage.completion_tokens * 2_000) / 1e6;
  expect((await statusOf(router)).spent).toEqual({ hour: expect.closeTo(cost, 9), day: expect.closeTo(cost, 9) });
  const metrics = await router.metrics();
  expect(metrics.sum("espalier_overflow_requests_total", { reason: "no_engine", outcome: "completed" })).toBe(1);
  expect(metrics.sum("espalier_overflow_spent_total")).toBeCloseTo(cost, 9);
  const explained = await router.admin("POST", "/admin/explain", chat());
  expect(explained.json.overflow).toEqual({ backend: "provider", reason: "no_engine" });

  const [engine] = await rig.sims(1);
  await router.admin("POST", "/admin/engines", { url: engine!.url });
  await waitFor(async () => (await post(chatUrl(router), chat())).headers["x-espalier-engine"] === engine!.id, {
    what: "an answer of the engine",
  });
  expect((await router.admin("POST", "/admin/explain", chat())).json.overflow).toBeNull();
});

test("streams pass as they come; usage that only the router asked for is paid for and not shown", async () => {
  const seen: SeenRequest[] = [];
  const slow = await httpEngine(rig, (request) => seen.push(request));
  const router = await rig.router({ config: { overflow: [backend(slow.url)] } });
  const open = openPost(chatUrl(router), chat({ stream: true }));
  await waitFor(() => seen.length === 1, { what: "the request at the provider" });
  const { response, body } = seen[0]!;
  expect(JSON.parse(body.toString())).toMatchObject({
    model: "tiny-at-provider",
    stream_options: { include_usage: true },
  });
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
  const head = await open.head;
  expect(head.statusCode).toBe(200);
  expect((await statusOf(router)).inFlight).toBe(1);
  response.write('data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50}}\n\n');
  response.end("data: [DONE]\n\n");
  const text = (await open.body).toString();
  expect(eventData(text)).toEqual(['{"choices":[{"delta":{"content":"a"}}]}', "[DONE]"]);
  await waitFor(async () => (await statusOf(router)).inFlight === 0, { what: "the end of the answer" });
  expect((await statusOf(router)).spent.day).toBeCloseTo(0.2, 9);
});

test("the provider gets its key, and nothing that says who the client is; the client gets nothing of the key", async () => {
  const engine = await jsonEngine(rig, '{"id":"x","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}');
  const router = await rig.router({
    config: { overflow: [backend(engine.url)], "api-keys": [{ name: "team", key: "key-of-the-team" }] },
  });
  const answer = await post(chatUrl(router), chat(), {
    ...{ authorization: "Bearer key-of-the-team", cookie: "id=1", "x-forwarded-for": "10.1.2.3" },
    ...{ "x-session-id": "s", "openai-beta": "x" },
  });
  expect(answer.status).toBe(200);
  const { headers } = engine.requests[0]!;
  expect(headers).toMatchObject({ authorization: `Bearer ${key}`, "openai-beta": "x" });
  expect(Object.keys(headers)).not.toEqual(
    expect.arrayContaining([expect.stringMatching(/cookie|forwarded|session|traceparent/)]),
  );
  const shown = [answer.text, JSON.stringify(answer.headers), JSON.stringify(router.lines)].join();
  expect(shown + (await router.admin("GET", "/admin/config")).text).not.toContain(key);
});

test("Anthropic's requests go to Anthropic's backends with its headers, and to no other", async () => {
  const engine = await jsonEngine(rig, '{"type":"message","usage":{"input_tokens":7,"output_tokens":2}}');
  const openai = await provider();
  const router = await rig.router({
    config: {
      overflow: [backend(openai.url), backend(engine.url, { name: "other", api: "anthropic", key: "anthropic-key" })],
    },
  });
  const message = { model: "tiny", max_tokens: 5, messages: [{ role: "user", content: "hello" }] };
  const answer = await post(`${router.url}/v1/messages`, message);
  expect(answer.headers["x-espalier-overflow"]).toBe("other");
  const { headers, path } = engine.requests[0]!;
  expect([path, headers["x-api-key"], headers["anthropic-version"]]).toEqual([
    "/v1/messages",
    "anthropic-key",
    "2023-06-01",
  ]);
  expect(headers.authorization).toBeUndefined();
  expect((await post(chatUrl(router), chat())).headers["x-espalier-overflow"]).toBe("provider");
  // Paths that only engines have.
  expect((await post(`${router.url}/tokenize`, { model: "tiny", prompt: "hello" })).status).toBe(503);
});

test.each([
  ["a header", {}, { "x-espalier-overflow": "never" }],
  ["its class", { admission: { classes: [{ name: "default", overflow: "never" }] } }, {}],
  ["the list of tenants", { excepted: ["secretive"] }, { "x-espalier-tenant": "secretive" }],
] as const)("%s keeps a request from every provider", async (_, { excepted = [], ...config }: Json, headers) => {
  const { url, state } = await provider();
  const router = await rig.router({ config: { ...config, overflow: [backend(url, { "except-tenants": excepted })] } });
  const answer = await post(chatUrl(router), chat(), headers);
  expect([answer.status, errorOf(answer).code]).toEqual([503, "no_engine_available"]);
  expect((await state()).requests).toHaveLength(0);
});

test("a header that is neither is refused, and keys of providers that fail are none of the client's business", async () => {
  const { url } = await provider();
  const router = await rig.router({ config: { overflow: [backend(url, { key: "a-wrong-key" })] } });
  expect((await post(chatUrl(router), chat(), { "x-espalier-overflow": "no" })).status).toBe(400);
  const answer = await post(chatUrl(router), chat());
  expect([answer.status, errorOf(answer).code]).toEqual([503, "no_engine_available"]);
  expect(answer.headers["retry-after"]).toBeDefined();
  const status = await statusOf(router);
  expect(status).toMatchObject({ isPaused: true, inFlight: 0, spent: { hour: 0, day: 0 } });
  expect((await router.metrics()).sum("espalier_overflow_requests_total", { outcome: "failed" })).toBe(1);
  await post(chatUrl(router), chat());
  expect((await router.metrics()).sum("espalier_overflow_withheld_total", { reason: "paused" })).toBe(1);
});

test("the next provider gets what the first one refuses, and a failure sends the request to engines that came back", async () => {
  const refusing = await httpEngine(rig, ({ response }) => response.writeHead(400).end("{}"));
  const { url } = await provider();
  const router = await rig.router({
    config: { overflow: [backend(refusing.url, { name: "picky" }), backend(url)] },
  });
  expect((await post(chatUrl(router), chat())).headers["x-espalier-overflow"]).toBe("provider");
  // It refused that request only.
  expect(await statusOf(router)).toMatchObject({ name: "picky", isPaused: false });

  const waiting: SeenRequest[] = [];
  const failing = await httpEngine(rig, (request) => waiting.push(request));
  const second = await rig.router({ config: { overflow: [backend(failing.url)] } });
  const open = openPost(chatUrl(second), chat());
  await waitFor(() => waiting.length === 1, { what: "the request at the provider" });
  const [engine] = await rig.sims(1);
  await second.admin("POST", "/admin/engines", { url: engine!.url });
  await waitFor(async () => ((await second.engines())[0]?.models?.length ?? 0) > 0, { what: "the engine" });
  waiting[0]!.response.writeHead(500).end();
  const head = await open.head;
  expect([head.statusCode, head.headers["x-espalier-engine"]]).toEqual([200, engine!.id]);
  await open.body;
});

test.each([
  [503, "provider"],
  [400, "provider"],
  // It may have computed, and be paid for.
  [500, "failing"],
])("a stream of a provider that begins with an error of status %d is the answer of %s", async (status, answering) => {
  const event = `data: {"error":{"message":"no","code":${status}}}\n\n`;
  const failing = await httpEngine(rig, ({ response }) =>
    response.writeHead(200, { "content-type": "text/event-stream" }).end(event),
  );
  const { url } = await provider();
  const router = await rig.router({
    config: { overflow: [backend(failing.url, { name: "failing" }), backend(url)] },
  });
  const answer = await post(chatUrl(router), chat({ stream: true, max_tokens: 2 }));
  expect(answer.headers["x-espalier-overflow"]).toBe(answering);
  expect(answer.text.includes(event)).toBe(answering === "failing");
});

test("a pool that scales from zero holds what no provider takes", async () => {
  const pools = [{ models: ["tiny"], "scale-from-zero": { hold: "60s" } }];
  const { url } = await provider();
  const router = await rig.router({ config: { pools, overflow: [backend(url)] } });
  expect((await post(chatUrl(router), chat())).headers["x-espalier-overflow"]).toBe("provider");
  const open = openPost(chatUrl(router), chat(), { "x-espalier-overflow": "never" });
  await waitFor(async () => (await router.metrics()).sum("espalier_admission_cold_start_requests") === 1, {
    what: "the request to wait",
  });
  const [engine] = await rig.sims(1);
  await router.admin("POST", "/admin/engines", { url: engine!.url });
  expect((await open.head).headers["x-espalier-engine"]).toBe(engine!.id);
  await open.body;
});

/** An engine that is full with the first request, which it does not answer. */
async function fullEngine(config: Json) {
  const held: SeenRequest[] = [];
  const engine = await httpEngine(rig, (request) => held.push(request));
  const classes = [{ name: "default", "max-pending-tokens": 1 }];
  const router = await rig.router({ engines: [engine.url], config: { admission: { classes }, ...config } });
  const opened = [openPost(chatUrl(router), chat())];
  await waitFor(() => held.length === 1, { what: "the first request at the engine" });
  const queued = async () => (await router.metrics()).sum("espalier_admission_queued_requests");
  return {
    ...{ router, queued },
    async wait(): Promise<void> {
      const before = await queued();
      opened.push(openPost(chatUrl(router), chat()));
      await waitFor(async () => (await queued()) > before, { what: "another one that waits" });
    },
    async close(): Promise<void> {
      for (const request of opened) request.destroy();
      await router.untilIdle();
    },
  };
}

test("behind so many others a request goes to the provider, and not before", async () => {
  const { url } = await provider();
  const full = await fullEngine({ overflow: [backend(url, { "max-queued": 2 })] });
  await full.wait();
  await full.wait();
  const explained = await full.router.admin("POST", "/admin/explain", chat());
  expect(explained.json.overflow).toEqual({ backend: "provider", reason: "queue" });
  const answer = await post(chatUrl(full.router), chat());
  expect(answer.headers).toMatchObject({ "x-espalier-overflow": "provider", "x-espalier-overflow-reason": "queue" });
  expect(await full.queued()).toBe(2);
  await full.close();
});

test("a deadline that would be missed is met by the provider; one that may not is refused as ever", async () => {
  const { url } = await provider();
  const full = await fullEngine({ overflow: [backend(url, { when: ["deadline"] })] });
  const deadline = { "x-espalier-deadline-ms": "200" };
  const answer = await post(chatUrl(full.router), chat(), deadline);
  expect(answer.headers["x-espalier-overflow-reason"]).toBe("deadline");
  const refused = await post(chatUrl(full.router), chat(), { ...deadline, "x-espalier-overflow": "never" });
  expect([refused.status, errorOf(refused).code]).toEqual([429, "deadline_missed"]);
  await full.close();
});

test("a spent budget ends it, over all routers of a mesh, for as long as the hour lasts", async () => {
  const { url } = await provider();
  // The first answer costs more than half of it.
  const overflow = [backend(url, { price: { input: 0, output: 1_000_000 }, budget: { hour: 5 } })];
  const routers = await meshRouters(rig, 2, [], { config: { overflow }, usable: 0 });
  const [one, other] = routers as readonly [RunningRouter, RunningRouter];
  expect((await post(chatUrl(one), chat())).status).toBe(200);
  await waitFor(async () => (await statusOf(other)).spent.hour === 3, { what: "the other router to hear of it" });
  const answer = await post(chatUrl(other), chat());
  expect([answer.status, errorOf(answer).code]).toEqual([503, "no_engine_available"]);
  expect((await other.metrics()).sum("espalier_overflow_withheld_total", { reason: "budget" })).toBe(1);
  // Shorter answers still fit.
  expect((await post(chatUrl(other), chat({ max_tokens: 2 }))).status).toBe(200);
});

test("watchers of decisions see what went to the provider", async () => {
  const { url } = await provider();
  const router = await rig.router({ config: { overflow: [backend(url)] } });
  const watcher = new AbortController();
  const feed = await fetch(`${router.adminUrl}/admin/decisions`, { signal: watcher.signal });
  await post(chatUrl(router), chat());
  let text = "";
  for await (const chunk of feed.body!) {
    text += Buffer.from(chunk).toString();
    if (text.includes('"policy":"overflow"')) break;
  }
  expect(text).toContain('"target":"provider"');
  watcher.abort();
});
