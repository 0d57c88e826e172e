import { createSeededRandom } from "@espalier/common";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, errorOf, type Json, post } from "./client.ts";
import { httpEngine, jsonEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const ids = async (router: RunningRouter): Promise<unknown[]> =>
  ((await call(`${router.url}/v1/models`)).json.data as Json[]).map(({ id }) => id);

test("the models of all engines are one list, and each can be read by its id", async () => {
  const [one] = await rig.sims(1, { models: ["shared", "alpha"] });
  const [two] = await rig.sims(1, { models: ["org/family/beta:7b", "shared"] });
  const router = await rig.router({ engines: [one!.url, two!.url] });

  const list = (await call(`${router.url}/v1/models`)).json;
  expect(list.object).toBe("list");
  expect(await ids(router)).toEqual(["alpha", "org/family/beta:7b", "shared"]);
  for (const entry of list.data as Json[]) {
    expect(entry).toEqual({
      id: entry.id,
      object: "model",
      created: expect.any(Number),
      owned_by: "vllm",
      max_model_len: expect.any(Number),
    });
  }
  for (const path of ["org/family/beta:7b", "org%2Ffamily%2Fbeta%3A7b", "alpha", "shared"]) {
    const answer = await call(`${router.url}/v1/models/${path}`);
    expect([answer.status, answer.json.id]).toEqual([200, decodeURIComponent(path)]);
  }
  for (const path of ["org", "org/family", "Alpha", "alpha/x", ""]) {
    const answer = await call(`${router.url}/v1/models/${path}`);
    if (path === "") expect(answer.json.object).toBe("list");
    else expect([answer.status, errorOf(answer).code]).toEqual([404, "model_not_found"]);
  }
});

test("a request goes to an engine that serves its model", async () => {
  const alpha = await jsonEngine(rig, '"a"', { models: ["alpha", "shared"] });
  const beta = await jsonEngine(rig, '"b"', { models: ["org/beta", "shared"] });
  const router = await rig.router({ engines: [alpha.url, beta.url], config: { policy: "round_robin" } });
  const url = `${router.url}/v1/chat/completions`;
  for (let i = 0; i < 4; i++) {
    expect((await post(url, chat({ model: "alpha" }))).text).toBe('"a"');
    expect((await post(url, chat({ model: "org/beta" }))).text).toBe('"b"');
  }
  const shared = await Promise.all([1, 2, 3, 4].map(() => post(url, chat({ model: "shared" }))));
  expect(shared.map(({ text }) => text).sort()).toEqual(['"a"', '"a"', '"b"', '"b"']);

  const ambiguous = await post(`${router.url}/tokenize`, { prompt: "x" });
  expect([ambiguous.status, errorOf(ambiguous)]).toMatchObject([400, { code: "missing_field", param: "model" }]);
});

test("an API that needs no model takes the only one there is", async () => {
  const engine = await jsonEngine(rig, "{}", { models: ["only"] });
  const router = await rig.router({ engines: [engine.url] });
  const body = '{"prompt":"x"}';
  expect((await post(`${router.url}/tokenize`, body)).status).toBe(200);
  expect(engine.requests[0]?.body.toString()).toBe(body);
});

test("an engine for prefill alone gets no whole request, and makes nobody ready", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [{ url: engine.url, role: "prefill" }] });
  const answer = await post(`${router.url}/v1/chat/completions`, chat());
  expect([answer.status, errorOf(answer).code]).toEqual([503, "no_engine_available"]);
  const ready = await call(`${router.url}/readyz`);
  expect([ready.status, ready.json.reasons]).toEqual([503, ["no engine is usable"]]);
  expect(engine.requests).toEqual([]);
});

test("a long model name is as good as a short one", async () => {
  const name = `org/${"n".repeat(250)}`;
  const engine = await jsonEngine(rig, "{}", { models: [name] });
  const router = await rig.router({ engines: [engine.url] });
  expect((await call(`${router.url}/v1/models/${name}`)).json.id).toBe(name);
  expect((await post(`${router.url}/v1/chat/completions`, chat({ model: name }))).status).toBe(200);
});

test("models that the configuration names need not be asked for", async () => {
  const engine = await httpEngine(rig, ({ response }) => response.end("{}"), { models: ["what it says itself"] });
  const router = await rig.router({ engines: [{ url: engine.url, models: ["named"] }] });
  expect(await ids(router)).toEqual(["named"]);
  expect(engine.control.map(({ path }) => path)).not.toContain("/v1/models");
});

