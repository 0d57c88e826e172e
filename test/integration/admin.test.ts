import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, errorOf, openPost, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const key = "the-admin-key";

test("with an admin key everything but the probes asks for it", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], config: { admin: { key } } });
  const guarded = [
    ["GET", "/metrics"],
    ["GET", "/admin/status"],
    ["GET", "/admin/config"],
    ["GET", "/admin/engines"],
    ["PATCH", `/admin/engines/${sim!.id}`],
  ] as const;
  for (const [method, path] of guarded) {
    const missing = await call(router.adminUrl + path, { method });
    expect([missing.status, errorOf(missing)]).toEqual([
      401,
      { message: expect.any(String), type: "authentication_error", param: null, code: "missing_api_key" },
    ]);
    const wrong = await call(router.adminUrl + path, { method, headers: { authorization: "Bearer the-admin-kex" } });
    expect([wrong.status, errorOf(wrong).code]).toEqual([401, "invalid_api_key"]);
    expect((await router.admin(method, path, method === "PATCH" ? { draining: false } : undefined)).status).toBe(200);
  }
  for (const path of ["/livez", "/readyz"]) expect((await call(router.adminUrl + path)).status).toBe(200);
  expect((await router.admin("GET", "/admin/config")).text).not.toContain(key);
});

test("metrics parse as Prometheus' text format and tell what was asked", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  for (let i = 0; i < 3; i++) await post(`${router.url}/v1/chat/completions`, chat({ stream: i === 0 }));
  await post(`${router.url}/v1/completions`, { model: "tiny", prompt: "x", max_tokens: 2 });
  await post(`${router.url}/v1/chat/completions`, chat({ model: "unknown" }));
  await router.untilIdle();

  const answer = await router.admin("GET", "/metrics");
  expect(answer.headers["content-type"]).toMatch(/^text\/plain; version=0\.0\.4/);
  const page = await router.metrics();
  for (const { name } of page.samples) {
    const family = name.replace(/_(bucket|sum|count)$/, "");
    expect(page.types.has(name) || page.types.get(family) === "histogram", name).toBe(true);
  }
  const requests = (labels: Record<string, string>) => page.sum("espalier_requests_total", labels);
  expect(requests({ endpoint: "chat", model: "tiny", status: "200" })).toBe(3);
  expect(requests({ endpoint: "completions", model: "tiny", status: "200" })).toBe(1);
  expect(requests({ endpoint: "chat", status: "404" })).toBe(1);
  expect(page.sum("espalier_request_duration_seconds_count", { endpoint: "chat", model: "tiny" })).toBe(3);
  expect(page.sum("espalier_time_to_first_byte_seconds_count", { endpoint: "chat" })).toBe(3);
  expect(page.sum("espalier_overhead_seconds_count")).toBe(4);
  expect(page.sum("espalier_decisions_total", { policy: "predicted_latency" })).toBe(4);
  expect(page.sum("espalier_proxy_attempts_total", { outcome: "answered" })).toBe(4);
  expect(page.sum("espalier_engine_up", { engine: sim!.id })).toBe(1);
  expect(page.types.get("espalier_requests_total")).toBe("counter");
});

test("what clients send cannot add series to the metrics", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  /** Of so many requests, once all are counted. */
  const series = async (requests: number): Promise<number> => {
    const isCounted = async (): Promise<boolean> =>
      (await router.metrics()).sum("espalier_requests_total") === requests;
    await waitFor(isCounted, { what: `${requests} counted requests` });
    return (await router.metrics()).samples.filter(({ name }) => name === "espalier_requests_total").length;
  };
  await post(`${router.url}/v1/chat/completions`, chat({ model: "m" }));
  await call(`${router.url}/x`);
  const before = await series(2);
  for (let i = 0; i < 20; i++) {
    await post(`${router.url}/v1/chat/completions`, chat({ model: `model-${i}` }));
    await call(`${router.url}/path-${i}`);
  }
  expect(await series(2 + 2 * 20)).toBe(before);
});

