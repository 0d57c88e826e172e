import { afterEach, expect, test } from "vitest";
import { chat, errorOf, eventData, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

/*
 * An engine that failed inside an answer with status 200 counted as one that answers, and fast: it was always idle, so that
 * routing by load sent it most of the traffic. Engines send the head of a stream before they compute, and what fails later is
 * an event. A replica that answers everything with a client error drew the traffic in the same way.
 */

const rig = createRig();
afterEach(() => rig.close());

const breaker = { "consecutive-failures": 3, "window-requests": 6, open: "60s", "max-open": "60s" };
/** The other engine gives one answer to everything, and none of them goes on with a stream. */
const config = { policy: "round_robin", breaker, resume: { max: 0 } };

const eventsType = "text/event-stream; charset=utf-8";
const jsonType = "application/json";
const chunkOf = (choice: object): string =>
  `data: ${JSON.stringify({ id: "x", choices: [{ index: 0, ...choice }] })}\n\n`;
const content = chunkOf({ delta: { content: "a" }, finish_reason: null });
const done = "data: [DONE]\n\n";
const named = (type: string, data: object): string => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
const meta = (reason: object | null): string =>
  `data: ${JSON.stringify({ text: "", meta_info: { finish_reason: reason } })}\n\n`;
const coreDead = { message: "EngineCore encountered an issue.", type: "InternalServerError", param: null, code: 500 };

const broken: readonly [name: string, path: string, contentType: string, body: string][] = [
  ["vLLM's error event", "/v1/chat/completions", eventsType, `data: ${JSON.stringify({ error: coreDead })}\n\n${done}`],
  ["vLLM's error in a body", "/v1/chat/completions", jsonType, JSON.stringify({ error: coreDead })],
  ["SGLang's flat error", "/v1/completions", jsonType, JSON.stringify({ object: "error", ...coreDead })],
  ["an error of embeddings", "/v1/embeddings", jsonType, JSON.stringify({ error: coreDead })],
  ["an error of a reranker", "/v1/rerank", jsonType, JSON.stringify({ error: coreDead })],
  ["no event", "/v1/chat/completions", eventsType, ""],
  ["no body", "/v1/chat/completions", jsonType, ""],
  ["[DONE] alone", "/v1/chat/completions", eventsType, done],
  [
    "a role and no content",
    "/v1/chat/completions",
    eventsType,
    chunkOf({ delta: { role: "assistant", content: "" } }) + done,
  ],
  ["no end", "/v1/chat/completions", eventsType, content],
  ["an error after content", "/v1/chat/completions", eventsType, `${content}data: {"error": {"code": 500}}\n\n${done}`],
  ["an abort", "/v1/chat/completions", eventsType, content + chunkOf({ delta: {}, finish_reason: "abort" }) + done],
  ["SGLang's abort", "/generate", eventsType, meta({ type: "abort", message: "Abort in waiting queue" }) + done],
  [
    "SGLang's abort in a body",
    "/generate",
    jsonType,
    JSON.stringify({ text: "", meta_info: { finish_reason: { type: "abort" } } }),
  ],
  ["Anthropic's error", "/v1/messages", eventsType, named("error", { error: { type: "api_error", message: "x" } })],
  [
    "Anthropic's error after message_start",
    "/v1/messages",
    eventsType,
    named("message_start", { message: {} }) + named("error", { error: { type: "overloaded_error" } }),
  ],
  [
    "a failed response",
    "/v1/responses",
    eventsType,
    named("response.created", { response: {} }) +
      named("response.failed", { response: { status: "failed", error: { code: "server_error" } } }),
  ],
  [
    "a failed response in a body",
    "/v1/responses",
    jsonType,
    '{"id":"r","status":"failed","error":{"code":"server_error"}}',
  ],
  [
    "an error of the Responses API",
    "/v1/responses",
    eventsType,
    named("error", { code: "server_error", message: "x" }),
  ],
];

const bodies: Readonly<Record<string, object>> = {
  "/v1/embeddings": { model: "tiny", input: "hi" },
  "/v1/rerank": { model: "tiny", query: "q", documents: ["d"] },
  "/v1/completions": { model: "tiny", prompt: "hi", max_tokens: 2 },
  "/generate": { text: "hi", sampling_params: { max_new_tokens: 2 } },
  "/v1/responses": { model: "tiny", input: "hi" },
};

async function breakerOf(router: RunningRouter, id: string): Promise<string | undefined> {
  return (await router.engines()).find((engine) => engine.id === id)?.breaker.state;
}

test.each(broken)(
  "%s on %s opens the breaker of an engine that answers so, and its bytes pass until then",
  async (_, path, type, text) => {
    const bad = await httpEngine(rig, ({ response }) => response.writeHead(200, { "content-type": type }).end(text));
    const good = await httpEngine(rig, ({ response }) =>
      response.writeHead(200, { "content-type": jsonType }).end("{}"),
    );
    const router = await rig.router({ engines: [bad.url, good.url], config });
    const body = { ...(bodies[path] ?? chat()), ...(type === eventsType && { stream: true }) };
    const passed: string[] = [];
    for (let at = 0; at < 20; at++) {
      const answer = await post(`${router.url}${path}`, body);
      if (answer.headers["x-espalier-engine"] === bad.id) passed.push(answer.text);
      else if (text !== "") expect(answer.text).toBe("{}");
    }
    expect(bad.requests.length).toBeLessThanOrEqual(6);
    expect(await breakerOf(router, bad.id)).toBe("open");
    expect(new Set(passed)).toEqual(new Set(text === "" ? [] : [text]));
    await router.untilIdle();
    const page = await router.metrics();
    expect(page.sum("espalier_proxy_attempts_total", { outcome: "broken" })).toBe(bad.requests.length);
  },
);

test("an empty answer is 502, and no other engine is asked: the head of an answer had come", async () => {
  const empty = () => httpEngine(rig, ({ response }) => response.writeHead(200, { "content-type": eventsType }).end());
  const engines = [await empty(), await empty()];
  const router = await rig.router({ engines: engines.map(({ url }) => url), config });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  expect([answer.status, errorOf(answer).code]).toEqual([502, "upstream_cut_short"]);
  expect(engines.map(({ requests }) => requests.length).sort()).toEqual([0, 1]);
});

test.each([
  ["vllm", "vllm-0.32.0:errors-are-events"],
  ["sglang", "sglang-0.5.23:errors-are-events"],
] as const)(
  "%s: an event that says the queue is full is like status 503: another engine gets the request",
  async (flavour, name) => {
    const [full, idle] = await rig.sims(2, { parameters: { flavour }, behaviours: [name] });
    const router = await rig.router({ engines: [full!.url, idle!.url], config });
    await full!.fault({ kind: "status", status: 503 });
    for (let at = 0; at < 12; at++) {
      const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true, max_tokens: 3 }));
      expect(answer.headers["x-espalier-engine"]).toBe(idle!.id);
      expect(eventData(answer.text).at(-1)).toBe("[DONE]");
      expect(answer.text).not.toContain("error");
    }
    expect((await full!.state()).totals.faulted ?? 0).toBeLessThanOrEqual(3);
  },
);

