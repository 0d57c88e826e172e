import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { type Answer, call, errorOf, type Json, openPost, post } from "./client.ts";
import { type HttpEngine, httpEngine } from "./engines.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const round = { policy: "round_robin" };
const ask = (router: RunningRouter, fields: Json = {}): Promise<Answer> =>
  post(`${router.url}/v1/responses`, { model: "tiny", input: "hello", max_output_tokens: 3, ...fields });
const at = (router: RunningRouter, id: unknown, action = ""): string => `${router.url}/v1/responses/${id}${action}`;
const engine = (answer: Answer): string => String(answer.headers["x-espalier-engine"]);

function expectNotFound(answer: Answer, param: string | null): void {
  expect([answer.status, errorOf(answer)]).toEqual([
    404,
    { message: expect.any(String), type: "not_found_error", param, code: "response_not_found" },
  ]);
}

async function threeEngines(): Promise<{ sims: readonly Sim[]; router: RunningRouter }> {
  const sims = await rig.sims(3);
  return { sims, router: await rig.router({ engines: sims.map(({ url }) => url), config: round }) };
}

test("a follow-up goes to the engine that has the response, against the policy's turn", async () => {
  const { router } = await threeEngines();
  for (let conversation = 0; conversation < 3; conversation++) {
    const first = await ask(router);
    let previous = first.json.id;
    for (let turn = 0; turn < 3; turn++) {
      const next = await ask(router, { previous_response_id: previous });
      expect([next.status, next.json.previous_response_id]).toEqual([200, previous]);
      expect(engine(next)).toBe(engine(first));
      previous = next.json.id;
    }
  }
});

test("a streamed response is remembered as well", async () => {
  const { router } = await threeEngines();
  const streamed = await ask(router, { stream: true });
  const id = /"id":"(resp_[0-9a-f]+)"/.exec(streamed.text)?.[1];
  for (let turn = 0; turn < 3; turn++) {
    const next = await ask(router, { previous_response_id: id });
    expect([next.status, engine(next)]).toEqual([200, engine(streamed)]);
  }
});

test("a flood of questions for responses that engines do not find in time keeps no health check waiting", async () => {
  const engine = await httpEngine(rig, () => {});
  const health = { interval: "100ms", timeout: "500ms", "down-after": 1 };
  const router = await rig.router({ engines: [engine.url], config: { health } });
  const asked = Array.from({ length: 90 }, (_, id) => call(at(router, `resp_${id}`)));
  const probes = () => engine.control.filter(({ path }) => path === "/health").length;
  // Longer than an engine is waited for, so that whatever waits has waited out.
  const before = probes();
  const answers = await Promise.all(asked);
  expect(probes() - before).toBeGreaterThan(10);
  expect(answers.filter(({ status }) => status === 429)).toHaveLength(90 - 32);
  expect(answers.filter(({ status }) => status === 404)).toHaveLength(32);
  const page = await router.metrics();
  expect(page.sum("espalier_engine_health_probes_total", { outcome: "timeout" })).toBe(0);
  expect((await router.engines())[0]?.state).toBe("up");
});

test("reading and deleting find the engine; what is deleted is gone", async () => {
  const { router, sims } = await threeEngines();
  const made = await ask(router);
  for (let i = 0; i < 3; i++) {
    const read = await call(at(router, made.json.id));
    expect([read.status, read.json, engine(read)]).toEqual([200, made.json, engine(made)]);
  }
  const deleted = await call(at(router, made.json.id), { method: "DELETE" });
  expect([deleted.status, deleted.json]).toEqual([200, { id: made.json.id, object: "response", deleted: true }]);
  expectNotFound(await call(at(router, made.json.id)), null);
  expectNotFound(await ask(router, { previous_response_id: made.json.id }), "previous_response_id");
  await router.untilIdle();
  const posts = await Promise.all(sims.map(async (sim) => (await sim.state()).requests));
  expect(posts.flat()).toHaveLength(1);
});

test("an id that nobody knows: 404, for every way to ask", async () => {
  const { router } = await threeEngines();
  expectNotFound(await call(at(router, "resp_unknown")), null);
  expectNotFound(await call(at(router, "resp_unknown"), { method: "DELETE" }), null);
  expectNotFound(await call(at(router, "resp_unknown", "/cancel"), { method: "POST" }), null);
  expectNotFound(await call(at(router, "resp_unknown", "/input_items?limit=2")), null);
  expectNotFound(await ask(router, { previous_response_id: "resp_unknown" }), "previous_response_id");
});

test.each(["..", "%2e%2e", "a%2Fb", "a%20b", ".hidden", "a?x", "é"])("the id %j names no response", async (id) => {
  const engine = await holder({});
  const router = await rig.router({ engines: [engine.url] });
  const answer = await call(`${router.url}/v1/responses/${encodeURI(id).replaceAll("%25", "%")}`);
  expect(answer.status).toBe(404);
  for (const { path } of engine.requests) expect(path).toBe("/v1/responses/a");
});