test("engines are described, and one is taken out and put back", async () => {
  const sims = await rig.sims(2);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "round_robin" } });
  const [first, second] = sims;
  expect((await router.engines()).map(({ id, url, state, models }) => ({ id, url, state, models }))).toEqual(
    sims.map(({ id, url }) => ({ id, url, state: "up", models: ["tiny"] })),
  );

  const drained = await router.admin("PATCH", `/admin/engines/${first!.id}`, { draining: true });
  expect([drained.status, drained.json.id, drained.json.draining]).toEqual([200, first!.id, true]);
  const url = `${router.url}/v1/chat/completions`;
  for (let i = 0; i < 4; i++) expect((await post(url, chat())).headers["x-espalier-engine"]).toBe(second!.id);
  await router.admin("PATCH", `/admin/engines/${second!.id}`, { draining: true });
  const nobody = await post(url, chat());
  expect([nobody.status, errorOf(nobody).code]).toEqual([503, "no_engine_available"]);
  expect((await call(`${router.url}/readyz`)).status).toBe(503);

  await router.admin("PATCH", `/admin/engines/${encodeURIComponent(first!.id)}`, { draining: false });
  expect((await post(url, chat())).headers["x-espalier-engine"]).toBe(first!.id);
});

test("an engine that is taken out finishes what it has", async () => {
  let finish = (): void => {};
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).write("data: {}\n\n");
    finish = () => response.end("data: [DONE]\n\n");
  });
  const router = await rig.router({ engines: [engine.url] });
  const stream = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  await stream.head;
  await router.admin("PATCH", `/admin/engines/${engine.id}`, { draining: true });
  expect((await router.engines())[0]?.targets[0]?.load.in_flight).toBe(1);
  finish();
  expect((await stream.body).toString()).toMatch(/\[DONE\]/);
  await router.untilIdle();
});

test("an engine's id may be long and have slashes in it", async () => {
  const [sim] = await rig.sims(1);
  const id = `team/rack/${"e".repeat(118)}`;
  const router = await rig.router({ engines: [{ url: sim!.url, id }] });
  const answer = await router.admin("PATCH", `/admin/engines/${encodeURIComponent(id)}`, { draining: true });
  expect([answer.status, answer.json.id]).toEqual([200, id]);
});

test.each<readonly [unknown, number, string, string | null]>([
  [{}, 400, "invalid_type", "draining"],
  [{ draining: "yes" }, 400, "invalid_type", "draining"],
  [[], 400, "invalid_type", "draining"],
  ["{", 400, "invalid_json", null],
  ["", 400, "invalid_json", null],
  ['{"__proto__":{"draining":true}}', 400, "invalid_json", null],
  [`{"draining":true,"pad":"${"x".repeat(70_000)}"}`, 413, "body_too_large", null],
])("PATCH with %j: %i %s", async (body, status, code, param) => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const answer = await router.admin("PATCH", `/admin/engines/${sim!.id}`, body);
  expect([answer.status, errorOf(answer)]).toMatchObject([status, { code, param }]);
  expect((await router.engines())[0]?.draining).toBe(false);
});

test("an engine that does not exist: 404, and so for other paths", async () => {
  const router = await rig.router();
  const engine = await router.admin("PATCH", "/admin/engines/nobody", { draining: true });
  expect([engine.status, errorOf(engine)]).toEqual([
    404,
    { message: expect.any(String), type: "not_found_error", param: null, code: "engine_not_found" },
  ]);
  for (const method of ["GET", "DELETE"]) {
    const answer = await router.admin(method, "/admin/engines/nobody");
    expect([answer.status, errorOf(answer).code]).toEqual([404, "engine_not_found"]);
  }
  for (const path of ["/v1/models", "/v1/chat/completions", "/admin", "/admin/engines/x/y"]) {
    const answer = await router.admin("GET", path);
    expect([answer.status, errorOf(answer).code]).toEqual([404, "path_not_found"]);
  }
  expect((await router.admin("POST", "/v1/chat/completions", chat())).status).toBe(404);
});