test("an event that says no more than that the engine failed passes as it came: the engine may have computed", async () => {
  const [sick, other] = await rig.sims(2, { behaviours: ["vllm-0.32.0:errors-are-events"] });
  const router = await rig.router({ engines: [sick!.url, other!.url], config });
  for (const sim of [sick, other]) await sim!.fault({ kind: "sick", count: 1 });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true, max_tokens: 3 }));
  expect([answer.status, answer.headers["x-espalier-attempts"]]).toEqual([200, "1"]);
  expect(eventData(answer.text)).toEqual([expect.stringContaining('"code":500'), "[DONE]"]);
});

const refusing = (status: number, isEvent: boolean) => {
  const error = JSON.stringify({ error: { message: "no", type: "BadRequestError", param: null, code: status } });
  return httpEngine(rig, ({ response }) => {
    if (isEvent) response.writeHead(200, { "content-type": eventsType }).end(`data: ${error}\n\n${done}`);
    else response.writeHead(status, { "content-type": jsonType }).end(error);
  });
};

test.each([
  [400, false],
  [401, false],
  [422, false],
  [400, true],
])(
  "an engine alone in its client errors (%d, as an event: %s) is left out, and clients notice three of them",
  async (status, isEvent) => {
    const bad = await refusing(status, isEvent);
    const [good] = await rig.sims(1);
    const router = await rig.router({ engines: [bad.url, good!.url], config });
    let noticed = 0;
    for (let at = 0; at < 30; at++) {
      const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true, max_tokens: 2 }));
      if (answer.headers["x-espalier-engine"] === bad.id) noticed += 1;
      else expect(answer.status).toBe(200);
    }
    expect([noticed, bad.requests.length]).toEqual([3, 6]);
    expect(await breakerOf(router, bad.id)).toBe("open");
  },
);

test.each([false, true])(
  "a client error that all engines give is the client's (as an event: %s): no breaker opens, and few are sent twice",
  async (isEvent) => {
    const engines = [await refusing(400, isEvent), await refusing(400, isEvent)];
    const router = await rig.router({ engines: engines.map(({ url }) => url), config });
    for (let at = 0; at < 40; at++) {
      const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true }));
      expect(answer.text).toContain('"code":400');
    }
    for (const { id } of engines) expect(await breakerOf(router, id)).toBe("closed");
    expect(engines.reduce((sum, { requests }) => sum + requests.length, 0)).toBeLessThanOrEqual(40 + 40 / 3);
  },
);

test("comments do not keep a stream without content alive: it ends at the time for the first byte", async () => {
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": eventsType });
    const timer = setInterval(() => response.write(": keep-alive\n\n"), 20);
    response.on("close", () => clearInterval(timer));
  });
  const router = await rig.router({ engines: [engine.url], config: { timeouts: { "first-byte": "500ms" } } });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  expect(answer.status).toBe(200);
  expect(answer.text.startsWith(": keep-alive\n\n")).toBe(true);
  expect(JSON.parse(eventData(answer.text).at(-1)!)).toMatchObject({ error: { code: "upstream_timeout" } });
  await router.untilIdle();
});
