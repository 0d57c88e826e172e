import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, type Json, openPost, post } from "./client.ts";
import { longChat, pairRouter, pairSims } from "./disaggregation-rig.ts";
import { httpEngine, jsonEngine, rawEngine, type SeenRequest } from "./engines.ts";
import { createRig } from "./rig.ts";
import { type Collector, collector, type SeenSpan } from "./tracing-rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const callerSpan = "00f067aa0ba902b7";
const caller = { traceparent: `00-${callerTrace}-${callerSpan}-01`, tracestate: "vendor=1" };

/** Tracing of every request, unless told otherwise. */
const tracingTo = ({ endpoint }: Pick<Collector, "endpoint">, fields: Json = {}): Json => ({
  tracing: { endpoint, sample: 1, "service-name": "routers", ...fields },
});

const named = (spans: readonly SeenSpan[], name: string): readonly SeenSpan[] =>
  spans.filter((span) => span.name === name);

const traceparentOf = ({ traceId, spanId }: SeenSpan): string => `00-${traceId}-${spanId}-01`;

const usage = { prompt_tokens: 11, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 8 } };

/** Streams two tokens and what they cost. */
function stream({ response }: SeenRequest): void {
  const chunk = (fields: Json): string => `data: ${JSON.stringify({ object: "chat.completion.chunk", ...fields })}\n\n`;
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(chunk({ choices: [{ index: 0, delta: { content: "answered-secretly" } }] }));
  response.end(`${chunk({ choices: [], usage })}data: [DONE]\n\n`);
}

