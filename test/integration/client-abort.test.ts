import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, openPost, post, rawConnection, rawPost } from "./client.ts";
import { httpEngine, rawEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** At once, on a machine that may be busy: what is given up here would go on for much longer. */
const atOnceMs = 5_000;

test("a client that leaves in mid-stream: the engine stops computing at once", async () => {
  const [sim] = await rig.sims(1, { speed: 1 });
  const router = await rig.router({ engines: [sim!.url] });
  const request = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true, max_tokens: 5_000 }));
  await waitFor(() => request.received() !== "", { what: "first bytes" });
  expect((await sim!.state()).active).toHaveLength(1);

  request.destroy();

  await waitFor(async () => (await sim!.state()).totals.aborted === 1, { what: "abort", deadlineMs: atOnceMs });
  expect((await sim!.state()).active).toEqual([]);
  await router.untilIdle();
  const page = await router.metrics();
  expect(page.sum("espalier_requests_total", { outcome: "cancelled" })).toBe(1);
  expect(page.sum("espalier_requests_total", { status: "499", endpoint: "chat" })).toBe(1);
  expect(page.sum("espalier_requests_in_flight")).toBe(0);
  expect(page.sum("espalier_engine_requests_in_flight")).toBe(0);
});

test("fifty clients that leave together leave nothing behind", async () => {
  const sims = await rig.sims(2, { speed: 1 });
  const router = await rig.router({ engines: sims.map(({ url }) => url) });
  const requests = Array.from({ length: 50 }, (_, at) =>
    openPost(`${router.url}/v1/chat/completions`, chat({ stream: at % 2 === 0, max_tokens: 5_000 })),
  );
  const active = async () =>
    (await Promise.all(sims.map((sim) => sim.state()))).flatMap((state) => state.active).length;
  await waitFor(async () => (await active()) === 50, { what: "50 requests at the engines", deadlineMs: 20_000 });

  for (const request of requests) request.destroy();

  await waitFor(async () => (await active()) === 0, { what: "no request at the engines", deadlineMs: atOnceMs });
  await router.untilIdle();
  expect((await post(`${router.url}/v1/chat/completions`, chat({ max_tokens: 1 }))).status).toBe(200);
});

test("a client that leaves before the first byte: no other engine is asked for it", async () => {
  const engines = [await httpEngine(rig, () => {}), await httpEngine(rig, () => {})];
  const router = await rig.router({ engines: engines.map(({ url }) => url) });
  const request = openPost(`${router.url}/v1/chat/completions`, chat());
  const seen = () => engines.flatMap((engine) => engine.requests);
  await waitFor(() => seen().length === 1, { what: "request at an engine" });

  request.destroy();

  await waitFor(() => seen()[0]?.socket.destroyed, { what: "closed connection", deadlineMs: atOnceMs });
  await router.untilIdle();
  expect(seen()).toHaveLength(1);
  expect((await router.metrics()).sum("espalier_proxy_retries_total")).toBe(0);
});

test("a client that leaves while it waits in an engine's queue leaves the queue", async () => {
  const silent = await rawEngine(rig, () => {});
  const limits = { "max-connections-per-engine": 1, "max-queued-per-engine": 1 };
  const router = await rig.router({ engines: [silent.url], config: { limits } });
  const url = `${router.url}/v1/chat/completions`;
  const first = openPost(url, chat());
  await waitFor(() => silent.count() === 1, { what: "request at the engine" });
  const second = openPost(url, chat());
  const inFlight = async () => Number((await router.admin("GET", "/admin/status")).json.inFlight);
  await waitFor(async () => (await inFlight()) === 2, { what: "queued request" });

  second.destroy();
  await waitFor(async () => (await inFlight()) === 1, { what: "empty queue" });
  first.destroy();
  await router.untilIdle();
  expect(silent.count()).toBe(1);
});

test("a client that leaves before its body is whole costs nothing", async () => {
  const engine = await httpEngine(rig, () => {});
  const router = await rig.router({ engines: [engine.url] });
  const connection = await rawConnection(router.port);
  connection.write(rawPost("/v1/chat/completions", JSON.stringify(chat())).slice(0, -5));
  await waitFor(async () => (await router.admin("GET", "/admin/status")).json.inFlight === 1, { what: "request" });
  connection.socket.resetAndDestroy();
  await router.untilIdle();
  expect(engine.requests).toEqual([]);
});

test("a slow client that stops reading is given up after the limit, and the engine with it", async () => {
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = `data: ${"x".repeat(65_000)}\n\n`;
    const send = (): void => {
      while (!response.destroyed && response.write(event));
      response.once("drain", send);
    };
    send();
  });
  const router = await rig.router({ engines: [engine.url], config: { timeouts: { "client-write": "200ms" } } });
  const connection = await rawConnection(router.port);
  connection.socket.pause();
  connection.write(rawPost("/v1/chat/completions", JSON.stringify(chat({ stream: true }))));
  await waitFor(() => engine.requests[0]?.socket.destroyed, { what: "end of the engine's request" });
  expect(engine.requests).toHaveLength(1);
  await router.untilIdle();
  expect((await router.metrics()).sum("espalier_requests_total", { status: "499" })).toBe(1);
});
