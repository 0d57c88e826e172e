import { type Clock, systemClock } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, beforeEach, expect, test } from "vitest";
import { call, chat, openPost, post, rawConnection, rawPost } from "./client.ts";
import { type HttpEngine, httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

let skewMs = 0;
/** Lets a test leap over the delay and the grace of a drain. */
const clock: Clock = { nowMs: () => systemClock.nowMs() + skewMs, wallMs: systemClock.wallMs };
beforeEach(() => {
  skewMs = 0;
});

/** An engine whose streams end when the test says so; other answers end at once. */
async function heldEngine(): Promise<{ engine: HttpEngine; finish: () => void }> {
  const held: (() => void)[] = [];
  const engine = await httpEngine(rig, ({ body, response }) => {
    if (!body.includes('"stream":true')) {
      response.writeHead(200, { "content-type": "application/json" }).end("{}");
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" }).write('data: {"first":1}\n\n');
    held.push(() => response.end("data: [DONE]\n\n"));
  });
  return {
    engine,
    finish: () => {
      for (const end of held.splice(0)) end();
    },
  };
}

function portClosed(url: string): Promise<unknown> {
  const isClosed = (): Promise<boolean> =>
    call(`${url}/livez`)
      .then(() => false)
      .catch(() => true);
  return waitFor(isClosed, { what: "closed port" });
}

test("a drain: not ready, still taking requests, then finishing streams, then closed", async () => {
  const { engine, finish } = await heldEngine();
  const router = await rig.router({ engines: [engine.url], clock });
  const url = `${router.url}/v1/chat/completions`;
  const stream = openPost(url, chat({ stream: true }));
  await stream.head;
  const keptAlive = await rawConnection(router.port);
  keptAlive.write(rawPost("/v1/chat/completions", JSON.stringify(chat())));
  expect(await keptAlive.until(/\{\}/)).toMatch(/\r\nconnection: keep-alive\r\n/i);

  const drained = router.router.drain.run({ delayMs: 5_000, graceMs: 180_000 });

  const ready = await call(`${router.url}/readyz`);
  expect([ready.status, ready.json]).toEqual([503, { status: "not ready", reasons: ["the router is draining"] }]);
  expect((await call(`${router.adminUrl}/readyz`)).status).toBe(503);
  expect((await call(`${router.url}/livez`)).status).toBe(200);
  expect((await router.admin("GET", "/admin/status")).json).toMatchObject({ draining: true, inFlight: 1 });
  const during = await post(url, chat(), { connection: "keep-alive" });
  expect([during.status, during.headers.connection]).toEqual([200, "close"]);
  const refused = await post(url, "{", { connection: "keep-alive" });
  expect([refused.status, refused.headers.connection]).toEqual([400, "close"]);
  const models = await call(`${router.url}/v1/models`, { headers: { connection: "keep-alive" } });
  expect([models.status, models.headers.connection]).toEqual([200, "close"]);

  skewMs += 5_000;
  await portClosed(router.url);
  await expect(post(url, chat())).rejects.toThrow("ECONNREFUSED");
  // Who took this connection from its pool at this moment is served, and told that it was the last time.
  keptAlive.write(rawPost("/v1/chat/completions", JSON.stringify(chat())));
  expect(await keptAlive.until(/\{\}[\s\S]*\{\}/)).toMatch(/\r\nconnection: close\r\n[\s\S]*\{\}/i);
  await keptAlive.closed();
  expect(stream.received()).toBe('data: {"first":1}\n\n');
  finish();
  expect((await stream.body).toString()).toBe('data: {"first":1}\n\ndata: [DONE]\n\n');
  expect(await drained).toBe(0);
  await router.untilIdle();
  const page = await router.metrics();
  expect(page.sum("espalier_requests_in_flight")).toBe(0);
  expect(page.sum("espalier_engine_requests_in_flight")).toBe(0);
});

test("idle connections do not hold a drain back", async () => {
  const { engine } = await heldEngine();
  const router = await rig.router({ engines: [engine.url] });
  const idle = await Promise.all(Array.from({ length: 5 }, () => rawConnection(router.port)));
  for (const connection of idle.slice(0, 3)) {
    connection.write(rawPost("/v1/chat/completions", JSON.stringify(chat())));
    await connection.until(/\{\}/);
  }
  expect(await router.router.drain.run({ delayMs: 0, graceMs: 60_000 })).toBe(0);
  for (const connection of idle) await connection.closed();
});

test("a request whose body is still under way is served before the end", async () => {
  const { engine } = await heldEngine();
  const router = await rig.router({ engines: [engine.url] });
  const bytes = rawPost("/v1/chat/completions", JSON.stringify(chat()));
  const slow = await rawConnection(router.port);
  slow.write(bytes.slice(0, -5));
  await waitFor(async () => (await router.admin("GET", "/admin/status")).json.inFlight === 1, { what: "the request" });

  const drained = router.router.drain.run({ delayMs: 0, graceMs: 60_000 });
  await portClosed(router.url);
  slow.write(bytes.slice(-5));

  expect(await slow.until(/\{\}/)).toMatch(/^HTTP\/1\.1 200 [\s\S]*\r\nconnection: close\r\n/i);
  expect(await drained).toBe(0);
});

test("a second signal ends it at once, and says how many answers it cut", async () => {
  const { engine } = await heldEngine();
  const router = await rig.router({ engines: [engine.url] });
  const streams = [1, 2].map(() => openPost(`${router.url}/v1/chat/completions`, chat({ stream: true })));
  await Promise.all(streams.map(({ head }) => head));
  const drained = router.router.drain.run({ delayMs: 60_000, graceMs: 60_000 });

  router.router.drain.force();

  for (const { body } of streams) await expect(body).rejects.toThrow("aborted");
  expect(await drained).toBe(2);
  await router.untilIdle();
  await waitFor(() => engine.requests.every(({ socket }) => socket.destroyed), { what: "aborts at the engine" });
});

test("answers that outlast the grace are cut", async () => {
  const { engine } = await heldEngine();
  const router = await rig.router({ engines: [engine.url], clock });
  const stream = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  await stream.head;
  const drained = router.router.drain.run({ delayMs: 0, graceMs: 180_000 });
  await portClosed(router.url);
  skewMs += 180_000;
  await expect(stream.body).rejects.toThrow("aborted");
  expect(await drained).toBe(1);
});

test("a router that drained stops, and one that did not ends its streams with an error", async () => {
  const { engine } = await heldEngine();
  const drainedRouter = await rig.router({ engines: [engine.url] });
  await drainedRouter.router.drain.run({ delayMs: 0, graceMs: 1_000 });
  await drainedRouter.router.stop();

  const router = await rig.router({ engines: [engine.url] });
  const stream = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  await stream.head;
  await router.router.stop();
  await expect(stream.body).rejects.toThrow("aborted");
  await waitFor(() => engine.requests.at(-1)?.socket.destroyed, { what: "abort at the engine" });
});
