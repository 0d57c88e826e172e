import { waitFor } from "@espalier/testing";
import { afterEach, expect, onTestFinished, test } from "vitest";
import { type Answer, call, chat, errorOf, openPost, post, rawConnection, rawPost } from "./client.ts";
import { httpEngine, rawEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

function expectTurnedAway(answer: Answer, status: 429 | 503, code: string): void {
  const type = status === 429 ? "rate_limit_error" : "server_error";
  expect([answer.status, errorOf(answer)]).toEqual([status, { message: expect.any(String), type, param: null, code }]);
  expect(answer.headers["retry-after"]).toBe("1");
  expect(answer.headers["content-type"]).toBe("application/json");
}

test("no engine known: 503 with Retry-After, and not ready", async () => {
  const router = await rig.router();
  expectTurnedAway(await post(`${router.url}/v1/chat/completions`, chat()), 503, "no_engine_available");
  expectTurnedAway(await post(`${router.url}/tokenize`, { prompt: "x" }), 503, "no_engine_available");
  const ready = await call(`${router.url}/readyz`);
  expect([ready.status, ready.json]).toEqual([503, { status: "not ready", reasons: ["no engines known"] }]);
  expect((await call(`${router.url}/livez`)).status).toBe(200);
  expect((await call(`${router.url}/v1/models`)).json).toEqual({ object: "list", data: [] });
});

test("every engine down: 503 with Retry-After, in each API's shape, until one is back", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  await sim!.fault({ kind: "unhealthy" });
  await waitFor(async () => (await router.engines())[0]?.state === "down", { what: "down engine" });

  expectTurnedAway(await post(`${router.url}/v1/chat/completions`, chat()), 503, "no_engine_available");
  const anthropic = await post(`${router.url}/v1/messages`, chat());
  expect([anthropic.status, anthropic.json.error]).toMatchObject([503, { type: "overloaded_error" }]);
  expect(anthropic.headers["retry-after"]).toBe("1");
  expect((await call(`${router.url}/readyz`)).json.reasons).toEqual(["no engine is usable"]);
  expect((await call(`${router.url}/v1/models/tiny`)).status).toBe(200);

  await sim!.clearFaults();
  await waitFor(async () => (await call(`${router.url}/readyz`)).status === 200, { what: "readiness" });
  expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(200);
});

test("requests over the limit of concurrency: 429 with Retry-After, until one has ended", async () => {
  const held: (() => void)[] = [];
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).write("data: {}\n\n");
    held.push(() => response.end("data: [DONE]\n\n"));
  });
  const config = { limits: { "max-concurrent-requests": 2 } };
  const router = await rig.router({ engines: [engine.url], config });
  const url = `${router.url}/v1/chat/completions`;
  const open = [openPost(url, chat({ stream: true })), openPost(url, chat({ stream: true }))];
  await Promise.all(open.map(({ head }) => head));

  expectTurnedAway(await post(url, chat()), 429, "overloaded");
  const anthropic = await post(`${router.url}/v1/messages`, chat());
  expect([anthropic.status, anthropic.json.error]).toMatchObject([429, { type: "rate_limit_error" }]);
  expect((await call(`${router.url}/readyz`)).status).toBe(200);

  held.shift()?.();
  await open[0]?.body;
  await waitFor(async () => (await router.admin("GET", "/admin/status")).json.inFlight === 1, { what: "a free place" });
  const third = openPost(url, chat({ stream: true }));
  expect((await third.head).statusCode).toBe(200);
  for (const finish of held) finish();
  await Promise.all([open[1]?.body, third.body]);
  await router.untilIdle();
});

test("a request takes its place before its body is read, so that bodies are bounded too", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], config: { limits: { "max-concurrent-requests": 1 } } });
  const bytes = rawPost("/v1/chat/completions", JSON.stringify(chat()));
  const first = await rawConnection(router.port);
  first.write(bytes.slice(0, -10));
  await waitFor(async () => (await router.admin("GET", "/admin/status")).json.inFlight === 1, {
    what: "first request",
  });

  expectTurnedAway(await post(`${router.url}/v1/chat/completions`, chat()), 429, "overloaded");
  first.write(bytes.slice(-10));
  expect(await first.until(/\r\n\r\n\{[\s\S]+\}/)).toMatch(/^HTTP\/1\.1 200 /);
  first.socket.destroy();
  await router.untilIdle();
});

test("a full queue of one engine sends requests to the next, and with all full they are shed", async () => {
  const silent = await rawEngine(rig, () => {});
  const limits = { "max-connections-per-engine": 1, "max-queued-per-engine": 0 };
  const router = await rig.router({ engines: [silent.url], config: { limits } });
  const url = `${router.url}/v1/chat/completions`;
  const first = openPost(url, chat());
  await waitFor(() => silent.count() === 1, { what: "request at the engine" });

  expectTurnedAway(await post(url, chat()), 429, "overloaded");
  first.destroy();
  await router.untilIdle();
});

/** Keeps the event loop of this process, which is the router's too, from its timers. @returns ends it */
function keepBusy(): () => void {
  let isBusy = true;
  const spin = (): void => {
    const endMs = performance.now() + 200;
    while (performance.now() < endMs);
    if (isBusy) setImmediate(spin);
  };
  spin();
  return () => {
    isBusy = false;
  };
}

test("a router that is short of processor time refuses new requests with a time to come again, and ends what it began", async () => {
  const [sim] = await rig.sims(1, { speed: 10 });
  const router = await rig.router({ engines: [sim!.url], config: { limits: { "max-event-loop-delay": "50ms" } } });
  const url = `${router.url}/v1/chat/completions`;
  const begun = openPost(url, chat({ stream: true, max_tokens: 100 }));
  expect((await begun.head).statusCode).toBe(200);
  const rest = keepBusy();
  onTestFinished(rest);
  const shed = await waitFor(
    async () => {
      const answer = await post(url, chat());
      return answer.status === 429 && answer;
    },
    { what: "a refused request", deadlineMs: 20_000 },
  );
  expect([errorOf(shed).code, shed.headers["retry-after"]]).toEqual(["overloaded", "2"]);
  expect((await call(`${router.url}/readyz`)).status).toBe(200);

  rest();
  await waitFor(async () => (await router.metrics()).sum("espalier_shed_ratio") === 0, { what: "end of it" });
  expect((await post(url, chat())).status).toBe(200);
  expect((await begun.body).toString()).toContain("data: [DONE]");
  expect((await router.metrics()).sum("espalier_shed_requests_total", { pressure: "event-loop" })).toBeGreaterThan(0);
});
