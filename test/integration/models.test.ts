import { createSeededRandom } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, errorOf, type Json, post } from "./client.ts";
import { type HttpEngine, httpEngine, jsonEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** An engine whose list of models says all that real ones say. */
const modelEngine = (owner: "vllm" | "sglang", models: readonly Json[]): Promise<HttpEngine> =>
  httpEngine(rig, ({ response }) => response.end("{}"), {
    listed: models.map((model) => ({ root: model.id, parent: null, owned_by: owner, ...model })),
  });

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
      root: expect.any(String),
      parent: null,
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

// The router refused a body without a model, which vLLM answers by its base model, and SGLang's "default".
test.each([
  ["absent", {}],
  ["null", { model: null }],
  ["empty", { model: "" }],
])("a request whose model is %s goes to the only one there is, as it came", async (_, named) => {
  const engine = await modelEngine("vllm", [{ id: "only" }, { id: "sql", parent: "only" }]);
  const router = await rig.router({ engines: [engine.url] });
  for (const [path, rest] of [
    ["/tokenize", { prompt: "x" }],
    ["/v1/completions", { prompt: "x" }],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "x" }] }],
  ] as const) {
    const body = JSON.stringify({ ...named, ...rest });
    const answer = await post(router.url + path, body);
    expect([path, answer.status]).toEqual([path, 200]);
    expect(engine.requests.at(-1)?.body.toString()).toBe(body);
  }
});

test("names with one root are one model; other roots are other models, and one must be named", async () => {
  const one = await modelEngine("vllm", [
    { id: "a", root: "/weights" },
    { id: "b", root: "/weights" },
  ]);
  const router = await rig.router({ engines: [one.url] });
  expect((await post(`${router.url}/tokenize`, { prompt: "x" })).status).toBe(200);
  const other = await modelEngine("vllm", [{ id: "c", root: "/others" }]);
  const both = await rig.router({ engines: [one.url, other.url] });
  const answer = await post(`${both.url}/tokenize`, { prompt: "x" });
  expect([answer.status, errorOf(answer)]).toMatchObject([400, { code: "missing_field", param: "model" }]);
});

test("default is whatever model SGLang serves; vLLM has none of that name", async () => {
  for (const [owner, status] of [
    ["sglang", 200],
    ["vllm", 404],
  ] as const) {
    const engine = await modelEngine(owner, [{ id: "org/model" }]);
    const router = await rig.router({ engines: [engine.url] });
    expect((await post(`${router.url}/v1/chat/completions`, chat({ model: "default" }))).status).toBe(status);
  }
});

// SGLang takes an adapter's name alone for its base model, and on some paths it applies no adapter at all. The router sent
// `lora_path` to every path, so that messages and responses for an adapter were answered by the base model, with status 200.
test("a request for an adapter of SGLang names it as its API takes it there, or is refused", async () => {
  const engine = await modelEngine("sglang", [{ id: "org/model:8b" }, { id: "ada", parent: "org/model:8b" }]);
  const config = { models: { aliases: { base: "org/model:8b" } } };
  const router = await rig.router({ engines: [engine.url], config });
  const messages = [{ role: "user", content: "x" }];
  const byPath = { lora_path: "ada", model: "ada" };
  for (const [path, sent, got] of [
    ["/v1/chat/completions", { model: "ada", messages }, byPath],
    ["/v1/chat/completions", { model: "org/model:8b:ada", messages }, byPath],
    ["/v1/chat/completions", { model: "base:ada", messages }, byPath],
    ["/v1/chat/completions", { model: "base", lora_path: "ada", messages }, byPath],
    ["/v1/chat/completions", { lora_path: "ada", messages }, { lora_path: "ada" }],
    [
      "/v1/chat/completions",
      { model: "base", lora_path: "none", messages },
      { model: "org/model:8b", lora_path: "none" },
    ],
    ["/v1/completions", { model: "ada", prompt: "x" }, byPath],
    ["/v1/embeddings", { model: "ada", input: "x" }, byPath],
    ["/generate", { text: "x", lora_path: "ada" }, { lora_path: "ada" }],
    ["/v1/messages", { model: "ada", max_tokens: 1, messages }, { model: "org/model:8b:ada" }],
  ] as const) {
    const answer = await post(router.url + path, sent);
    const { model, lora_path } = JSON.parse(engine.requests.at(-1)?.body.toString() ?? "{}") as Json;
    expect([path, answer.status, { model, lora_path }]).toEqual([
      path,
      200,
      { lora_path: undefined, model: undefined, ...got },
    ]);
  }
  const before = engine.requests.length;
  for (const [path, body] of [
    ["/v1/responses", { model: "ada", input: "x" }],
    ["/v1/responses", { model: "base:ada", input: "x" }],
    ["/v1/rerank", { model: "ada", query: "q", documents: ["d"] }],
  ] as const) {
    const answer = await post(router.url + path, body);
    expect([answer.status, errorOf(answer)]).toMatchObject([400, { code: "adapter_not_served", param: "model" }]);
  }
  const unknown = await post(`${router.url}/v1/chat/completions`, { model: "base:bob", messages });
  expect([unknown.status, errorOf(unknown).code]).toEqual([404, "model_not_found"]);
  expect(engine.requests).toHaveLength(before);
});

