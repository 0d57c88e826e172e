import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, type Json, openPost, post } from "./client.ts";
import { httpEngine, type SeenRequest } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

/*
 * Symptom: seven requests were refused with 429, and answers broke inside a status of 200, while `top` and the dashboard showed no
 * error. Mechanism: each reader counted statuses from 500 on. How a request ended is decided once now, and all readers count that.
 */

const rig = createRig();
afterEach(() => rig.close());

const outcomes = ["answered", "refused", "failed", "cut", "cancelled"] as const;
type Outcome = (typeof outcomes)[number];

const json = { "content-type": "application/json" };
const events = { "content-type": "text/event-stream" };
const chunk = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n';
const error = (code: number): string => JSON.stringify({ error: { message: "no", code } });
const errorEvent = (code: number): string => `data: ${error(code)}\n\ndata: [DONE]\n\n`;

const isStream = { stream: true };
const answers: readonly (readonly [string, Json, Outcome, (request: SeenRequest) => unknown])[] = [
  ["a whole answer", {}, "answered", ({ response }) => response.writeHead(200, json).end("{}")],
  ["the engine's 400", {}, "answered", ({ response }) => response.writeHead(400, json).end(error(400))],
  [
    "an error event of 400",
    isStream,
    "answered",
    ({ response }) => response.writeHead(200, events).end(errorEvent(400)),
  ],
  ["the engine's 429", {}, "refused", ({ response }) => response.writeHead(429, json).end(error(429))],
  ["the engine's 503", {}, "refused", ({ response }) => response.writeHead(503, json).end(error(503))],
  [
    "an error event of 503",
    isStream,
    "refused",
    ({ response }) => response.writeHead(200, events).end(errorEvent(503)),
  ],
  ["the engine's 500", {}, "failed", ({ response }) => response.writeHead(500, json).end(error(500))],
  ["a connection that ends", {}, "failed", ({ socket }) => socket.destroy()],
  ["an empty answer", isStream, "failed", ({ response }) => response.writeHead(200, events).end()],
  ["an error event of 500", isStream, "failed", ({ response }) => response.writeHead(200, events).end(errorEvent(500))],
  ["an error in a body", {}, "failed", ({ response }) => response.writeHead(200, json).end(error(500))],
  [
    "an error after content",
    isStream,
    "cut",
    ({ response }) => response.writeHead(200, events).end(chunk + errorEvent(500)),
  ],
  ["no end", isStream, "cut", ({ response }) => response.writeHead(200, events).end(chunk)],
  [
    "a connection that ends after content",
    isStream,
    "cut",
    ({ response, socket }) => response.writeHead(200, events).write(chunk, () => setImmediate(() => socket.destroy())),
  ],
];

/** Requests over by outcome, as each reader has them: the metrics, `status` and `top`, and the dashboard's plots. */
async function expectCounted(router: RunningRouter, expected: Partial<Record<Outcome, number>>): Promise<void> {
  await router.untilIdle();
  const counts = outcomes.map((outcome) => expected[outcome] ?? 0);
  const requests = counts.reduce((sum, count) => sum + count, 0);
  const page = await router.metrics();
  expect(outcomes.map((outcome) => page.sum("espalier_requests_total", { outcome }))).toEqual(counts);
  const { totals } = (await router.admin("GET", "/admin/status")).json as { totals: Record<string, number> };
  expect([totals.requests, ...outcomes.map((outcome) => totals[outcome])]).toEqual([requests, ...counts]);
  const columns = {
    requestsPerS: requests,
    refusedPerS: expected.refused,
    failedPerS: expected.failed,
    cutPerS: expected.cut,
  };
  const wanted = Object.entries(columns).flatMap(([name, count = 0]) => (count > 0 ? [name] : []));
  const inPlots = async (): Promise<readonly string[]> => {
    const { json: history } = await router.admin("GET", "/admin/history");
    return Object.keys(columns).filter((name) => (history[name] as number[]).some((perS) => perS > 0));
  };
  await waitFor(async () => (await inPlots()).length >= wanted.length, { what: "a point of the history" });
  expect(await inPlots()).toEqual(wanted);
}

test("whatever an engine answers, the request counts in the way in which it ended for its client", async () => {
  let answer: (request: SeenRequest) => unknown = () => {};
  const engine = await httpEngine(rig, (request) => answer(request));
  const breaker = { "consecutive-failures": 1_000, "window-requests": 1_000 };
  const router = await rig.router({ engines: [engine.url], config: { breaker } });
  const counted: Partial<Record<Outcome, number>> = {};
  for (const [name, body, outcome, next] of answers) {
    answer = next;
    await post(`${router.url}/v1/chat/completions`, chat(body)).catch(() => {});
    await router.untilIdle();
    counted[outcome] = (counted[outcome] ?? 0) + 1;
    expect((await router.metrics()).sum("espalier_requests_total", { outcome }), name).toBe(counted[outcome]);
  }
  await expectCounted(router, counted);
});

test("what the router refuses, what nobody could serve, and what clients did wrong or left", async () => {
  const held: SeenRequest[] = [];
  const engine = await httpEngine(rig, (request) => held.push(request));
  const router = await rig.router({ engines: [engine.url], config: { limits: { "max-concurrent-requests": 1 } } });
  const url = `${router.url}/v1/chat/completions`;
  const open = openPost(url, chat(isStream));
  await waitFor(() => held.length === 1, { what: "the request at the engine" });
  for (let at = 0; at < 7; at++) expect((await post(url, chat())).status).toBe(429);
  open.destroy();
  await expectCounted(router, { refused: 7, cancelled: 1 });
  const limited = async () => ((await router.admin("GET", "/admin/status")).json as { totals: Json }).totals.limited;
  expect(await limited()).toBe(7);
  expect((await post(url, chat({ model: "unknown" }))).status).toBe(404);
  await router.admin("PATCH", `/admin/engines/${encodeURIComponent(engine.id)}`, { draining: true });
  expect((await post(url, chat())).status).toBe(503);
  await expectCounted(router, { refused: 8, cancelled: 1, answered: 1 });
  expect(await limited()).toBe(7);
});