test("until every engine has told its models, an unknown one may still turn up", async () => {
  const engine = await jsonEngine(rig, "{}");
  const silent = await httpEngine(rig, ({ response }) => response.end("{}"), { models: ["late"] });
  const router = await rig.router({ engines: [engine.url, { url: `${silent.url}/nowhere` }], usable: 1 });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ model: "late" }));
  expect([answer.status, errorOf(answer).code, answer.headers["retry-after"]]).toEqual([
    503,
    "no_engine_available",
    "1",
  ]);
});

test("an alias leads to its model, is listed, and may lead over other names", async () => {
  const engine = await jsonEngine(rig, "{}");
  const models = { aliases: { "gpt-4": "tiny", best: "gpt-4", lost: "nobody-serves-this" } };
  const router = await rig.router({ engines: [engine.url], config: { models } });
  for (const model of ["gpt-4", "best"]) {
    const answer = await post(`${router.url}/v1/chat/completions`, chat({ model }));
    expect(answer.status).toBe(200);
    expect(JSON.parse(engine.requests.at(-1)?.body.toString() ?? "")).toEqual(chat());
  }
  expect(await ids(router)).toEqual(["tiny", "gpt-4", "best"]);
  expect((await call(`${router.url}/v1/models/best`)).json).toMatchObject({ id: "best", owned_by: "test" });
  const lost = await post(`${router.url}/v1/chat/completions`, chat({ model: "lost" }));
  expect([lost.status, errorOf(lost).code]).toEqual([503, "no_engine_available"]);
  const page = await router.metrics();
  expect(page.sum("espalier_requests_total", { endpoint: "chat", model: "tiny" })).toBe(2);
});

test("a split shares the requests by weight, and keeps a session on its side", async () => {
  const engines = [
    await jsonEngine(rig, "{}", { models: ["stable"] }),
    await jsonEngine(rig, "{}", { models: ["canary"] }),
  ];
  const sides = [
    { model: "stable", weight: 75 },
    { model: "canary", weight: 25 },
  ];
  const config = { models: { aliases: { chat: "mixed" }, splits: { mixed: sides } } };
  const router = await rig.router({ engines: engines.map(({ url }) => url), config, random: createSeededRandom(3) });
  const url = `${router.url}/v1/chat/completions`;

  for (let i = 0; i < 200; i++) await post(url, chat({ model: i % 2 === 0 ? "mixed" : "chat" }));
  // 50 expected; five standard deviations are 31.
  expect(Math.abs((engines[1]?.requests.length ?? 0) - 50)).toBeLessThan(31);
  for (const { body } of engines[1]?.requests ?? []) expect(JSON.parse(body.toString()).model).toBe("canary");

  const workers = new Set<string>();
  for (let session = 0; session < 12; session++) {
    const seen = new Set<string>();
    for (let turn = 0; turn < 3; turn++) {
      const answer = await post(url, chat({ model: "mixed", user: `user-${session}` }));
      seen.add(String(answer.headers["x-espalier-worker"]));
    }
    expect(seen.size).toBe(1);
    for (const worker of seen) workers.add(worker);
  }
  expect(workers.size).toBe(2);
  expect(await ids(router)).toEqual(["canary", "stable", "chat", "mixed"]);
});

test("pools give models policies of their own", async () => {
  const engine = await jsonEngine(rig, "{}", { models: ["llama-70b", "llama-8b", "qwen.7b"] });
  const pools = [
    { models: ["llama-8b"], policy: "random" },
    { models: ["llama-*"], policy: { name: "consistent_hashing", "load-factor": 0 } },
    { models: ["qwen?7b", "qwenx7b"], policy: "least_tokens" },
  ];
  const router = await rig.router({ engines: [engine.url], config: { pools, policy: "power_of_two" } });
  const policyOf = async (model: string) =>
    (await post(`${router.url}/v1/chat/completions`, chat({ model }))).headers["x-espalier-policy"];
  expect(await Promise.all(["llama-8b", "llama-70b", "qwen.7b"].map(policyOf))).toEqual([
    "random",
    "consistent_hashing",
    "power_of_two",
  ]);
});

test("an engine whose models change is found under the new ones", async () => {
  const models = ["first"];
  const engine = await jsonEngine(rig, "{}", { models });
  const router = await rig.router({ engines: [engine.url] });
  expect(await ids(router)).toEqual(["first"]);
  models[0] = "second";
  engine.control.splice(0);
  await engine.restart(async () => {
    await waitFor(async () => (await router.workers())[0]?.state === "down", { what: "down engine" });
  });
  await waitFor(async () => (await ids(router))[0] === "second", { what: "the new model" });
});
