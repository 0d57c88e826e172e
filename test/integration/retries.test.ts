import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Clock, systemClock } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { type Answer, chat, errorOf, post } from "./client.ts";
import { httpEngine, jsonEngine, rawEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const garbage = "\u0000\u0001 this is not HTTP \r\n\r\n";
const roundRobin = { policy: "round_robin" };

/** Asks often enough that a rotation has begun at either engine. */
async function askTwice(router: RunningRouter, path = "/v1/chat/completions"): Promise<readonly Answer[]> {
  const url = router.url + path;
  return [await post(url, chat()), await post(url, chat())];
}

test.each<readonly [string, (engine: Socket) => void]>([
  ["closes the connection", (socket) => socket.end()],
  ["resets the connection", (socket) => socket.resetAndDestroy()],
  [
    "resets it inside the headers",
    (socket) => socket.write("HTTP/1.1 200 OK\r\nconte", () => socket.resetAndDestroy()),
  ],
  ["answers garbage", (socket) => socket.end(garbage)],
])("an engine that %s costs the client nothing", async (_, answer) => {
  const bad = await rawEngine(rig, answer);
  const good = await jsonEngine(rig, '{"good":true}');
  const router = await rig.router({ engines: [bad.url, good.url], config: roundRobin });

  const answers = await askTwice(router);

  expect(answers.map(({ status, text }) => [status, text])).toEqual([
    [200, '{"good":true}'],
    [200, '{"good":true}'],
  ]);
  expect(answers.map(({ headers }) => headers["x-espalier-engine"])).toEqual([good.id, good.id]);
  expect(answers.map(({ headers }) => headers["x-espalier-attempts"]).sort()).toEqual(["1", "2"]);
  expect(bad.count()).toBe(1);
  await router.untilIdle();
});

test("a simulated engine that refuses connections is passed over", async () => {
  const [bad, good] = await rig.sims(2);
  const config = { ...roundRobin, health: { interval: "10m" } };
  const router = await rig.router({ engines: [bad!.url, good!.url], config });
  await bad!.stop();

  const answers = await askTwice(router);

  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  expect(answers.map(({ headers }) => headers["x-espalier-engine"])).toEqual([good!.id, good!.id]);
  expect((await router.metrics()).sum("espalier_proxy_retries_total", { budget: "free" })).toBe(1);
});

test.each([502, 503, 504, 429])("an engine that answers %i is passed over, at the budget's charge", async (status) => {
  const [bad, good] = await rig.sims(2);
  const router = await rig.router({ engines: [bad!.url, good!.url], config: roundRobin });
  await bad!.fault({ kind: "status", status });

  const answers = await askTwice(router);

  expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
  expect(answers.map(({ headers }) => headers["x-espalier-attempts"]).sort()).toEqual(["1", "2"]);
  expect((await router.metrics()).sum("espalier_proxy_retries_total", { budget: "charged" })).toBe(1);
});

test("with nobody left the client gets the engine's own 503, untouched", async () => {
  const body = '{"error":{"message":"full","code":503}}';
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(503, { "content-type": "application/json", "retry-after": "17" }).end(body);
  });
  const router = await rig.router({ engines: [engine.url] });
  const answer = await post(`${router.url}/v1/chat/completions`, chat());
  expect([answer.status, answer.text, answer.headers["retry-after"]]).toEqual([503, body, "17"]);
  expect(engine.requests).toHaveLength(1);
  await router.untilIdle();
});

test("an engine that closes the connection after its headers was at work: nobody else is asked", async () => {
  const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
  const engines = [
    await rawEngine(rig, (socket) => socket.end(head)),
    await rawEngine(rig, (socket) => socket.end(head)),
  ];
  const router = await rig.router({ engines: engines.map(({ url }) => url), config: roundRobin });
  const answer = await post(`${router.url}/v1/chat/completions`, chat());
  expect([answer.status, errorOf(answer).code]).toEqual([502, "upstream_reset"]);
  expect(engines.map((engine) => engine.count()).sort()).toEqual([0, 1]);
  const asked = engines.find((engine) => engine.count() === 1);
  expect(answer.headers).toMatchObject({ "x-espalier-failed-engine": asked?.id, "x-espalier-attempts": "1" });
  await router.untilIdle();
  expect(router.lines.filter(({ message }) => message === "request failed")).toMatchObject([
    { level: "warn", fields: { code: "upstream_reset", attempts: 1, model: "tiny" } },
  ]);
});

test("a prompt that breaks engines breaks two, and the others serve on", async () => {
  const executed: string[] = [];
  const engines = await Promise.all(
    Array.from({ length: 8 }, () =>
      httpEngine(rig, ({ body, response, socket }) => {
        const isPoison = body.includes("poison");
        if (isPoison) executed.push("poison");
        if (isPoison) socket.resetAndDestroy();
        else response.writeHead(200, { "content-type": "application/json" }).end("{}");
      }),
    ),
  );
  const router = await rig.router({ engines: engines.map(({ url }) => url), config: roundRobin });
  const url = `${router.url}/v1/chat/completions`;
  // On connections that are kept, too.
  for (let at = 0; at < 8; at++) expect((await post(url, chat())).status).toBe(200);
  const answer = await post(url, chat({ user: "poison" }));
  expect([answer.status, errorOf(answer).code]).toEqual([502, "request_breaks_engines"]);
  // The first engine has it twice if its connection ended within 50 ms, since a kept one that does so may have gone stale.
  expect([2, 3]).toContain(executed.length);
  for (let at = 0; at < 8; at++) expect((await post(url, chat())).status).toBe(200);
  await router.untilIdle();
});