test("a streamed chat with a retry is one trace, from its caller to the engine that answered", async () => {
  const seen = await collector(rig);
  const bad = await rawEngine(rig, (socket) => socket.resetAndDestroy());
  const good = await httpEngine(rig, stream);
  const router = await rig.router({
    engines: [bad.url, good.url],
    config: {
      ...tracingTo(seen, { headers: "x-tenant=a%20b,authorization=Bearer%20collector-key" }),
      policy: "round_robin",
    },
  });
  const body = chat({ messages: [{ role: "user", content: "prompted-secretly" }], stream: true });
  const ask = () =>
    post(`${router.url}/v1/chat/completions?key=in-query`, body, { ...caller, authorization: "Bearer k" });

  // The rotation begins at either engine: one of two requests begins at the bad one.
  const answers = [await ask(), await ask()];
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  await waitFor(() => named(seen.spans, "chat tiny").length === 2, { what: "both traces" });

  expect(seen.batches[0]).toMatchObject({ "x-tenant": "a b", authorization: "Bearer collector-key" });
  expect(seen.spans.map(({ traceId }) => traceId)).toEqual(seen.spans.map(() => callerTrace));
  const whole = named(seen.spans, "chat tiny").find(({ attributes }) => attributes["espalier.attempts"] === 2)!;
  const within = seen.spans
    .filter(({ parentId }) => parentId === whole.spanId)
    .sort((a, b) => Number(a.startNs - b.startNs));
  expect(whole).toMatchObject({ parentId: callerSpan, kind: 2, isError: false, events: ["first_byte"] });
  expect(whole.attributes).toMatchObject({
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "tiny",
    "gen_ai.usage.input_tokens": 11,
    "gen_ai.usage.output_tokens": 2,
    "gen_ai.usage.cache_read.input_tokens": 8,
    "http.request.method": "POST",
    "http.route": "/v1/chat/completions",
    "url.path": "/v1/chat/completions",
    "http.response.status_code": 200,
    "server.address": "127.0.0.1",
    "server.port": router.port,
    "espalier.outcome": "answered",
    "espalier.policy": "round_robin",
    "espalier.engine": good.id,
    "espalier.stream": true,
    "espalier.request_id": expect.stringMatching(/^req-/),
  });
  expect(whole.resource).toMatchObject({ "service.name": "routers", "service.instance.id": expect.any(String) });
  expect(within.map(({ name }) => name)).toEqual(["accept", "pick", "upstream", "pick", "upstream"]);
  const [, , failed, , answered] = within;
  expect(failed).toMatchObject({ kind: 3, isError: true, events: ["sent"] });
  expect(failed!.attributes).toMatchObject({ "error.type": "reset", "espalier.engine": bad.id });
  expect(answered).toMatchObject({ kind: 3, isError: false, events: ["sent", "first_byte"] });
  expect(answered!.attributes).toMatchObject({ "http.response.status_code": 200, "http.request.resend_count": 1 });
  expect(`http://${answered!.attributes["server.address"]}:${answered!.attributes["server.port"]}`).toBe(good.url);
  for (const { startNs, endNs } of within) {
    expect(startNs >= whole.startNs && startNs <= endNs && endNs <= whole.endNs).toBe(true);
  }
  // Engines' own traces hang below the call that reached them.
  const calls = named(seen.spans, "upstream").filter(({ attributes }) => attributes["espalier.engine"] === good.id);
  expect(good.requests.map(({ headers }) => headers.traceparent).sort()).toEqual(calls.map(traceparentOf).sort());
  expect(good.requests.map(({ headers }) => headers.tracestate)).toEqual(["vendor=1", "vendor=1"]);

  const reported = JSON.stringify(seen.spans, (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  for (const secret of ["prompted-secretly", "answered-secretly", "Bearer", "in-query"])
    expect(reported).not.toContain(secret);
});

test("a policy that looks at prefixes shows how long reading and matching the prompt took", async () => {
  const seen = await collector(rig);
  const sims = await rig.sims(2);
  const router = await rig.router({
    engines: sims.map(({ url }) => url),
    config: { ...tracingTo(seen), policy: "cache_aware" },
  });
  await post(`${router.url}/v1/chat/completions`, chat({ messages: [{ role: "user", content: "x".repeat(4_000) }] }));

  const spans = await seen.traceOf("chat tiny");

  const [whole] = named(spans, "chat tiny");
  expect(whole!.parentId).toBe("");
  const within = spans.filter(({ parentId }) => parentId === whole!.spanId);
  expect(within.map(({ name }) => name)).toEqual(["accept", "tokenize", "match", "pick", "upstream"]);
  expect(within[1]!.attributes).toMatchObject({
    "espalier.prompt_from": "bytes",
    "espalier.prompt_tokens": expect.any(Number),
  });
  const chosen = { "espalier.policy": "cache_aware", "espalier.cache_hit_tokens": expect.any(Number) };
  expect(within[3]!.attributes).toMatchObject({ ...chosen, "espalier.reason": expect.any(String) });
  expect(whole!.attributes).toMatchObject(chosen);
});

test("time in the queue is a span of its own, and is told with the class", async () => {
  const seen = await collector(rig);
  const open: SeenRequest[] = [];
  const engine = await httpEngine(rig, (request) => open.push(request));
  const classes = ["interactive", "default", "batch"].map((name) => ({ name, "max-pending-tokens": 1 }));
  const router = await rig.router({ engines: [engine.url], config: { ...tracingTo(seen), admission: { classes } } });
  const queued = async () => (await router.metrics()).sum("espalier_admission_queued_requests");
  const answer = ({ response }: SeenRequest) =>
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ usage }));
  const send = (headers: Readonly<Record<string, string>> = {}) =>
    openPost(
      `${router.url}/v1/chat/completions`,
      chat({ messages: [{ role: "user", content: "x".repeat(2_000) }] }),
      headers,
    );

  send();
  await waitFor(() => open.length === 1, { what: "the first at the engine" });
  const second = send({ "x-espalier-priority": "batch", "x-espalier-tenant": "named-tenant" });
  await waitFor(async () => (await queued()) === 1, { what: "the second in the queue" });
  answer(open[0]!);
  await waitFor(() => open.length === 2, { what: "the second at the engine" });
  answer(open[1]!);
  await second.body;
  await waitFor(() => named(seen.spans, "chat tiny").length === 2, { what: "both traces" });

  const queues = named(seen.spans, "queue");
  expect(queues.map(({ attributes }) => attributes["espalier.queue_outcome"])).toEqual(["admitted"]);
  const whole = seen.spans.find(({ spanId }) => spanId === queues[0]!.parentId)!;
  expect(whole.attributes).toMatchObject({ "espalier.class": "batch", "espalier.queued_ms": expect.any(Number) });
  // Measured at both ends by two reads of the clock each, between which a busy machine may do something else.
  const spanMs = Number(queues[0]!.endNs - queues[0]!.startNs) / 1e6;
  expect(Math.abs(spanMs - (whole.attributes["espalier.queued_ms"] as number))).toBeLessThan(250);
  expect(Object.values(whole.attributes)).not.toContain("named-tenant");
});

test("of a prefill and decode pair, each engine is told of its own call", async () => {
  const seen = await collector(rig);
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["prefill", "decode"] });
  const [prefill, decode] = sims;
  const router = await pairRouter(rig, sims, tracingTo(seen));
  const answer = await post(`${router.url}/v1/chat/completions`, longChat("once"));
  expect(answer.headers["x-espalier-prefill-engine"]).toBe(prefill!.id);

  const spans = await seen.traceOf("chat tiny");

  const [whole] = named(spans, "chat tiny");
  expect(whole!.attributes).toMatchObject({ "espalier.prefill_engine": prefill!.id, "espalier.engine": decode!.id });
  for (const [name, sim] of [
    ["prefill", prefill!],
    ["upstream", decode!],
  ] as const) {
    const [call] = named(spans, name);
    expect(call).toMatchObject({ parentId: whole!.spanId, kind: 3, isError: false });
    expect(call!.attributes).toMatchObject({ "espalier.engine": sim.id, "http.response.status_code": 200 });
    expect((await sim.requests()).map(({ headers }) => headers.traceparent)).toEqual([traceparentOf(call!)]);
  }
});

