import { afterEach, expect, test } from "vitest";
import { type Answer, call, chat, post, rawConnection, rawPost } from "./client.ts";
import { type HttpEngine, httpEngine, jsonEngine, type SeenRequest } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const ask = (router: RunningRouter, headers: Readonly<Record<string, string>> = {}): Promise<Answer> =>
  post(`${router.url}/v1/chat/completions`, chat(), headers);

async function echoed(config = {}): Promise<{ router: RunningRouter; engine: HttpEngine }> {
  const engine = await jsonEngine(rig, "{}");
  return { engine, router: await rig.router({ engines: [engine.url], config }) };
}

const seen = (engine: HttpEngine): SeenRequest => engine.requests.at(-1)!;
const valuesOf = (flat: readonly string[], name: string): string[] =>
  flat.filter((_, at) => at % 2 === 1 && flat[at - 1]?.toLowerCase() === name);

test("an answer says who gave it and how", async () => {
  const { router, engine } = await echoed({ policy: "least_tokens" });
  const { headers } = await ask(router);
  expect(headers).toMatchObject({
    "x-espalier-engine": engine.id,
    "x-espalier-policy": "least_tokens",
    "x-espalier-attempts": "1",
    "x-espalier-overhead-ms": expect.stringMatching(/^\d+\.\d{3}$/),
    "x-request-id": expect.stringMatching(/^req-[0-9a-f]{24}$/),
  });
});

test("a client's request id goes to the engine and comes back; an unusable one is replaced", async () => {
  const { router, engine } = await echoed();
  const kept = await ask(router, { "x-request-id": "abc-123" });
  expect([kept.headers["x-request-id"], seen(engine).headers["x-request-id"]]).toEqual(["abc-123", "abc-123"]);
  for (const bad of ["has a space", "x".repeat(129), "caf\u00e9"]) {
    const replaced = await ask(router, { "x-request-id": bad });
    const id = replaced.headers["x-request-id"];
    expect(id).toMatch(/^req-[0-9a-f]{24}$/);
    expect(valuesOf(seen(engine).rawHeaders, "x-request-id")).toEqual([id]);
  }
  for (const [path, status] of [
    ["/nothing", 404],
    ["/v1/models", 200],
    ["/v1/models/none", 404],
    ["/readyz", 200],
  ] as const) {
    const answer = await call(router.url + path, { headers: { "x-request-id": "abc-124" } });
    expect([answer.status, valuesOf(answer.rawHeaders, "x-request-id")]).toEqual([status, ["abc-124"]]);
  }
});

test("a traceparent is passed on when it is valid, and made when not", async () => {
  const { router, engine } = await echoed();
  const given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  await ask(router, { traceparent: given, tracestate: "vendor=1" });
  expect(seen(engine).headers).toMatchObject({ traceparent: given, tracestate: "vendor=1" });
  for (const headers of [{}, { traceparent: "00-0-0-00" }, { traceparent: `${given}, ${given}` }]) {
    await ask(router, headers);
    const made = valuesOf(seen(engine).rawHeaders, "traceparent");
    expect(made).toEqual([expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/)]);
  }
});

test("the client's address is added to x-forwarded-for", async () => {
  const { router, engine } = await echoed();
  await ask(router);
  expect(seen(engine).headers["x-forwarded-for"]).toBe("127.0.0.1");
  await ask(router, { "x-forwarded-for": "203.0.113.7, 10.0.0.1" });
  expect(seen(engine).headers["x-forwarded-for"]).toBe("203.0.113.7, 10.0.0.1, 127.0.0.1");
});

test("a client cannot have the router's own headers taken out by naming them in connection", async () => {
  const { router, engine } = await echoed();
  const connection = await rawConnection(router.port);
  connection.write(
    rawPost("/v1/chat/completions", JSON.stringify(chat()), [
      "connection: close, X-Forwarded-For, traceparent, x-request-id, x-private",
      "x-private: 1",
    ]),
  );
  await connection.until(/\{\}/);
  const { headers } = seen(engine);
  expect(headers).toMatchObject({
    "x-forwarded-for": "127.0.0.1",
    traceparent: expect.any(String),
    "x-request-id": expect.any(String),
  });
  expect(headers["x-private"]).toBeUndefined();
});

