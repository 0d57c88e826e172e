import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { bodyModes } from "@espalier/server";
import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { chat, type Json } from "./client.ts";
import { type HttpEngine, httpEngine, jsonEngine } from "./engines.ts";
import { gatewayOf, type PlayedExchange, pickerConfig, routeOf, textsOf } from "./gateway.ts";
import { createRig, type Extensions, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const usage = {
  prompt_tokens: 7,
  completion_tokens: 10,
  total_tokens: 17,
  prompt_tokens_details: { cached_tokens: 3 },
};

/** Engines that never get a request: the gateway plays their answers. */
async function pods(count: number): Promise<readonly HttpEngine[]> {
  return Promise.all(Array.from({ length: count }, () => jsonEngine(rig, "{}")));
}

async function picker(
  engines: readonly HttpEngine[],
  config: Json = {},
  picks: Json = {},
  extensions: Extensions = {},
) {
  const router = await rig.router({
    extensions,
    engines: engines.map(({ url }) => url),
    config: { policy: "round_robin", "endpoint-picker": { ...pickerConfig, ...picks }, ...config },
  });
  return { router, gateway: gatewayOf(rig, router) };
}

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** Bytes of buffers of this process that something refers to. */
function collectedBytes(): number {
  collect();
  collect();
  return process.memoryUsage().arrayBuffers;
}

const prompt = (text = "hello"): string => JSON.stringify(chat({ messages: [{ role: "user", content: text }] }));

/** Lets the exchange's answer pass: a JSON body in one piece. */
async function finish(exchange: PlayedExchange, body = JSON.stringify({ usage })): Promise<void> {
  exchange.answer(200, { "content-type": "application/json" }).answerBody(body);
  expect(await exchange.next()).toHaveProperty("responseHeaders");
  expect(await exchange.next()).toHaveProperty("responseBody");
  expect(await exchange.stream.receive()).toBeUndefined();
}

describe("a request whose body is streamed both ways", () => {
  test("goes to an engine by header and metadata, with fallbacks, after its whole body, which passes unchanged", async () => {
    const engines = await pods(3);
    const { router, gateway } = await picker(engines);
    const body = prompt();
    const exchange = gateway.exchange().head({ headers: { "x-request-id": "id-1", hi: "mom" } });
    exchange.body(body.slice(0, 20), false).body(body.slice(20), false).body("", true);

    const { destinations, metadata, set, removed, body: sent } = await exchange.routed();

    expect([...destinations].sort()).toEqual(engines.map(({ id }) => id).sort());
    expect(metadata).toEqual({ "x-gateway-destination-endpoint": destinations.join(",") });
    expect(set).toEqual({ "x-gateway-destination-endpoint": destinations.join(",") });
    expect(removed).toEqual([]);
    expect(sent.toString()).toBe(body);

    exchange.answer(200, { "content-type": "application/json" }, destinations[0]);
    exchange.answerBody('{"usage":', false).answerBody(`${JSON.stringify(usage)}}`);
    const head = textsOf((await exchange.next()).responseHeaders?.response?.headerMutation?.setHeaders ?? []);
    expect(head).toMatchObject({ "x-espalier-engine": destinations[0], "x-request-id": "id-1" });
    const pieces = [await exchange.next(), await exchange.next()].map(
      ({ responseBody }) => responseBody?.response?.bodyMutation?.streamedResponse,
    );
    expect(pieces.map((piece) => Buffer.from(piece?.body ?? "").toString()).join("")).toBe(JSON.stringify({ usage }));
    expect(pieces.map((piece) => piece?.endOfStream)).toEqual([false, true]);
    expect(await exchange.stream.receive()).toBeUndefined();
    await router.untilIdle();
    const metrics = await router.metrics();
    expect(metrics.sum("espalier_requests_total", { endpoint: "chat", model: "tiny", status: "200" })).toBe(1);
    expect(metrics.sum("espalier_tokens_total", { kind: "prompt" })).toBe(7);
    expect(metrics.sum("espalier_tokens_total", { kind: "cached" })).toBe(3);
  });

  test("is sent on in pieces: one of exactly the greatest size, two of one byte more", async () => {
    const { gateway } = await picker(await pods(1));
    for (const [length, pieces] of [
      [262_144, 1],
      [262_145, 2],
    ] as const) {
      const frame = prompt("").length;
      const exchange = gateway
        .exchange()
        .head()
        .body(prompt("x".repeat(length - frame)));
      expect(await exchange.next()).toHaveProperty("requestHeaders");
      const sizes: number[] = [];
      for (let isLast = false; !isLast; ) {
        const { streamedResponse } = (await exchange.next()).requestBody!.response!.bodyMutation!;
        sizes.push(streamedResponse!.body!.length);
        isLast = streamedResponse!.endOfStream!;
      }
      expect(sizes).toHaveLength(pieces);
      expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(length);
      await finish(exchange);
    }
  });

  test("has trailers: they pass after the body, in both directions", async () => {
    const { gateway, router } = await picker(await pods(1));
    const exchange = gateway.exchange().head().body(prompt(), false).trailers("requestTrailers");
    expect(await exchange.next()).toHaveProperty("requestHeaders");
    expect((await exchange.next()).requestBody?.response?.bodyMutation?.streamedResponse?.endOfStream).toBe(false);
    expect(await exchange.next()).toHaveProperty("requestTrailers");
    exchange.answer(200, { "content-type": "application/json" }).answerBody("{}", false).trailers("responseTrailers");
    expect(await exchange.next()).toHaveProperty("responseHeaders");
    expect((await exchange.next()).responseBody?.response?.bodyMutation?.streamedResponse?.endOfStream).toBe(false);
    expect(await exchange.next()).toHaveProperty("responseTrailers");
    expect(await exchange.stream.receive()).toBeUndefined();
    await router.untilIdle();
  });

  test("gets an id if it has none, and loses headers that steer the router", async () => {
    const { gateway } = await picker(await pods(1));
    const headers = {
      "x-llm-d-inference-objective": "chat",
      "x-gateway-inference-fairness-id": "team",
      "x-llm-d-slo-ttft-ms": "5000",
      "x-slo-tpot-ms": "20",
      "x-espalier-priority": "batch",
      "x-prefiller-host-port": "10.0.0.9:8000",
      "x-gateway-destination-endpoint": "10.0.0.9:8000",
      kept: "yes",
    };
    const exchange = gateway.exchange().head({ headers }).body(prompt());
    const { set, removed } = await exchange.routed();
    expect(set["x-request-id"]).toMatch(/^req-[0-9a-f]{24}$/);
    expect(set["x-gateway-destination-endpoint"]).toMatch(/^127\.0\.0\.1:\d+$/);
    expect(removed).toEqual([
      "x-espalier-priority",
      "x-gateway-inference-fairness-id",
      "x-llm-d-inference-objective",
      "x-llm-d-slo-ttft-ms",
      "x-prefiller-host-port",
      "x-slo-tpot-ms",
    ]);
    await finish(exchange);
  });

  test("of another model's name: an alias, or the header of gateways, changes the body", async () => {
    const { gateway } = await picker(await pods(1), { models: { aliases: { "gpt-4": "tiny" } } });
    const aliased = gateway
      .exchange()
      .head()
      .body(JSON.stringify({ ...chat(), model: "gpt-4" }));
    expect(JSON.parse((await aliased.routed()).body.toString())).toEqual(chat());
    const headers = { "x-llm-d-model-name-rewrite": "tiny" };
    const renamed = gateway
      .exchange()
      .head({ headers })
      .body(JSON.stringify({ ...chat(), model: "other" }));
    const { body, removed } = await renamed.routed();
    expect(JSON.parse(body.toString())).toEqual(chat());
    expect(removed).toEqual(["x-llm-d-model-name-rewrite"]);
  });

  test("streams: usage is asked for, counted, and taken out again", async () => {
    const { gateway, router } = await picker(await pods(1));
    const exchange = gateway
      .exchange()
      .head()
      .body(JSON.stringify(chat({ stream: true })));
    expect(JSON.parse((await exchange.routed()).body.toString())).toMatchObject({
      stream_options: { include_usage: true },
    });
    exchange.answer(200, { "content-type": "text/event-stream" });
    const token = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n';
    exchange.answerBody(token, false);
    expect(await exchange.next()).toHaveProperty("responseHeaders");
    const first = (await exchange.next()).responseBody?.response?.bodyMutation?.streamedResponse;
    expect(Buffer.from(first?.body ?? "").toString()).toBe(token);
    exchange.answerBody(`data: ${JSON.stringify({ choices: [], usage })}\n\n`, false).answerBody("data: [DONE]\n\n");
    const last = (await exchange.next()).responseBody?.response?.bodyMutation?.streamedResponse;
    expect([Buffer.from(last?.body ?? "").toString(), last?.endOfStream]).toEqual(["data: [DONE]\n\n", true]);
    await router.untilIdle();
    expect((await router.metrics()).sum("espalier_tokens_total", { kind: "completion" })).toBe(10);
  });

  test("to a path with a prefix, or to one that only the body explains, is planned like any other", async () => {
    const { gateway, router } = await picker(await pods(1));
    for (const path of ["/team/llama/v1/chat/completions?x=1", "/write"]) {
      const exchange = gateway.exchange().head({ path }).body(prompt());
      expect((await exchange.routed()).body.toString()).toBe(prompt());
      await finish(exchange);
    }
    await router.untilIdle();
    expect((await router.metrics()).sum("espalier_requests_total", { endpoint: "chat", status: "200" })).toBe(2);
  });

  test("that is no JSON passes to a path that needs none", async () => {
    const { gateway } = await picker(await pods(1));
    const headers = { "content-type": "audio/wav" };
    const exchange = gateway
      .exchange()
      .head({ path: "/v1/audio/transcriptions", headers })
      .body(Buffer.from([0, 255]));
    expect([...(await exchange.routed()).body]).toEqual([0, 255]);
    await finish(exchange);
  });

  test("without a body goes to any engine", async () => {
    const engines = await pods(2);
    const { gateway } = await picker(engines);
    const exchange = gateway.exchange().head({ method: "GET", path: "/v1/models", endOfStream: true });
    const { destinations } = routeOf(await exchange.next());
    expect(engines.map(({ id }) => id)).toContain(destinations[0]);
    await finish(exchange);
  });
});

describe("a subset of endpoints", () => {
  test.each([
    ["one", (ids: readonly string[]) => [ids[2]!], [2]],
    ["some, by address and port", (ids: readonly string[]) => [ids[0]!, ids[2]!, "192.0.2.1:80"], [0, 2]],
    ["an address without a port, which is all of them", () => ["127.0.0.1"], [0, 1, 2]],
  ] as const)("of %s: no other one is named, also as a fallback", async (_, subsetOf, allowed) => {
    const engines = await pods(3);
    const ids = engines.map(({ id }) => id);
    const { gateway } = await picker(engines);
    for (let turn = 0; turn < 3; turn++) {
      const exchange = gateway
        .exchange()
        .head({ subset: subsetOf(ids) })
        .body(prompt());
      const { destinations } = await exchange.routed();
      expect([...destinations].sort()).toEqual(allowed.map((at) => ids[at]!).sort());
      await finish(exchange);
    }
  });

  test.each([
    ["without a match", ["192.0.2.1:8000"]],
    ["that is empty", []],
  ])("%s: 503, and the next request is served", async (_, subset) => {
    const { gateway } = await picker(await pods(1));
    const refused = await gateway.exchange().head({ subset }).body(prompt()).refused();
    expect(refused).toMatchObject({
      status: 503,
      headers: { "x-llm-d-request-dropped-reason": "rejected-no-endpoints", "content-type": "application/json" },
    });
    expect(JSON.parse(refused.text)).toMatchObject({ error: { code: "no_engine_available" } });
    const next = gateway.exchange().head().body(prompt());
    await next.routed();
    await finish(next);
  });
});

test("a program's hooks steer requests of gateways, and its auth decides who may ask", async () => {
  const engines = [await jsonEngine(rig, "{}"), await jsonEngine(rig, "{}")];
  const { gateway } = await picker(
    engines,
    { policy: "consistent_hashing" },
    {},
    {
      auth: async ({ headers }) => (headers["x-user"] === undefined ? undefined : { name: "ada" }),
      hooks: { onRequest: async () => ({ headers: { "x-espalier-session-id": "one session" } }) },
    },
  );
  const seen = new Set<string>();
  for (const session of ["a", "b", "c", "d", "e", "f"]) {
    const headers = { "x-user": "ada", "x-session-id": session };
    const exchange = gateway.exchange().head({ headers }).body(prompt());
    seen.add((await exchange.routed()).destinations[0]!);
    await finish(exchange);
  }
  expect(seen.size).toBe(1);
  expect(await gateway.exchange().head().body(prompt()).refused()).toMatchObject({ status: 401 });
});

describe("a request that is refused", () => {
  test.each([
    ["JSON that ends too early", "{", 400, "invalid_json"],
    ["no model", '{"messages":[{"role":"user","content":"x"}]}', 400, "missing_field"],
    ["a model that nobody has", JSON.stringify({ ...chat(), model: "other" }), 404, "model_not_found"],
    ["a field that names engines", JSON.stringify(chat({ bootstrap_host: "10.0.0.1" })), 400, "reserved_field"],
  ])("for %s: the error that the proxy answers, and life goes on", async (_, body, status, code) => {
    const [one, two] = await Promise.all([jsonEngine(rig, "{}"), jsonEngine(rig, "{}", { models: ["small"] })]);
    const { gateway, router } = await picker([one!, two!]);
    const refused = await gateway.exchange().head().body(body).refused();
    expect([refused.status, (JSON.parse(refused.text) as { error: Json }).error.code]).toEqual([status, code]);
    expect(refused.headers).not.toHaveProperty("x-llm-d-request-dropped-reason");
    const next = gateway.exchange().head().body(prompt());
    await next.routed();
    await finish(next);
    await router.untilIdle();
  });

  test("for its size: at once, before the rest of the body; one byte less is served", async () => {
    const { gateway, router } = await picker(await pods(1), { limits: { "max-body-bytes": "1KiB" } });
    const body = prompt("x".repeat(1_024 - prompt("").length));
    const exact = gateway.exchange().head().body(body);
    expect((await exact.routed()).body).toHaveLength(1_024);
    await finish(exact);
    const refused = await gateway.exchange().head().body(`${body} `, false).refused();
    expect(refused.status).toBe(413);
    const declared = await gateway
      .exchange()
      .head({ headers: { "content-length": "1025" } })
      .refused();
    expect(declared.status).toBe(413);
    await router.untilIdle();
  });

  test("for its key, which engines do not get", async () => {
    const { gateway } = await picker(await pods(1), { "api-keys": [{ name: "team", key: "key-of-the-team" }] });
    expect((await gateway.exchange().head().refused()).status).toBe(401);
    const headers = { authorization: "Bearer key-of-the-team" };
    const exchange = gateway.exchange().head({ headers }).body(prompt());
    expect((await exchange.routed()).removed).toEqual(["authorization"]);
    await finish(exchange);
  });

  test("because no engine is there", async () => {
    const { gateway } = await picker([]);
    const exchange = gateway.exchange().head({ method: "GET", path: "/v1/models", endOfStream: true });
    expect(await exchange.refused()).toMatchObject({
      status: 503,
      headers: { "x-llm-d-request-dropped-reason": "rejected-no-endpoints", "retry-after": "1" },
    });
  });

  test("in the shape of Anthropic's errors on Anthropic's path", async () => {
    const { gateway } = await picker(await pods(1));
    const refused = await gateway.exchange().head({ path: "/v1/messages" }).body("{").refused();
    expect(JSON.parse(refused.text)).toMatchObject({ type: "error", error: { type: "invalid_request_error" } });
  });

  test("because its body does not come", async () => {
    const { gateway, router } = await picker(await pods(1), { timeouts: { "request-receive": "100ms" } });
    expect((await gateway.exchange().head().body("{", false).refused()).status).toBe(408);
    await router.untilIdle();
  });
});

describe("queueing", () => {
  const oneAtATime = { admission: { classes: [{ name: "default", "max-pending-tokens": 1 }] } };
  const long = prompt("x".repeat(2_000));

  test("holds the answer until an engine has capacity", async () => {
    const { gateway, router } = await picker(await pods(1), oneAtATime);
    const running = gateway.exchange().head().body(long);
    await running.routed();
    const waiting = gateway.exchange().head().body(long);
    await waitFor(async () => (await router.metrics()).sum("espalier_admission_queued_requests") === 1, {
      what: "queue",
    });
    await finish(running);
    await waiting.routed();
    await finish(waiting);
    await router.untilIdle();
  });

  test("ends by the picker's own deadline, and the place is free again", async () => {
    const { gateway, router } = await picker(await pods(1), oneAtATime, { "answer-within": "200ms" });
    const running = gateway.exchange().head().body(long);
    await running.routed();
    const late = await gateway.exchange().head().body(long).refused();
    expect(late).toMatchObject({ status: 429, headers: { "x-llm-d-request-dropped-reason": "rejected-ttl-expired" } });
    await finish(running);
    const next = gateway.exchange().head().body(long);
    await next.routed();
    await finish(next);
    await router.untilIdle();
  });

  test("refuses with the reason when the queue is full, and a client that leaves makes room", async () => {
    const { gateway, router } = await picker(await pods(1), {
      admission: { ...oneAtATime.admission, "max-queued": 1 },
    });
    const queued = async () => (await router.metrics()).sum("espalier_admission_queued_requests");
    const running = gateway.exchange().head().body(long);
    await running.routed();
    const waiting = gateway.exchange().head().body(long);
    await waitFor(async () => (await queued()) === 1, { what: "queue" });
    const refused = await gateway.exchange().head().body(long).refused();
    expect(refused).toMatchObject({ status: 429, headers: { "x-llm-d-request-dropped-reason": "rejected-saturated" } });
    waiting.stream.end();
    await waitFor(async () => (await queued()) === 0, { what: "empty queue" });
    await finish(running);
    await router.untilIdle();
  });
});

describe("other ways in which gateways show bodies", () => {
  test("buffered: the route comes with the body, which changes only where it must", async () => {
    const { gateway } = await picker(await pods(1), { models: { aliases: { "gpt-4": "tiny" } } });
    for (const model of ["tiny", "gpt-4"]) {
      const body = JSON.stringify({ ...chat(), model });
      const exchange = gateway.exchange().head({ requestMode: bodyModes.buffered, answerMode: bodyModes.buffered });
      expect((await exchange.next()).requestHeaders?.response ?? undefined).toBeUndefined();
      const message = await exchange.body(body).next();
      expect(routeOf(message).destinations[0]).toMatch(/^127/);
      const changed = message.requestBody?.response?.bodyMutation?.body;
      if (model === "tiny") expect(changed?.length ?? 0).toBe(0);
      else expect(JSON.parse(Buffer.from(changed!).toString())).toEqual(chat());
      exchange.answer(200, { "content-type": "application/json" }).answerBody("{}");
      expect(await exchange.next()).toHaveProperty("responseHeaders");
      expect((await exchange.next()).responseBody?.response ?? undefined).toBeUndefined();
    }
  });

  test("not shown: headers decide, and a session stays at its engine", async () => {
    const { gateway, router } = await picker(
      await pods(3),
      { policy: "consistent_hashing" },
      { "release-after": "100ms" },
    );
    const modes = { requestMode: bodyModes.none, answerMode: bodyModes.none };
    const seen = new Set<string>();
    for (let turn = 0; turn < 5; turn++) {
      const exchange = gateway.exchange().head({ ...modes, headers: { "x-session-id": "s", "content-length": "400" } });
      seen.add(routeOf(await exchange.next()).destinations[0]!);
      exchange.stream.cancel();
      await router.untilIdle();
    }
    expect(seen.size).toBe(1);
  });
});

describe("an answer that is not shown", () => {
  const modes = { answerMode: bodyModes.none };

  async function inFlight(router: RunningRouter): Promise<number> {
    const engines = await router.engines();
    return engines.reduce((sum, { targets }) => sum + targets[0]!.load.in_flight!, 0);
  }

  test("counts as running until the engine's metrics show that it is over", async () => {
    let running = 0;
    const page = (): string => `vllm:num_requests_running ${running}\nvllm:num_requests_waiting 0\n`;
    const engine = await httpEngine(rig, () => {}, { metrics: page });
    const { gateway, router } = await picker([engine], { scrape: { interval: "100ms" } });
    const exchange = gateway.exchange().head(modes).body(prompt());
    running = 1;
    await exchange.routed();
    exchange.stream.cancel();
    await waitFor(async () => (await router.metrics()).sum("espalier_picker_unobserved_responses_total") === 1, {
      what: "an unseen answer",
    });
    expect(await inFlight(router)).toBe(1);
    const scrapes = engine.control.filter(({ path }) => path === "/metrics").length;
    await waitFor(() => engine.control.filter(({ path }) => path === "/metrics").length > scrapes + 2, {
      what: "more scrapes",
    });
    expect(await inFlight(router)).toBe(1);
    running = 0;
    await waitFor(async () => (await inFlight(router)) === 0, { what: "released load" });
  });

  // Bodies stayed in memory, in no budget, until answers were taken to be over: 65,536 of them at most.
  test("keeps no body in memory, however long it runs", async () => {
    const engine = await httpEngine(rig, () => {}, {
      metrics: () => "vllm:num_requests_running 1000\nvllm:num_requests_waiting 0\n",
    });
    const { gateway, router } = await picker([engine], { admission: { mode: "off" } }, { "release-after": "1h" });
    const requests = 40;
    // Larger ones are read by a thread.
    const body = prompt("x".repeat(524_288));
    const before = collectedBytes();
    for (let at = 0; at < requests; at++) {
      const exchange = gateway.exchange().head(modes).body(body);
      await exchange.routed();
      exchange.answer(200, { "content-type": "application/json" });
      expect(await exchange.next()).toHaveProperty("responseHeaders");
      exchange.stream.cancel();
    }
    await waitFor(async () => (await router.metrics()).sum("espalier_picker_unobserved_responses_total") === requests, {
      what: "unseen answers",
    });
    expect(await inFlight(router)).toBe(requests);
    expect(collectedBytes() - before).toBeLessThan((requests * body.length) / 4);
  });

  test("ends after a fixed time without metrics, and with the head of the answer shown", async () => {
    const { gateway, router } = await picker(await pods(1), {}, { "release-after": "300ms" });
    const exchange = gateway.exchange().head(modes).body(prompt());
    await exchange.routed();
    exchange.answer(200, { "content-type": "application/json" });
    expect(await exchange.next()).toHaveProperty("responseHeaders");
    expect(await inFlight(router)).toBe(1);
    exchange.stream.cancel();
    await waitFor(async () => (await inFlight(router)) === 0, { what: "released load" });
    expect((await router.metrics()).sum("espalier_requests_total", { status: "200" })).toBe(1);
  });

  test("of a client that left before it began is over at once", async () => {
    const { gateway, router } = await picker(await pods(1), {}, { "release-after": "1h" });
    const exchange = gateway.exchange().head(modes).body(prompt());
    await exchange.routed();
    exchange.stream.end();
    await router.untilIdle();
    expect((await router.metrics()).sum("espalier_requests_total", { status: "499" })).toBe(1);
  });
});

describe("what the gateway reports", () => {
  test("that another engine served the request moves its load there, and counts against the first", async () => {
    const engines = await pods(2);
    const { gateway, router } = await picker(engines);
    const exchange = gateway.exchange().head().body(prompt());
    const { destinations } = await exchange.routed();
    const loads = async () =>
      Object.fromEntries((await router.engines()).map(({ id, targets }) => [id, targets[0]!.load.in_flight]));
    expect(await loads()).toEqual({ [destinations[0]!]: 1, [destinations[1]!]: 0 });
    exchange.answer(200, { "content-type": "application/json" }, destinations[1]);
    const head = textsOf((await exchange.next()).responseHeaders?.response?.headerMutation?.setHeaders ?? []);
    expect(head["x-espalier-engine"]).toBe(destinations[1]);
    expect(await loads()).toEqual({ [destinations[0]!]: 0, [destinations[1]!]: 1 });
    exchange.answerBody("{}");
    expect(await exchange.next()).toHaveProperty("responseBody");
    await router.untilIdle();
    expect((await router.metrics()).sum("espalier_picker_served_elsewhere_total")).toBe(1);
  });

  test("an answer of an engine that is no engine of ours passes", async () => {
    const { gateway, router } = await picker(await pods(1));
    const exchange = gateway.exchange().head().body(prompt());
    await exchange.routed();
    exchange.answer(200, { "content-type": "application/json" }, "192.0.2.7:80").answerBody("{}");
    expect(await exchange.next()).toHaveProperty("responseHeaders");
    expect(await exchange.next()).toHaveProperty("responseBody");
    await router.untilIdle();
  });

  test("a client that leaves during the answer is counted as such", async () => {
    const { gateway, router } = await picker(await pods(1));
    const exchange = gateway
      .exchange()
      .head()
      .body(JSON.stringify(chat({ stream: true })));
    await exchange.routed();
    exchange.answer(200, { "content-type": "text/event-stream" }).answerBody("data: {}\n\n", false);
    expect(await exchange.next()).toHaveProperty("responseHeaders");
    exchange.stream.end();
    await router.untilIdle();
    expect((await router.metrics()).sum("espalier_requests_total", { status: "499" })).toBe(1);
  });

  test("errors of an engine pass to the client, and open its circuit", async () => {
    const { gateway, router } = await picker(await pods(2), { breaker: { "consecutive-failures": 1 } });
    const exchange = gateway.exchange().head().body(prompt());
    const { destinations } = await exchange.routed();
    exchange.answer(500, { "content-type": "application/json" }, destinations[0]).answerBody('{"error":{}}');
    expect(await exchange.next()).toHaveProperty("responseHeaders");
    const { streamedResponse } = (await exchange.next()).responseBody!.response!.bodyMutation!;
    expect(Buffer.from(streamedResponse!.body!).toString()).toBe('{"error":{}}');
    const open = (await router.engines()).filter(({ breaker }) => breaker.state === "open");
    expect(open.map(({ id }) => id)).toEqual([destinations[0]]);
    for (let turn = 0; turn < 3; turn++) {
      const next = gateway.exchange().head().body(prompt());
      expect((await next.routed()).destinations).toEqual([destinations[1]]);
      await finish(next);
    }
  });

  test("messages out of order end that exchange with an error, and no other", async () => {
    const { gateway, router } = await picker(await pods(1));
    const wrong = gateway.exchange().answer(200);
    await expect(wrong.stream.receive()).rejects.toThrow(/out of order/);
    const twice = gateway.exchange().head().head();
    await expect(twice.stream.receive()).rejects.toThrow(/out of order/);
    const next = gateway.exchange().head().body(prompt());
    await next.routed();
    await finish(next);
    await router.untilIdle();
  });

  test("a second end of the body changes nothing", async () => {
    const { gateway } = await picker(await pods(1));
    const exchange = gateway.exchange().head().body(prompt()).body("", true).body("more", true);
    expect((await exchange.routed()).body.toString()).toBe(prompt());
    await finish(exchange);
  });
});

describe("a request that two engines serve together", () => {
  const long = prompt("x".repeat(40_000));
  const split = { disaggregation: { "threshold-tokens": 1_000 } };
  const entry = ({ url }: HttpEngine, role: string, protocol: string): Json => ({ url, role, "kv-transfer": protocol });
  const loadsOf = async (router: RunningRouter) =>
    Object.fromEntries((await router.engines()).map(({ id, targets }) => [id, targets[0]!.load.in_flight]));

  test("behind llm-d's sidecars: the decode engine gets it, with the prefill engine in a header", async () => {
    const [prefill, decode] = await pods(2);
    const router = await rig.router({
      engines: [entry(prefill!, "prefill", "llm-d-sidecar"), entry(decode!, "decode", "llm-d-sidecar")],
      config: { ...split, "endpoint-picker": pickerConfig },
    });
    const gateway = gatewayOf(rig, router);
    const headers = { "x-prefiller-host-port": "192.0.2.1:1", "x-kv-cache-source-host-port": "192.0.2.1:1" };
    const exchange = gateway.exchange().head({ headers }).body(long);
    const { destinations, set, removed, body } = await exchange.routed();
    expect(destinations).toEqual([decode!.id]);
    expect(set["x-prefiller-host-port"]).toBe(prefill!.id);
    expect(removed).toEqual(["x-kv-cache-source-host-port"]);
    expect(body.toString()).toBe(long);
    expect(await loadsOf(router)).toEqual({ [prefill!.id]: 1, [decode!.id]: 1 });
    exchange.answer(200, { "content-type": "application/json" }, decode!.id).answerBody("{", false);
    expect(await exchange.next()).toHaveProperty("responseHeaders");
    expect(await exchange.next()).toHaveProperty("responseBody");
    expect(await loadsOf(router)).toEqual({ [prefill!.id]: 0, [decode!.id]: 1 });
    exchange.answerBody("}");
    expect(await exchange.next()).toHaveProperty("responseBody");
    await router.untilIdle();
    expect(prefill!.requests).toEqual([]);
  });

  test("in a protocol of engines: the picker runs the prefill leg, and the gateway gets the decode leg's body", async () => {
    const params = { do_remote_prefill: true, remote_engine_id: "e", remote_block_ids: [1] };
    const answer = JSON.stringify({ choices: [{ finish_reason: "length" }], kv_transfer_params: params });
    const [prefill, decode] = await Promise.all([jsonEngine(rig, answer), jsonEngine(rig, "{}")]);
    const router = await rig.router({
      engines: [entry(prefill!, "prefill", "nixl"), entry(decode!, "decode", "nixl")],
      config: { ...split, "endpoint-picker": pickerConfig },
    });
    const exchange = gatewayOf(rig, router).exchange().head().body(long);
    const { destinations, body } = await exchange.routed();
    expect(destinations).toEqual([decode!.id]);
    expect(JSON.parse(body.toString())).toEqual({ ...(JSON.parse(long) as Json), kv_transfer_params: params });
    expect(prefill!.requests.map(({ path }) => path)).toEqual(["/v1/chat/completions"]);
    await finish(exchange);
    await router.untilIdle();
  });

  test("is not offered where an engine would be asked twice", async () => {
    const [prefill, decode] = await pods(2);
    const router = await rig.router({
      engines: [entry(prefill!, "prefill", "shared-storage"), entry(decode!, "decode", "shared-storage")],
      config: { ...split, "endpoint-picker": pickerConfig },
    });
    const exchange = gatewayOf(rig, router).exchange().head().body(long);
    const { destinations, body } = await exchange.routed();
    expect([destinations, body.toString()]).toEqual([[decode!.id], long]);
    await finish(exchange);
    await router.untilIdle();
  });
});

test("metrics of engines choose: the least queue and cache use, and an engine with the adapter", async () => {
  const page = (waiting: number, use: number): string =>
    `vllm:num_requests_waiting ${waiting}\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc ${use}\n`;
  const base = { id: "tiny", owned_by: "vllm" };
  const adapter = { id: "sql-lora", owned_by: "vllm", parent: "tiny", root: "/sql-lora" };
  const engines = await Promise.all([
    httpEngine(rig, () => {}, { metrics: () => page(3, 0.2), listed: [base] }),
    httpEngine(rig, () => {}, { metrics: () => page(0, 0.1), listed: [base] }),
    httpEngine(rig, () => {}, { metrics: () => page(10, 0.2), listed: [base, adapter] }),
  ]);
  const { gateway } = await picker(
    engines,
    { policy: "epp_weighted", scrape: { interval: "100ms" } },
    { scores: true },
  );
  await waitFor(() => engines.every(({ control }) => control.filter(({ path }) => path === "/metrics").length > 1), {
    what: "two scrapes of each engine",
  });
  const exchange = gateway.exchange().head().body(prompt());
  const { destinations, metadata } = await exchange.routed();
  expect(destinations).toEqual([engines[1]!.id, engines[0]!.id, engines[2]!.id]);
  const scores = metadata["x-gateway-destination-endpoint-scores"] as Readonly<Record<string, number>>;
  expect(Object.keys(scores).sort()).toEqual(engines.map(({ id }) => id).sort());
  expect(scores[engines[1]!.id]).toBe(1);
  await finish(exchange);
  const lora = gateway
    .exchange()
    .head()
    .body(JSON.stringify({ ...chat(), model: "sql-lora" }));
  expect((await lora.routed()).destinations).toEqual([engines[2]!.id]);
  await finish(lora);
});

// The router cannot name the adapter in a body that it is not shown: the base model answered, with status 200.
test("without its body, a request for an adapter of SGLang is one that names it so that SGLang applies it, or is refused", async () => {
  const listed = [
    { id: "tiny", owned_by: "sglang" },
    { id: "ada", owned_by: "sglang", parent: "tiny" },
  ];
  const engine = await httpEngine(rig, () => {}, { listed });
  const { gateway } = await picker([engine]);
  const send = (model: string, path: string) =>
    gateway.exchange().head({ path, headers: { "x-gateway-model-name": model }, requestMode: bodyModes.none });
  const named = send("tiny:ada", "/v1/chat/completions");
  expect(routeOf(await named.next()).destinations).toEqual([engine.id]);
  await finish(named);
  for (const [model, path] of [
    ["ada", "/v1/chat/completions"],
    ["tiny:ada", "/v1/responses"],
    ["tiny:ada", "/v1/audio/speech"],
  ] as const) {
    expect((await send(model, path).refused()).status).toBe(400);
  }
});

test("health: ready when an engine is, alive always, and draining before it ends", async () => {
  const { gateway: lonely } = await picker([]);
  expect(await lonely.health("")).toBe(2);
  expect(await lonely.health("liveness")).toBe(1);
  const { router, gateway } = await picker(await pods(1));
  const services = ["", "readiness", "liveness", "inference-extension", "envoy.service.ext_proc.v3.ExternalProcessor"];
  expect(await Promise.all(services.map((service) => gateway.health(service)))).toEqual([1, 1, 1, 1, 1]);
  expect(await gateway.health("other")).toBeUndefined();
  const open = gateway.exchange().head().body(prompt());
  await open.routed();
  const drained = router.router.drain.run({ delayMs: 300, graceMs: 10_000 });
  expect(await Promise.all([gateway.health("readiness"), gateway.health("liveness")])).toEqual([2, 1]);
  await finish(open);
  expect(await drained).toBe(0);
});