test("the budget bounds the retries that answers and broken connections cause, not those of engines that cannot be reached", async () => {
  const sims = await rig.sims(3);
  const [bad] = sims;
  const config = {
    policy: "round_robin",
    retry: { "budget-ratio": 0, "budget-minimum": 2 },
    breaker: { "consecutive-failures": 1_000, "window-requests": 100_000 },
  };
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  await bad!.fault({ kind: "status", status: 502 });
  const url = `${router.url}/v1/chat/completions`;

  const statuses: number[] = [];
  for (let i = 0; i < 12; i++) statuses.push((await post(url, chat())).status);

  // A third of the requests meets the bad engine; two of those may go on.
  expect(statuses.filter((status) => status === 502)).toHaveLength(2);
  const page = await router.metrics();
  expect(page.sum("espalier_proxy_retries_total", { budget: "charged" })).toBe(2);
  expect(page.sum("espalier_proxy_retry_budget_exhausted_total")).toBe(2);

  await bad!.clearFaults();
  await bad!.fault({ kind: "reset-before-headers" });
  const codes: number[] = [];
  for (let i = 0; i < 6; i++) codes.push((await post(url, chat())).status);
  expect(codes.filter((status) => status === 502)).toHaveLength(2);

  await bad!.stop();
  for (let i = 0; i < 6; i++) expect((await post(url, chat())).status).toBe(200);
});

test.each<readonly [string, (socket: Socket) => void, number, string]>([
  ["resets", (socket) => socket.resetAndDestroy(), 502, "upstream_reset"],
  ["answers garbage", (socket) => socket.end(garbage), 502, "upstream_protocol_error"],
])("when every engine %s the client is told so", async (_, answer, status, code) => {
  const engine = await rawEngine(rig, answer);
  const router = await rig.router({ engines: [engine.url] });
  const [openai] = await askTwice(router);
  expect([openai!.status, errorOf(openai!)]).toEqual([
    status,
    { message: expect.any(String), type: "server_error", param: null, code },
  ]);
  const anthropic = await post(`${router.url}/v1/messages`, chat());
  expect([anthropic.status, anthropic.json.error]).toMatchObject([status, { type: "api_error" }]);
  await router.untilIdle();
});

test("an engine that is silent for too long: 504, and its connection is given up", async () => {
  let closed = false;
  const silent = await rawEngine(rig, (socket) => {
    socket.on("close", () => {
      closed = true;
    });
  });
  const router = await rig.router({ engines: [silent.url], config: { timeouts: { "first-byte": "100ms" } } });
  const answer = await post(`${router.url}/v1/chat/completions`, chat());
  expect([answer.status, errorOf(answer).code]).toEqual([504, "upstream_timeout"]);
  await router.untilIdle();
  await waitFor(() => closed, { what: "end of the connection" });
});

test("time spent on a failed engine does not count as the router's own", async () => {
  let skewMs = 0;
  const clock: Clock = { nowMs: () => systemClock.nowMs() + skewMs, wallMs: systemClock.wallMs };
  const bad = await rawEngine(rig, (socket) => {
    skewMs += 5_000;
    socket.resetAndDestroy();
  });
  const good = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [bad.url, good.url], config: roundRobin, clock });

  for (const { headers } of await askTwice(router)) {
    expect(Number(headers["x-espalier-overhead-ms"])).toBeLessThan(4_000);
  }
  expect(skewMs).toBe(5_000);
  await router.untilIdle();
  const page = await router.metrics();
  expect(page.sum("espalier_overhead_seconds_count")).toBe(2);
  expect(page.sum("espalier_overhead_seconds_sum")).toBeLessThan(4);
});

test.each([429, 503])(
  "an engine that answers %i and says when to come again is not asked before; a last one is",
  async (status) => {
    const full = (response: ServerResponse): void => {
      response.writeHead(status, { "retry-after": "9", "content-length": 2 }).end("{}");
    };
    const busy = await httpEngine(rig, ({ response }) => full(response));
    let isFull = false;
    const good = await httpEngine(rig, ({ response }) => {
      if (isFull) full(response);
      else response.writeHead(200, { "content-type": "application/json", "content-length": 2 }).end("{}");
    });
    const router = await rig.router({ engines: [busy.url, good.url], config: roundRobin });
    for (let i = 0; i < 10; i++) expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(200);
    expect([busy.requests.length, good.requests.length]).toEqual([1, 10]);

    isFull = true;
    for (let i = 0; i < 3; i++) {
      const answer = await post(`${router.url}/v1/chat/completions`, chat());
      expect([answer.status, answer.headers["retry-after"]]).toEqual([status, "9"]);
    }
    expect([busy.requests.length, good.requests.length]).toEqual([1, 13]);
  },
);