test("an engine has the times of its streams, and the age of the oldest that waits for it", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const engine = async () => (await router.admin("GET", `/admin/engines/${sim!.id}`)).json;
  const url = `${router.url}/v1/chat/completions`;
  for (const stream of [false, true]) await post(url, chat({ stream, max_tokens: 4 }));
  await router.untilIdle();
  expect(await engine()).toMatchObject({
    ...{ oldest_wait_ms: null, unresponsive_ms: null },
    last_minute: { first_tokens: 1, ttft_ms: expect.any(Number), tpot_ms: expect.any(Number) },
  });
  await post(`${sim!.url}/sim/faults`, { kind: "hang-before-headers", count: 1 });
  const waiting = openPost(url, chat({ stream: true }));
  await waitFor(async () => Number((await engine()).oldest_wait_ms) > 0, { what: "a request that waits" });
  waiting.destroy();
  await waitFor(async () => (await engine()).oldest_wait_ms === null, { what: "its end" });
});

test("the status names engines that are not up and why, 16 at most", async () => {
  const [sim] = await rig.sims(1);
  const dead = Array.from({ length: 17 }, (_, at) => ({ url: `http://127.0.0.1:${1 + at}`, models: ["other"] }));
  const router = await rig.router({ engines: [sim!.url, ...dead], usable: 1 });
  const troubles = async () => {
    const { json } = await router.admin("GET", "/admin/status");
    return json.troubledEngines as readonly { engine: string; trouble: string }[];
  };
  await waitFor(async () => (await troubles()).length === 16, { what: "16 engines that do not answer" });
  expect((await troubles())[0]).toEqual({
    engine: "127.0.0.1:1",
    trouble: expect.stringMatching(/^starting: \d+ failed probes, last: unreachable$/),
  });
  expect(
    (await router.admin("GET", `/admin/engines/${encodeURIComponent("127.0.0.1:17")}`)).json.trouble,
  ).not.toBeNull();
});

test("the status tells engines, models and what is under way", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url, { url: "http://127.0.0.1:1", models: ["other"] }], usable: 1 });
  expect((await router.admin("GET", "/admin/status")).json).toEqual({
    ready: true,
    reasons: [],
    settings: expect.stringMatching(/^[0-9a-f]{8}$/),
    draining: false,
    inFlight: 0,
    totals: {
      ...{ requests: 0, answered: 0, refused: 0, failed: 0, cut: 0, cancelled: 0, limited: 0 },
      ...{ promptTokens: 0, cachedTokens: 0, completionTokens: 0, firstBytes: 0, firstByteS: 0 },
      ...{ met: 0, missed: 0, streams: 0, tpotS: 0 },
    },
    goodput: [],
    engines: 2,
    usableEngines: 1,
    asleepEngines: 0,
    troubledEngines: expect.any(Array),
    models: ["other", "tiny"],
    mesh: null,
    lastReload: null,
    overflow: [],
    picker: null,
    url: router.url,
    version: null,
    peers: [],
  });
});

test("probes answer on both listeners under every usual name", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], usable: 0 });
  const ask = async (path: string) => await Promise.all([call(router.url + path), call(router.adminUrl + path)]);
  await waitFor(async () => (await ask("/readyz")).every(({ status }) => status === 200), { what: "readiness" });
  for (const path of ["/livez", "/healthz", "/liveness", "/live", "/ping"]) {
    for (const { status, json } of await ask(path)) expect([status, json]).toEqual([200, { status: "alive" }]);
  }
  for (const path of ["/readyz", "/health", "/readiness", "/ready"]) {
    for (const { status, json } of await ask(path))
      expect([status, json]).toEqual([200, { status: "ready", reasons: [] }]);
  }
  await router.admin("PATCH", `/admin/engines/${sim!.id}`, { draining: true });
  for (const path of ["/readyz", "/health", "/readiness", "/ready"]) {
    for (const { status } of await ask(path)) expect(status).toBe(503);
  }
  for (const { status } of await ask("/livez")) expect(status).toBe(200);
});
