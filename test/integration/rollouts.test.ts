import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, errorOf, type Json, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { meshRouters, untilSpread } from "./mesh-rig.ts";
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

test("an engine counts as healthy, and as added, once requests for its models would reach it", async () => {
  let models: { readonly id: string }[] | undefined;
  const engine = await httpEngine(rig, ({ response }) => response.end('{"text": "a"}'), { listed: () => models });
  const router = await start();
  const added = call(`${urlOf(router)}/add_worker?url=${engine.url}`, { method: "POST" });
  await waitFor(async () => (await router.engines())[0]?.state === "up", { what: "a healthy engine" });
  expect((await call(`${urlOf(router)}/workers`)).json.workers).toMatchObject([{ is_healthy: false }]);
  models = [{ id: "tiny" }];
  expect((await added).status).toBe(200);
  expect((await call(`${urlOf(router)}/workers`)).json.workers).toMatchObject([{ model_id: "tiny", is_healthy: true }]);
  expect((await post(`${urlOf(router)}/generate`, { text: "hello" })).status).toBe(200);
});

test("requests that name their engines repeat a run, whatever the policy, and are refused once the engine is gone", async () => {
  const sims = await rig.sims(3);
  const engines = sims.map(({ url }) => url);
  const router = await start({}, { engines, config: { policy: "round_robin" } });
  await untilUp([router], 3);
  const ask = (headers = {}) => post(`${urlOf(router)}/v1/chat/completions`, chat({ max_tokens: 1 }), headers);
  const engineOf = ({ headers }: { readonly headers: Json }): string => String(headers["x-espalier-engine"]);
  const recorded: string[] = [];
  for (let turn = 0; turn < 7; turn++) recorded.push(engineOf(await ask()));
  expect(new Set(recorded).size).toBe(3);
  const replayed: string[] = [];
  for (const engine of recorded) replayed.push(engineOf(await ask({ "x-espalier-engine": engine })));
  expect(replayed).toEqual(recorded);
  expect(engineOf(await ask({ "x-espalier-engine": sims[1]!.url }))).toBe(sims[1]!.id);

  const gone = await ask({ "x-espalier-engine": "http://127.0.0.1:1" });
  expect([gone.status, errorOf(gone).code]).toEqual([404, "engine_not_found"]);
  await sims[2]!.stop();
  const isDown = async () => (await router.engines()).some(({ id, state }) => id === sims[2]!.id && state !== "up");
  await waitFor(isDown, { what: "the engine to be down" });
  const down = await ask({ "x-espalier-engine": sims[2]!.id });
  expect([down.status >= 500, errorOf(down).message]).toEqual([true, expect.stringContaining(sims[2]!.id)]);
  // The clients' listener knows no such header.
  const plain = await post(`${router.url}/v1/chat/completions`, chat({ max_tokens: 1 }), {
    "x-espalier-engine": "http://127.0.0.1:1",
  });
  expect(plain.status).toBe(200);
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

test("clients in a trusted network need no key where they name the listener by its address; others do", async () => {
  const [sim] = await rig.sims(1);
  const config = { "api-keys": [{ name: "client", key: "a key of clients" }] };
  const startWith = (rollouts: Readonly<Record<string, unknown>>) => start(rollouts, { engines: [sim!.url], config });
  const open = await startWith({ trusted: ["10.9.0.0/16", "127.0.0.0/8"] });
  const closed = await startWith({ trusted: ["10.9.0.0/16"] });
  const keyed = await startWith({ trusted: ["10.9.0.0/16"], key: "key of trainers" });
  const trainer = { authorization: "Bearer key of trainers" };
  for (const path of ["/flush_cache", "/v1/chat/completions"]) {
    const ask = async (router: typeof open, headers: Readonly<Record<string, string>> = {}) =>
      (await post(urlOf(router) + path, path === "/flush_cache" ? {} : chat(), headers)).status;
    // Frameworks' clients send a key that stands for none.
    expect([await ask(open), await ask(open, { authorization: "Bearer EMPTY" })]).toEqual([200, 200]);
    expect(await ask(open, { host: "rebound.example" })).toBe(401);
    expect([await ask(closed), await ask(closed, trainer)]).toEqual([401, 401]);
    expect([await ask(keyed), await ask(keyed, trainer)]).toEqual([401, 200]);
  }
  const page = await post(`${urlOf(open)}/flush_cache`, {}, { origin: "https://page.example" });
  expect([page.status, errorOf(page).code]).toEqual([403, "cross_origin_request"]);
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
  const router = await start({ timeout: "3s" }, { engines: [sim!.url] });
  await sim!.fault({ kind: "hang-before-headers", path: "/reset_prefix_cache" });
  const reset = () => post(`${urlOf(router)}/reset_prefix_cache`, {});
  const statuses = (await Promise.all(Array.from({ length: 65 }, reset))).map(({ status }) => status);
  expect(statuses.toSorted()).toEqual([429, ...Array.from({ length: 64 }, () => 502)]);
  await sim!.clearFaults();
  expect((await reset()).status).toBe(200);
});

const sglang = { parameters: { flavour: "sglang" as const } };
const rollout = (text: string, more: Json = {}): Json => ({ text, sampling_params: { max_new_tokens: 4 }, ...more });

/** Tokens of a prompt that a router believes to be at its engines, at most. */
async function matchedAt(router: RunningRouter, body: Json): Promise<number> {
  const { candidates } = (await router.admin("POST", "/admin/explain?endpoint=generate", body)).json;
  return Math.max(...(candidates as { signals: Json }[]).map(({ signals }) => Number(signals.matchedTokens ?? 0)));
}

test.each([
  ["/update_weights_from_disk", { model_path: "/m", weight_version: "2" }],
  ["/flush_cache", {}],
])("%s at one router voids what all routers believe of caches, and what comes later counts", async (path, update) => {
  const [sim] = await rig.sims(1, sglang);
  const config = { rollouts: { port: 0 }, "kv-events": { mode: "off" } };
  const routers = await meshRouters(rig, 3, [sim!], { config });
  const [one, two, three] = routers as [RunningRouter, RunningRouter, RunningRouter];
  const input_ids = Array.from({ length: 1_024 }, (_, at) => at + 1);
  const body = { input_ids, sampling_params: { max_new_tokens: 4 } };
  const matched = () => Promise.all(routers.map((router) => matchedAt(router, body)));
  const send = async (placements: number) => {
    expect((await post(`${urlOf(one)}/generate`, body)).status).toBe(200);
    await untilSpread(routers, placements);
    await waitFor(async () => (await matched()).every((tokens) => tokens === 1_008), {
      what: "placements at all routers",
    });
  };
  await send(1);
  expect((await post(urlOf(two) + path, update)).status).toBe(200);
  await waitFor(async () => (await matched()).every((tokens) => tokens === 0), { what: "void caches at all routers" });
  await send(2);
  // A failed call voids nothing.
  expect((await post(`${urlOf(three)}/update_weights_from_disk`, {})).status).toBe(502);
  expect((await matched()).every((tokens) => tokens === 1_008)).toBe(true);
});

test("an engine paused by one router is out of use at all and no failed one; requests wait until it goes on", async () => {
  const [sim] = await rig.sims(1, sglang);
  const routers = await meshRouters(rig, 3, [sim!], {
    config: { rollouts: { port: 0 }, health: { interval: "100ms" } },
  });
  const [one, two, three] = routers as [RunningRouter, RunningRouter, RunningRouter];
  const isAt = async (isPaused: boolean) =>
    (await Promise.all(routers.map(async (router) => (await router.engines())[0]))).every(
      (engine) => (engine as unknown as Json).paused === isPaused && engine!.targets[0]!.usable === !isPaused,
    );
  expect((await post(`${urlOf(two)}/pause_generation`, { mode: "in_place" })).status).toBe(200);
  await waitFor(() => isAt(true), { what: "a pause at all routers" });
  // Neither failed health checks nor calls count meanwhile.
  await sim!.fault({ kind: "unhealthy" });
  await waitFor(
    async () => (await three.metrics()).sum("espalier_engine_health_probes_total", { outcome: "paused" }) > 3,
    {
      what: "health checks that do not count",
    },
  );
  const explained = (await three.admin("POST", "/admin/explain?endpoint=generate", rollout("a"))).json;
  expect(JSON.stringify(explained)).toContain("paused by an RL framework");
  const waiting = post(`${urlOf(three)}/generate`, rollout("a"));
  const queued = async () => (await three.metrics()).sum("espalier_admission_queued_requests");
  await waitFor(async () => (await queued()) === 1, { what: "a request in the queue" });
  await sim!.clearFaults();
  const [engine] = await three.engines();
  expect([engine!.state, engine!.breaker.state]).toEqual(["up", "closed"]);

  // A call that fails leaves it as it was.
  expect((await post(`${urlOf(one)}/pause_generation`, { mode: "unknown" })).status).toBe(502);
  expect(await isAt(true)).toBe(true);
  expect((await post(`${urlOf(one)}/continue_generation`, {})).status).toBe(200);
  const answer = await waiting;
  expect([answer.status, Number(answer.headers["x-espalier-queued-ms"]) > 0]).toEqual([200, true]);
  await waitFor(() => isAt(false), { what: "the end of the pause at all routers" });
});

test("released memory keeps requests away until all of it is back", async () => {
  const [sim] = await rig.sims(1, sglang);
  const router = await start({}, { engines: [sim!.url] });
  const isPaused = async () => ((await router.engines())[0] as unknown as Json).paused;
  const make = async (path: string, body: Json) => expect((await post(urlOf(router) + path, body)).status).toBe(200);
  await make("/release_memory_occupation", { tags: ["weights", "kv_cache"] });
  await make("/continue_generation", {});
  await make("/resume_memory_occupation", { tags: ["weights"] });
  expect(await isPaused()).toBe(true);
  await make("/resume_memory_occupation", { tags: ["kv_cache"] });
  expect(await isPaused()).toBe(false);
});

test("an abort ends what the router itself holds, by id or all, with the answer that SGLang gives", async () => {
  const [sim] = await rig.sims(1, sglang);
  const router = await start({}, { engines: [sim!.url] });
  await post(`${urlOf(router)}/pause_generation`, { mode: "in_place" });
  const ask = (rid: string) => post(`${urlOf(router)}/generate`, rollout("a", { rid }));
  const [one, other, chatting] = [ask("one-1"), ask("other-1"), post(`${urlOf(router)}/v1/chat/completions`, chat())];
  const queued = async () => (await router.metrics()).sum("espalier_admission_queued_requests");
  await waitFor(async () => (await queued()) === 3, { what: "three queued requests" });
  expect((await post(`${urlOf(router)}/abort_request`, { rid: "one-" })).status).toBe(200);
  const aborted = await one;
  expect([aborted.status, aborted.json]).toMatchObject([
    200,
    { text: "", meta_info: { finish_reason: { type: "abort" } } },
  ]);
  expect(await queued()).toBe(2);
  expect((await post(`${urlOf(router)}/abort_request`, { abort_all: true })).status).toBe(200);
  expect((await other).json).toMatchObject({ meta_info: { finish_reason: { type: "abort" } } });
  const refused = await chatting;
  expect([refused.status, errorOf(refused).code]).toEqual([499, "request_aborted"]);
  await post(`${urlOf(router)}/continue_generation`, {});
  expect((await ask("later")).json).toMatchObject({ meta_info: { id: "later", finish_reason: { type: "length" } } });
  await router.untilIdle();
});

test("an abort ends what every router holds, and a stream gets its answer as one", async () => {
  const [sim] = await rig.sims(1, sglang);
  const routers = await meshRouters(rig, 2, [sim!], { config: { rollouts: { port: 0 } } });
  const [one, other] = routers as [RunningRouter, RunningRouter];
  await post(`${urlOf(one)}/pause_generation`, { mode: "in_place" });
  const queued = async () => (await other.metrics()).sum("espalier_admission_queued_requests");
  const paused = async () => ((await other.engines())[0] as unknown as Json).paused === true;
  await waitFor(paused, { what: "a paused engine at the other router" });
  const ask = (rid: string, stream: boolean) => post(`${urlOf(other)}/generate`, rollout("a", { rid, stream }));
  const [streamed, whole, kept] = [ask("a-1", true), ask("a-2", false), ask("b-1", false)];
  await waitFor(async () => (await queued()) === 3, { what: "three queued requests" });
  expect((await post(`${urlOf(one)}/abort_request`, { rid: "a-" })).status).toBe(200);
  expect((await whole).json).toMatchObject({ meta_info: { finish_reason: { type: "abort" } } });
  const events = (await streamed).text.split("\n\n");
  expect(events[0]).toMatch(/^data: \{"text":"".*"type":"abort"/);
  expect(events.slice(1)).toEqual(["data: [DONE]", ""]);
  expect(await queued()).toBe(1);
  expect((await post(`${urlOf(one)}/abort_request`, { abort_all: true })).status).toBe(200);
  expect((await kept).json).toMatchObject({ meta_info: { finish_reason: { type: "abort" } } });
});

test("answers that frameworks aborted at the engine pass, and open no circuit breaker", async () => {
  const [sim] = await rig.sims(1, { ...sglang, speed: 1 });
  const router = await start({}, { engines: [sim!.url] });
  const long = { sampling_params: { max_new_tokens: 4_000, ignore_eos: true } };
  const answers = Array.from({ length: 12 }, (_, at) => post(`${urlOf(router)}/generate`, rollout(`a ${at}`, long)));
  await waitFor(async () => (await sim!.state()).active.length === 12, { what: "twelve running requests" });
  await post(`${sim!.url}/abort_request`, { abort_all: true });
  for (const { status, json } of await Promise.all(answers)) {
    expect([status, json]).toMatchObject([200, { meta_info: { finish_reason: { type: "abort" } } }]);
  }
  await router.untilIdle();
  expect((await router.engines())[0]!.breaker).toMatchObject({ state: "closed" });
  expect((await sim!.state()).totals.aborted ?? 0).toBe(0);
});

test("a session ends where a framework says so", async () => {
  const sims = await rig.sims(4, sglang);
  const router = await start({}, { engines: sims.map(({ url }) => url), config: { policy: "sticky" } });
  const engineOf = async (key: string) => {
    const headers = { "x-smg-routing-key": key };
    return (await post(`${urlOf(router)}/generate`, rollout("a"), headers)).headers["x-espalier-engine"];
  };
  const bound = async () =>
    (await router.admin("POST", "/admin/explain?endpoint=generate", rollout("a", { session_id: "s" }))).text;
  const first = await engineOf("s");
  for (let turn = 0; turn < 3; turn++) expect(await engineOf("s")).toBe(first);
  const before = await bound();
  expect((await call(`${urlOf(router)}/finish_session?session_id=s`, { method: "POST" })).status).toBe(200);
  expect(await bound()).not.toBe(before);
  const { programs } = (await router.admin("GET", "/admin/programs")).json;
  expect(programs).toMatchObject([{ state: "ended", steps: 4 }]);
  expect((await call(`${urlOf(router)}/finish_session`, { method: "POST" })).status).toBe(400);
  expect((await post(`${urlOf(router)}/programs/release`, { program_id: "unknown" })).status).toBe(200);
});

test("token ids go where their prefix is cached", async () => {
  const sims = await rig.sims(3);
  const router = await start({}, { engines: sims.map(({ url }) => url), config: { policy: "cache_aware" } });
  const turn = async (count: number) => {
    const token_ids = Array.from({ length: count }, (_, at) => at + 1);
    const body = { model: "tiny", token_ids, sampling_params: { max_tokens: 2 } };
    const { headers } = await post(`${urlOf(router)}/inference/v1/generate`, body);
    return { engine: headers["x-espalier-engine"], hit: Number(headers["x-espalier-cache-hit-tokens"]) };
  };
  const { engine } = await turn(512);
  for (const count of [600, 700, 800])
    expect(await turn(count)).toMatchObject({ engine, hit: expect.toSatisfy((hit) => hit >= 512) });
});
