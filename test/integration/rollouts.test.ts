import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, errorOf, type Json, post } from "./client.ts";
import { meshRouters } from "./mesh-rig.ts";
import { createRig, type RouterOptions, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const start = (rollouts: Json = {}, options: RouterOptions = {}): Promise<RunningRouter> =>
  rig.router({ ...options, config: { ...options.config, rollouts: { port: 0, ...rollouts } } });
const urlOf = ({ router }: RunningRouter): string => router.rolloutsUrl ?? "";
const urls = async (router: RunningRouter): Promise<readonly unknown[]> =>
  (await call(`${urlOf(router)}/list_workers`)).json.urls as readonly unknown[];
const untilUp = (routers: readonly RunningRouter[], count: number) =>
  waitFor(
    async () =>
      (await Promise.all(routers.map((router) => router.engines()))).every(
        (all) => all.length === count && all.every(({ state, models }) => state === "up" && models),
      ),
    { what: `${count} engines up at all routers` },
  );

test("without a port there is no listener, and the clients' listener has none of its routes", async () => {
  const plain = await rig.router();
  expect(plain.router.rolloutsUrl).toBeNull();
  expect((await call(`${plain.url}/workers`)).status).toBe(404);
  expect((await post(`${plain.url}/flush_cache`, {})).status).toBe(404);
});

test("a framework adds engines by one router, and each router of the mesh serves by them", async () => {
  const [a, b] = await rig.sims(2);
  const config = { rollouts: { port: 0 } };
  const routers = await meshRouters(rig, 3, [], { config, usable: 0 });
  const [one, two, three] = routers as [RunningRouter, RunningRouter, RunningRouter];
  // Frameworks wait for it before they add the first engine.
  expect((await call(`${urlOf(one)}/health`)).status).toBe(200);

  const added = await post(`${urlOf(one)}/workers`, { url: a!.url, worker_type: "regular" });
  expect([added.status, added.json]).toMatchObject([202, { status: "accepted", worker_id: a!.id, url: a!.url }]);
  expect((await post(`${urlOf(two)}/workers`, { url: a!.url, worker_type: "regular" })).status).toBe(202);
  // Not encoded, and answered once the engine is up.
  expect((await call(`${urlOf(two)}/add_worker?url=${b!.url}`, { method: "POST" })).status).toBe(200);
  await untilUp(routers, 2);
  expect((await urls(three)).toSorted()).toEqual([a!.url, b!.url].toSorted());
  const { workers, total, stats } = (await call(`${urlOf(three)}/workers`)).json;
  const worker = { model_id: "tiny", worker_type: "regular", is_healthy: true, connection_mode: "http" };
  expect([total, stats]).toEqual([2, { prefill_count: 0, decode_count: 0, regular_count: 2 }]);
  expect(workers).toMatchObject([
    { id: a!.id, url: a!.url, ...worker },
    { id: b!.id, url: b!.url, ...worker },
  ]);
  expect((await call(`${urlOf(one)}/workers?model=other`)).json.total).toBe(0);
  expect((await post(`${urlOf(three)}/v1/chat/completions`, chat())).status).toBe(200);

  const byUrl = await call(`${urlOf(three)}/workers/${encodeURIComponent(a!.url)}`, { method: "DELETE" });
  expect([byUrl.status, byUrl.json.worker_id]).toEqual([202, a!.id]);
  await untilUp(routers, 1);
  expect((await call(`${urlOf(one)}/workers/${b!.id}`)).json).toMatchObject({ url: b!.url });
  expect((await call(`${urlOf(one)}/workers/${b!.id}`, { method: "DELETE" })).status).toBe(202);
  const gone = await call(`${urlOf(one)}/workers/${b!.id}`, { method: "DELETE" });
  expect([gone.status, gone.json.code]).toEqual([404, "WORKER_NOT_FOUND"]);
  expect((await call(`${urlOf(one)}/remove_worker?url=${b!.url}`, { method: "POST" })).status).toBe(200);
  await untilUp(routers, 0);
});

test("types become roles, a rank behind the URL is cut off, and what is wrong is refused", async () => {
  const router = await start();
  const add = (body: Json) => post(`${urlOf(router)}/workers`, body);
  const typed = { url: "http://127.0.0.1:1", worker_type: "prefill", bootstrap_port: 8_998 };
  expect((await add(typed)).status).toBe(202);
  expect((await add({ url: "http://127.0.0.1:2", worker_type: "decode" })).status).toBe(202);
  expect((await add({ url: "http://127.0.0.1:3@1" })).json.url).toBe("http://127.0.0.1:3");
  const { workers, stats } = (await call(`${urlOf(router)}/workers`)).json;
  expect(stats).toEqual({ prefill_count: 1, decode_count: 1, regular_count: 1 });
  expect(workers).toMatchObject([{ worker_type: "prefill", bootstrap_port: 8_998 }, { worker_type: "decode" }, {}]);
  const cases = [
    [{ url: "http://127.0.0.1:1" }, 409, "engine_exists"],
    [{ url: "http://127.0.0.1:4", worker_type: "encoder" }, 400, "invalid_value"],
    [{ worker_type: "regular" }, 400, "missing_field"],
    [{ url: "no url" }, 400, "invalid_value"],
    [{ url: 7 }, 400, "missing_field"],
  ] as const;
  for (const [body, status, code] of cases) {
    const answer = await add(body);
    expect([answer.status, errorOf(answer).code], JSON.stringify(body)).toEqual([status, code]);
  }
});

test("engines may be added at allowed hosts only, which are loopback and private by default", async () => {
  const byDefault = await start();
  const narrow = await start({ allow: ["10.1.0.0/16", "gpu-1", "*.fleet.internal"] });
  const refused = [
    [byDefault, "http://169.254.169.254:80", 403],
    [byDefault, "http://93.184.216.34:8000", 403],
    [byDefault, "http://gpu-1:8000", 403],
    [byDefault, "http://[::1]:8000", 202],
    [byDefault, "http://[::ffff:93.184.216.34]:8000", 403],
    [byDefault, "http://192.168.1.7:8000", 202],
    [narrow, "http://10.2.0.1:8000", 403],
    [narrow, "http://127.0.0.1:8000", 403],
    [narrow, "http://fleet.internal:8000", 403],
    [narrow, "http://gpu-10:8000", 403],
    [narrow, "http://10.1.255.255:8000", 202],
    [narrow, "http://GPU-1:8000", 202],
    [narrow, "http://b.a.fleet.internal:8000", 202],
  ] as const;
  for (const [router, url, status] of refused) {
    const answer = await post(`${urlOf(router)}/workers`, { url });
    expect([url, answer.status]).toEqual([url, status]);
    if (status === 403) expect(errorOf(answer).code).toBe("engine_not_allowed");
  }
});

test("without a key control calls need a loopback host and no page; with one every request carries it", async () => {
  const [sim] = await rig.sims(1);
  const open = await start({}, { engines: [sim!.url] });
  const rebound = await post(`${urlOf(open)}/flush_cache`, {}, { host: "rebound.example" });
  expect([rebound.status, errorOf(rebound).code]).toEqual([400, "invalid_header"]);
  const page = await post(`${urlOf(open)}/flush_cache`, {}, { origin: "https://page.example" });
  expect([page.status, errorOf(page).code]).toEqual([403, "cross_origin_request"]);

  const apiKeys = [{ name: "client", key: "a key of clients" }];
  const closed = await start({ key: "key of trainers" }, { engines: [sim!.url], config: { "api-keys": apiKeys } });
  for (const path of ["/flush_cache", "/v1/chat/completions"]) {
    const body = path === "/flush_cache" ? {} : chat();
    expect((await post(urlOf(closed) + path, body)).status).toBe(401);
    const other = await post(urlOf(closed) + path, body, { authorization: "Bearer a key of clients" });
    expect([other.status, errorOf(other).code]).toEqual([401, "invalid_api_key"]);
    expect((await post(urlOf(closed) + path, body, { authorization: "Bearer key of trainers" })).status).toBe(200);
  }
  expect((await call(`${urlOf(closed)}/health`)).status).toBe(200);
});

test("a control call reaches each engine as it is, and its answer says who failed", async () => {
  const [a, b] = await rig.sims(2);
  const router = await start({}, { engines: [a!.url, b!.url] });
  const done = await post(`${urlOf(router)}/flush_cache?timeout=1`, {});
  expect(done.status).toBe(200);
  expect(done.json).toMatchObject({ success: true, status: "ok", workers: [{ url: a!.url }, { url: b!.url }] });
  expect((await call(`${urlOf(router)}/flush_cache`)).status).toBe(200);

  await b!.fault({ kind: "status", status: 400, path: "/flush_cache" });
  const part = await post(`${urlOf(router)}/flush_cache`, {});
  expect(part.status).toBe(502);
  expect(part.json).toMatchObject({
    success: false,
    error: { code: "control_call_failed" },
    workers: [
      { engine: a!.id, status: 200, error: null },
      { engine: b!.id, status: 400, error: "status 400" },
    ],
  });
  await b!.clearFaults();
  const page = await router.metrics();
  expect(page.sum("espalier_control_calls_total", { call: "flush_cache", outcome: "succeeded" })).toBe(5);
  expect(page.sum("espalier_control_calls_total", { call: "flush_cache", outcome: "failed" })).toBe(1);
});

test("a call that differs per engine goes to the engine that it names, and is copied to none", async () => {
  const [a, b] = await rig.sims(2);
  const router = await start({}, { engines: [a!.url, b!.url] });
  const call_ = (headers = {}) => post(`${urlOf(router)}/init_weights_update_group`, { rank_offset: 1 }, headers);
  const unnamed = await call_();
  expect([unnamed.status, errorOf(unnamed).code]).toEqual([400, "engine_not_named"]);
  expect((await call_({ "x-espalier-engine": "nobody" })).status).toBe(404);
  // Whatever the engine says: simulated vLLM has no such route.
  expect((await call_({ "x-espalier-engine": b!.url })).status).toBe(404);
  const only = await post(`${urlOf(router)}/flush_cache`, {}, { "x-espalier-engine": a!.id });
  expect(only.status).toBe(200);
  expect((await post(`${urlOf(router)}/flush_cache`, {}, { "x-espalier-model": "other" })).status).toBe(503);
});

test("a control call past the bound is refused, and the next one goes out", async () => {
  const [sim] = await rig.sims(1);
  const router = await start({ timeout: "1s" }, { engines: [sim!.url] });
  await sim!.fault({ kind: "hang-before-headers", path: "/reset_prefix_cache" });
  const reset = () => post(`${urlOf(router)}/reset_prefix_cache`, {});
  const hanging = Array.from({ length: 64 }, reset);
  await waitFor(async () => (await sim!.state()).requests !== undefined && (await reset()).status === 429, {
    what: "the bound on control calls",
  });
  const answers = await Promise.all(hanging);
  expect(answers.every(({ status }) => status === 502)).toBe(true);
  await sim!.clearFaults();
  expect((await reset()).status).toBe(200);
});