test("of requests that are not sampled those that fail are kept, in the trace that the engine was told of", async () => {
  const seen = await collector(rig);
  const engine = await httpEngine(rig, ({ body, response }) => {
    response.writeHead(body.includes("fail") ? 500 : 200, { "content-type": "application/json" }).end("{}");
  });
  const router = await rig.router({ engines: [engine.url], config: tracingTo(seen, { sample: 0 }) });
  const ask = (content: string, headers: Readonly<Record<string, string>> = {}) =>
    post(`${router.url}/v1/chat/completions`, chat({ messages: [{ role: "user", content }] }), headers);
  const unsampled = { traceparent: `00-${callerTrace}-${callerSpan}-00` };

  await ask("good");
  await ask("fail", unsampled);
  await ask("fail");
  await post(`${router.url}/v1/chat/completions`, "{");
  const [whole, ...others] = await seen.traceOf("chat tiny");
  await ask("good", caller);
  await waitFor(() => seen.spans.some(({ traceId }) => traceId === callerTrace), { what: "the caller's trace" });

  expect(others).toEqual([]);
  expect(whole).toMatchObject({ parentId: "", kind: 2, isError: true });
  expect(whole!.attributes).toMatchObject({
    "error.type": "500",
    "espalier.attempts": 1,
    "espalier.engine": engine.id,
  });
  const reported = engine.requests.map(({ headers }) => headers.traceparent);
  expect(reported[1]).toBe(unsampled.traceparent);
  expect(reported[2]).toBe(`00-${whole!.traceId}-${whole!.spanId}-00`);
  expect(new Set(seen.spans.map(({ traceId }) => traceId))).toEqual(new Set([whole!.traceId, callerTrace]));
});

test("what is refused before an engine is asked ends its trace with what the client was told", async () => {
  const seen = await collector(rig);
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({
    engines: [engine.url],
    config: { ...tracingTo(seen), limits: { "max-body-bytes": "1KiB" } },
  });
  const url = `${router.url}/v1/chat/completions`;
  await post(url, "{");
  await post(url, chat({ model: "nobody-serves-this" }));
  await post(url, "x".repeat(2_000));
  await waitFor(() => named(seen.spans, "chat").length === 3, { what: "three traces" });

  const ends = named(seen.spans, "chat").map(({ attributes, isError }) => [
    attributes["http.response.status_code"],
    attributes["espalier.outcome"],
    isError,
  ]);
  expect(ends).toEqual([
    [400, "invalid_json", false],
    [404, "model_not_found", false],
    [413, "body_too_large", false],
  ]);
});

test.each(["", "/", "/prefix", "/prefix/v1/traces", "/v1/traces/"])(
  "a collector at the base URL with %j behind it gets them at its path for traces",
  async (path) => {
    const seen = await collector(rig);
    const engine = await jsonEngine(rig, "{}");
    const router = await rig.router({ engines: [engine.url], config: tracingTo({ endpoint: seen.endpoint + path }) });
    await post(`${router.url}/v1/chat/completions`, chat());
    await seen.traceOf("chat tiny");
    const prefix = path.startsWith("/prefix") ? "/prefix" : "";
    expect(new Set(seen.paths)).toEqual(new Set([`POST ${prefix}/v1/traces`]));
  },
);

test("the end of a router sends what it has recorded", async () => {
  const seen = await collector(rig);
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url], config: tracingTo(seen) });
  await post(`${router.url}/v1/chat/completions`, chat());
  await router.untilIdle();

  await router.router.stop();

  expect(named(seen.spans, "chat tiny")).toHaveLength(1);
});

test.each([
  ["is not there", async (): Promise<string> => "http://127.0.0.1:1"],
  ["refuses everything", async () => (await collector(rig, (response) => void response.writeHead(400).end())).endpoint],
])("a collector that %s costs requests nothing, and is logged once", async (_, start) => {
  const engine = await jsonEngine(rig, '{"good":true}');
  const router = await rig.router({ engines: [engine.url], config: tracingTo({ endpoint: await start() }) });
  const lost = async (outcome: string) => (await router.metrics()).sum("espalier_trace_spans_total", { outcome });

  for (let batch = 1; batch <= 2; batch++) {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => post(`${router.url}/v1/chat/completions`, chat())),
    );
    expect(answers.map(({ text }) => text)).toEqual(answers.map(() => '{"good":true}'));
    await waitFor(async () => (await lost("failed")) >= batch * 64, { what: "a batch given up", deadlineMs: 20_000 });
  }

  const warnings = router.lines.filter(({ message }) => message.includes("spans lost"));
  expect(warnings).toHaveLength(1);
  expect(await lost("sent")).toBe(0);
});