test("headers of the connection and of the router stay on this side of it", async () => {
  const { router, engine } = await echoed();
  await ask(router, {
    connection: "close, x-listed",
    "x-listed": "1",
    "keep-alive": "timeout=9",
    te: "trailers",
    "proxy-authorization": "Basic eA==",
    "accept-encoding": "gzip, br",
    "x-espalier-session-id": "s",
    "x-espalier-engine": "forged",
    upgrade: "h2c",
    expect: "100-continue",
    "x-custom": "kept",
    cookie: "a=1; b=2",
  });
  const names = seen(engine).rawHeaders.filter((_, at) => at % 2 === 0);
  expect(names.map((name) => name.toLowerCase()).sort()).toEqual([
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "traceparent",
    "x-custom",
    "x-forwarded-for",
    "x-request-id",
  ]);
  expect(seen(engine).headers).toMatchObject({ host: engine.id, "x-custom": "kept", cookie: "a=1; b=2" });
});

test("what an engine says about its connection or in the router's name does not reach the client", async () => {
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, [
      ...["content-type", "application/json", "content-length", "2", "x-engine", "kept", "server", "uvicorn"],
      ...["x-espalier-engine", "forged", "x-espalier-anything", "forged", "x-request-id", "forged"],
      ...["proxy-authenticate", "Basic", "keep-alive", "timeout=5", "connection", "x-listed", "x-listed", "1"],
      ...["set-cookie", "a=1", "set-cookie", "b=2", "date", "Thu, 01 Jan 1970 00:00:00 GMT"],
    ]);
    response.end("{}");
  });
  const router = await rig.router({ engines: [engine.url] });
  const answer = await ask(router, { "x-request-id": "mine" });
  expect(answer.headers).toMatchObject({
    "x-engine": "kept",
    server: "uvicorn",
    "x-espalier-engine": engine.id,
    "x-request-id": "mine",
    "set-cookie": ["a=1", "b=2"],
    "content-length": "2",
  });
  for (const name of ["x-espalier-anything", "proxy-authenticate", "x-listed"]) {
    expect(answer.headers[name]).toBeUndefined();
  }
  for (const name of ["x-espalier-engine", "x-request-id", "date", "content-length", "connection"]) {
    expect(valuesOf(answer.rawHeaders, name)).toHaveLength(1);
  }
});

test("a client's credentials stay with the router, unless its pool passes them on", async () => {
  const credentials = { authorization: "Bearer of-the-client", "x-api-key": "of-the-client" };
  const { router, engine } = await echoed();
  await ask(router, credentials);
  expect(seen(engine).headers.authorization).toBeUndefined();
  expect(seen(engine).headers["x-api-key"]).toBeUndefined();

  const open = await echoed({ pools: [{ models: ["tiny"], "forward-authorization": true }] });
  await ask(open.router, credentials);
  expect(seen(open.engine).headers).toMatchObject(credentials);
});

test("each pool's engines get that pool's key, in place of the client's", async () => {
  const one = await jsonEngine(rig, "{}", { models: ["one"] });
  const two = await jsonEngine(rig, "{}", { models: ["two"] });
  const other = await jsonEngine(rig, "{}", { models: ["other"] });
  const pools = [
    { models: ["one"], "engine-api-key": "key-of-one" },
    { models: ["tw*"], "engine-api-key": "key-of-two" },
  ];
  const router = await rig.router({ engines: [one.url, two.url, other.url], config: { pools } });
  for (const model of ["one", "two", "other"]) {
    const url = `${router.url}/v1/chat/completions`;
    expect((await post(url, chat({ model }), { authorization: "Bearer of-the-client" })).status).toBe(200);
  }
  expect([one, two, other].map((engine) => valuesOf(seen(engine).rawHeaders, "authorization"))).toEqual([
    ["Bearer key-of-one"],
    ["Bearer key-of-two"],
    [],
  ]);
});

test("engines that guard everything under /v1 with a key are asked for their models with it", async () => {
  const sims = await rig.sims(2, { apiKey: "the-engines-key" });
  const pools = [{ models: ["*"], "engine-api-key": "the-engines-key" }];
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { pools } });
  expect((await ask(router)).status).toBe(200);
  const made = await post(`${router.url}/v1/responses`, { model: "tiny", input: "x", max_output_tokens: 1 });
  const fresh = await rig.router({ engines: sims.map(({ url }) => url), config: { pools } });
  expect((await call(`${fresh.url}/v1/responses/${made.json.id}`)).text).toBe(made.text);
});

test("a request header that HTTP does not allow to be repeated stays as it came, in order", async () => {
  const { router, engine } = await echoed();
  await call(`${router.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-many": ["1", "2"] },
    body: JSON.stringify(chat()),
  });
  expect(valuesOf(seen(engine).rawHeaders, "x-many")).toEqual(["1", "2"]);
});