test("a fresh router finds a response by asking the engines, and then knows", async () => {
  const { router, sims } = await threeEngines();
  const made = await ask(router);
  const fresh = await rig.router({ engines: sims.map(({ url }) => url), config: round });

  const read = await call(at(fresh, made.json.id));
  expect([read.status, read.text, engine(read)]).toEqual([200, made.text, engine(made)]);
  for (let turn = 0; turn < 3; turn++) {
    const next = await ask(fresh, { previous_response_id: made.json.id });
    expect([next.status, engine(next)]).toEqual([200, engine(made)]);
  }
});

test("a response whose engine is down is not found, and other requests go on", async () => {
  const { router, sims } = await threeEngines();
  const made = await ask(router);
  const holderSim = sims.find(({ id }) => id === engine(made))!;
  await holderSim.fault({ kind: "unhealthy" });
  const state = async () => (await router.engines()).find(({ id }) => id === holderSim.id)?.state;
  await waitFor(async () => (await state()) === "down", { what: "down engine" });

  expectNotFound(await ask(router, { previous_response_id: made.json.id }), null);
  expectNotFound(await call(at(router, made.json.id)), null);
  const fresh = await rig.router({ engines: sims.map(({ url }) => url), usable: 2 });
  expectNotFound(await call(at(fresh, made.json.id)), null);
  expect((await ask(router)).status).toBe(200);
});

test("an engine that was restarted says itself that the response is gone", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const made = await ask(router);
  await post(`${sim!.url}/sim/reset`, {});
  const next = await ask(router, { previous_response_id: made.json.id });
  expect([next.status, errorOf(next).message]).toEqual([404, `Response with id '${made.json.id}' not found.`]);
});

/** An engine that holds these responses by id, and streams one that it never finishes. */
function holder(stored: Readonly<Record<string, string>>): Promise<HttpEngine> {
  return httpEngine(rig, ({ method, path, response }) => {
    const id = path.slice("/v1/responses/".length).split(/[/?]/)[0] ?? "";
    if (method === "POST" && path === "/v1/responses") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('event: response.created\ndata: {"type":"response.created","response":{"id":"resp_open"}}\n\n');
      return;
    }
    const known = Object.hasOwn(stored, id);
    response.writeHead(known ? 200 : 404, { "content-type": "application/json" });
    response.end(known ? stored[id] : "{}");
  });
}

test("ids of up to 256 characters are looked for, longer ones are left to the engine", async () => {
  const longest = `resp_${"a".repeat(251)}`;
  const engine = await holder({ [longest]: `{"id":"${longest}"}` });
  const router = await rig.router({ engines: [engine.url] });
  expect((await call(at(router, longest))).json.id).toBe(longest);
  const tooLong = await call(at(router, `${longest}a`));
  expect(tooLong.status).toBeGreaterThanOrEqual(404);
  expect(tooLong.status).toBeLessThanOrEqual(414);
  const judge = await httpEngine(rig, ({ response }) => response.writeHead(404).end('{"error":"unknown"}'));
  const other = await rig.router({ engines: [judge.url] });
  const asPrevious = await ask(other, { previous_response_id: `${longest}a` });
  expect([asPrevious.status, asPrevious.text]).toEqual([404, '{"error":"unknown"}']);
});

test("actions on a response pass through with method, path, query and body", async () => {
  const engine = await holder({ resp_1: '{"id":"resp_1"}' });
  const router = await rig.router({ engines: [engine.url] });
  expect((await post(at(router, "resp_1", "/cancel?why=x"), '{ "a": 1 }')).status).toBe(200);
  expect(engine.requests.at(-1)).toMatchObject({ method: "POST", path: "/v1/responses/resp_1/cancel?why=x" });
  expect(engine.requests.at(-1)?.body.toString()).toBe('{ "a": 1 }');
  expect((await call(at(router, "resp_1", "/input_items?limit=2"))).status).toBe(200);
  expect(engine.requests.at(-1)).toMatchObject({ method: "GET", path: "/v1/responses/resp_1/input_items?limit=2" });
});

test("a response can be read while it is still being made", async () => {
  const engines = [await holder({ resp_open: '{"id":"resp_open"}' }), await holder({})];
  const router = await rig.router({ engines: engines.map(({ url }) => url), config: round });
  const streams = [0, 1].map(() =>
    openPost(`${router.url}/v1/responses`, { model: "tiny", input: "x", stream: true, background: true }),
  );
  for (const stream of streams) await waitFor(() => stream.received() !== "", { what: "first event" });
  const read = await call(at(router, "resp_open"));
  expect([read.status, engine(read)]).toEqual([200, engines[0]?.id]);
  for (const stream of streams) stream.destroy();
  await router.untilIdle();
});
