import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, errorOf, openPost, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const breaker = { "consecutive-failures": 3, open: "100ms", "max-open": "200ms", "successes-to-close": 2 };

async function untilBreaker(router: RunningRouter, state: string): Promise<void> {
  await waitFor(async () => (await router.engines())[0]?.breaker.state === state, { what: `${state} breaker` });
}

test("failed requests open an engine's breaker, and good trials close it", async () => {
  const [sim] = await rig.sims(1);
  // Open for long enough to be looked at.
  const config = { breaker: { ...breaker, open: "1s", "max-open": "1s" } };
  const router = await rig.router({ engines: [sim!.url], config });
  const url = `${router.url}/v1/chat/completions`;
  await sim!.fault({ kind: "sick" });

  const statuses: number[] = [];
  for (let i = 0; i < 3; i++) statuses.push((await post(url, chat())).status);
  expect(statuses).toEqual([500, 500, 500]);
  expect((await router.engines())[0]?.breaker.reason).toMatch(/^3 consecutive failures/);
  const seen = (await sim!.state()).requests.length;
  const refused = await post(url, chat());
  if (refused.status === 503) {
    expect([errorOf(refused).code, refused.headers["retry-after"]]).toEqual(["no_engine_available", "1"]);
    expect((await sim!.state()).requests).toHaveLength(seen);
  }

  await sim!.clearFaults();
  await untilBreaker(router, "half-open");
  expect((await post(url, chat())).status).toBe(200);
  expect((await post(url, chat())).status).toBe(200);
  await untilBreaker(router, "closed");
  expect((await router.metrics()).sum("espalier_engine_breaker_state", { engine: sim!.id })).toBe(0);
});

test("while it is open for long, requests are shed at once and readiness says why", async () => {
  const [sim] = await rig.sims(1);
  const config = { breaker: { ...breaker, open: "60s", "max-open": "60s" } };
  const router = await rig.router({ engines: [sim!.url], config });
  await sim!.fault({ kind: "reset-before-headers" });
  const url = `${router.url}/v1/chat/completions`;
  for (let i = 0; i < 3; i++) expect((await post(url, chat())).status).toBe(502);

  const shed = await post(url, chat());

  expect([shed.status, errorOf(shed), shed.headers["retry-after"]]).toEqual([
    503,
    { message: expect.any(String), type: "server_error", param: null, code: "no_engine_available" },
    "1",
  ]);
  expect(router.router.readiness()).toEqual({ ready: false, reasons: ["no engine is usable"] });
  expect((await router.metrics()).sum("espalier_engine_breaker_state", { engine: sim!.id })).toBe(2);
});

test("with another engine at hand nobody notices, and the broken one gets no more requests", async () => {
  const [bad, good] = await rig.sims(2);
  const config = { policy: "round_robin", breaker: { ...breaker, open: "60s", "max-open": "60s" } };
  const router = await rig.router({ engines: [bad!.url, good!.url], config });
  await bad!.fault({ kind: "reset-before-headers" });
  for (let i = 0; i < 20; i++) expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(200);
  expect((await bad!.state()).totals.faulted).toBe(3);
});

test("half-open lets one request through at a time", async () => {
  const open: (() => void)[] = [];
  let healthy = false;
  const engine = await httpEngine(rig, ({ response }) => {
    if (healthy) open.push(() => response.writeHead(200, { "content-type": "application/json" }).end("{}"));
    else response.socket?.resetAndDestroy();
  });
  const router = await rig.router({ engines: [engine.url], config: { breaker } });
  const url = `${router.url}/v1/chat/completions`;
  for (let i = 0; i < 3; i++) await post(url, chat());
  healthy = true;
  await untilBreaker(router, "half-open");

  const trial = openPost(url, chat());
  await waitFor(() => open.length === 1, { what: "trial at the engine" });
  expect((await post(url, chat())).status).toBe(503);
  open[0]?.();
  expect((await trial.head).statusCode).toBe(200);
  await trial.body;
  await router.untilIdle();
});

test("429 is load and not failure: the breaker stays closed", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], config: { breaker } });
  await sim!.fault({ kind: "status", status: 429 });
  for (let i = 0; i < 8; i++) expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(429);
  expect((await router.engines())[0]?.breaker.state).toBe("closed");
});

test("clients that go away say nothing about the engine", async () => {
  const engine = await httpEngine(rig, () => {});
  const router = await rig.router({ engines: [engine.url], config: { breaker } });
  for (let i = 1; i <= 4; i++) {
    const request = openPost(`${router.url}/v1/chat/completions`, chat());
    await waitFor(() => engine.requests.length === i, { what: "request at the engine" });
    request.destroy();
    await waitFor(() => engine.requests[i - 1]?.socket.destroyed, { what: "abort at the engine" });
  }
  await router.untilIdle();
  expect((await router.engines())[0]?.breaker.state).toBe("closed");
});

/*
 * Symptom: an engine that begins every answer and never ends one kept its breaker closed, because a request counted as a
 * success with its first byte.
 */
test("an engine that cuts its answers opens its breaker, although each of them began well", async () => {
  const [sim] = await rig.sims(1);
  const config = {
    breaker: { ...breaker, "consecutive-failures": 100, "window-requests": 8, open: "60s", "max-open": "60s" },
  };
  const router = await rig.router({ engines: [sim!.url], config });
  await sim!.fault({ kind: "cut-mid-stream", afterTokens: 2 });
  const url = `${router.url}/v1/chat/completions`;
  for (let i = 0; i < 4; i++) expect((await post(url, chat({ stream: true }))).status).toBe(200);

  expect((await post(url, chat({ stream: true }))).status).toBe(503);
  expect((await router.engines())[0]?.breaker.reason).toMatch(/^4 of 8 requests failed, last: upstream_cut_short/);
});

test("when most engines look sick their breakers do not count, so that the last one is not buried", async () => {
  const sims = await rig.sims(4);
  const config = { policy: "round_robin", breaker: { ...breaker, open: "60s", "max-open": "60s" } };
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  const url = `${router.url}/v1/chat/completions`;
  for (const sim of sims.slice(0, 3)) await sim.fault({ kind: "sick" });
  for (let i = 0; i < 24; i++) await post(url, chat());
  expect((await router.engines()).map(({ breaker: { state } }) => state)).toEqual(["open", "open", "open", "closed"]);
  expect((await router.engines()).every(({ targets }) => targets[0]!.usable)).toBe(true);

  for (const sim of sims) await sim.clearFaults();
  const shared = (await sims[3]!.state()).requests.length;
  for (let i = 0; i < 20; i++) expect((await post(url, chat())).status).toBe(200);
  expect((await sims[3]!.state()).requests.length - shared).toBeLessThan(10);
});