// A forwarded request passes as it is, so that no field can name the adapter: the base model answered, with status 200.
test("at a forwarded path, a request for an adapter of SGLang is one that names it so that SGLang applies it, or is refused", async () => {
  const models = [{ id: "base" }, { id: "ada", parent: "base" }];
  const [sglang, vllm] = [await modelEngine("sglang", models), await modelEngine("vllm", models)];
  const config = { "forward-paths": ["/invocations", "/v1/audio/*"], policy: "round_robin" };
  const router = await rig.router({ engines: [sglang.url], config });
  const messages = [{ role: "user", content: "x" }];
  const body = JSON.stringify({ model: "base:ada", messages });
  expect((await post(`${router.url}/invocations?x=1`, body)).status).toBe(200);
  expect(sglang.requests.at(-1)?.body.toString()).toBe(body);
  for (const [path, model] of [
    ["/invocations", "ada"],
    ["/v1/audio/voices", "base:ada"],
    ["/v1/audio/voices", "ada"],
  ] as const) {
    const answer = await post(router.url + path, { model, messages });
    expect([answer.status, errorOf(answer)]).toMatchObject([400, { code: "adapter_not_served", param: "model" }]);
  }
  expect(sglang.requests).toHaveLength(1);
  const both = await rig.router({ engines: [sglang.url, vllm.url], config });
  for (let sent = 0; sent < 4; sent++) {
    expect((await post(`${both.url}/v1/audio/voices`, { model: "ada", input: "x" })).status).toBe(200);
  }
  expect([sglang.requests.length, vllm.requests.length]).toEqual([1, 4]);

  const message = "The model `ada` does not exist.";
  const error = { message, type: "NotFoundError", param: "model", code: 404 };
  const outdated = await httpEngine(
    rig,
    ({ response }) => response.writeHead(404, { "content-type": "application/json" }).end(JSON.stringify({ error })),
    { listed: models },
  );
  const moved = await rig.router({ engines: [sglang.url, outdated.url], config });
  expect((await post(`${moved.url}/v1/audio/voices`, { model: "ada", input: "x" })).status).toBe(404);
  expect([sglang.requests.length, outdated.requests.length]).toEqual([1, 1]);
});

test("of vLLM and SGLang with one adapter, only vLLM answers responses for it", async () => {
  const models = [{ id: "base" }, { id: "ada", parent: "base" }];
  const [sglang, vllm] = [await modelEngine("sglang", models), await modelEngine("vllm", models)];
  const router = await rig.router({ engines: [sglang.url, vllm.url], config: { policy: "round_robin" } });
  for (let sent = 0; sent < 4; sent++) {
    expect((await post(`${router.url}/v1/responses`, { model: "ada", input: "x" })).status).toBe(200);
  }
  expect([sglang.requests.length, vllm.requests.length]).toEqual([0, 4]);
});

// Clients read the root of a model from the list (`vllm bench serve` ends without it); it was left out.
test("the list gives roots and parents as engines do, and a model's own name where their roots differ", async () => {
  const models = [
    { id: "base", root: "/weights/base" },
    { id: "ada", root: "/loras/ada", parent: "base" },
  ];
  const one = await modelEngine("vllm", models);
  const two = await modelEngine("vllm", [{ id: "base", root: "/elsewhere" }, models[1]!]);
  const config = { models: { aliases: { "gpt-4": "base" } } };
  const router = await rig.router({ engines: [one.url, two.url], config });
  expect((await call(`${router.url}/v1/models`)).json.data).toMatchObject([
    { id: "ada", root: "/loras/ada", parent: "base" },
    { id: "base", root: "base", parent: null },
    { id: "gpt-4", root: "base", parent: null },
  ]);
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

  const chosen = new Set<string>();
  for (let session = 0; session < 12; session++) {
    const seen = new Set<string>();
    for (let turn = 0; turn < 3; turn++) {
      const answer = await post(url, chat({ model: "mixed", user: `user-${session}` }));
      seen.add(String(answer.headers["x-espalier-engine"]));
    }
    expect(seen.size).toBe(1);
    for (const engine of seen) chosen.add(engine);
  }
  expect(chosen.size).toBe(2);
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
    await waitFor(async () => (await router.engines())[0]?.state === "down", { what: "down engine" });
  });
  await waitFor(async () => (await ids(router))[0] === "second", { what: "the new model" });
});

interface Seen {
  readonly candidates: { readonly prefillMsPerToken: ArrayLike<number> };
  readonly eligible: ArrayLike<number>;
}

// An adapter learned the times of its engines alone and from nothing, though they are the base model's engines.
test("what requests for an adapter take teaches what its base model's engines take", async () => {
  const models: readonly Json[] = [{ id: "base" }, { id: "sql", parent: "base" }, { id: "other" }];
  const listed = models.map((model) => ({ root: model.id, parent: null, ...model }));
  const engines = await Promise.all(
    [1, 2].map(() =>
      httpEngine(
        rig,
        ({ response }) => {
          response.writeHead(200, { "content-type": "text/event-stream" });
          response.end('data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n');
        },
        { listed },
      ),
    ),
  );
  let msPerToken = Number.NaN;
  const score = ({ candidates: { prefillMsPerToken }, eligible }: Seen, out: Float64Array): void => {
    msPerToken = prefillMsPerToken[eligible[0]!]!;
    out.fill(0);
  };
  const router = await rig.router({
    engines: engines.map(({ url }) => url),
    config: { policy: "mine" },
    extensions: { policies: { mine: { terms: [{ scorer: { name: "seeing", score }, weight: 1 }] } } },
  });
  const expectedOf = async (model: string): Promise<number> => {
    await post(`${router.url}/v1/chat/completions`, chat({ model, stream: true }));
    return msPerToken;
  };
  const assumed = 0.125;
  expect(await expectedOf("sql")).toBe(assumed);
  expect(await expectedOf("base")).not.toBe(assumed);
  expect(await expectedOf("other")).toBe(assumed);
});
