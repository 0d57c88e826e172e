import { afterEach, expect, test } from "vitest";
import { call, chat, errorOf, openPost, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

// Pages in browsers could not call the API: `OPTIONS` was answered with 405, and no answer said who may read it.

const rig = createRig();
afterEach(() => rig.close());

const page = "https://chat.example.com";
const path = "/v1/chat/completions";
const key = "0123456789";

/** A router before an engine that has an opinion on pages itself, as vLLM has. */
async function setUp(origins: readonly string[] | undefined) {
  const engine = await httpEngine(rig, ({ body, headers, response }) => {
    const own = headers.origin === undefined ? {} : { "access-control-allow-origin": "*", vary: "Origin" };
    const isStream = body.toString().includes('"stream":true');
    response.writeHead(200, { ...own, "content-type": isStream ? "text/event-stream" : "application/json" });
    response.end(isStream ? "data: [DONE]\n\n" : "{}");
  });
  const config = { ...(origins && { cors: { origins } }), "api-keys": [{ name: "k", key }] };
  return rig.router({ engines: [engine.url], config });
}

const authorized = (origin: string) => ({ origin, authorization: `Bearer ${key}` });
const preflight = (url: string, headers: Readonly<Record<string, string>> = {}) =>
  call(url, {
    method: "OPTIONS",
    headers: {
      origin: page,
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization,content-type",
      ...headers,
    },
  });
const corsOf = ({ headers }: { readonly headers: Readonly<Record<string, unknown>> }) => [
  headers["access-control-allow-origin"],
  headers.vary,
];

test("a preflight of a listed origin is answered, without a key; its request carries what it needs", async () => {
  const router = await setUp(["https://other.example.com", page]);
  const asked = await preflight(router.url + path);
  expect([asked.status, asked.text]).toEqual([204, ""]);
  expect(asked.headers).toMatchObject({
    "access-control-allow-origin": page,
    "access-control-allow-methods": "POST",
    "access-control-allow-headers": "authorization,content-type",
    "access-control-max-age": "7200",
    vary: expect.stringMatching(/^origin\b/),
  });
  const answer = await post(router.url + path, chat(), authorized(page));
  expect([answer.status, ...corsOf(answer)]).toEqual([200, page, "origin"]);
  expect(answer.headers["access-control-expose-headers"]).toBe("*");
  expect((await preflight(`${router.url}/v1/models`)).headers["access-control-allow-methods"]).toBe("GET, HEAD");
  await router.untilIdle();
});

test("streams, lists and errors of every kind say it, too", async () => {
  const router = await setUp([page]);
  const url = router.url + path;
  const stream = openPost(url, chat({ stream: true }), authorized(page));
  expect(corsOf(await stream.head)).toEqual([page, "origin"]);
  await stream.body;
  const answers = [
    [200, await call(`${router.url}/v1/models`, { headers: authorized(page) })],
    [401, await post(url, chat(), { origin: page })],
    [400, await post(url, "{", authorized(page))],
    [404, await post(url, chat({ model: "none" }), authorized(page))],
    [404, await call(`${router.url}/v1/none`, { headers: authorized(page) })],
    [405, await call(url, { headers: authorized(page) })],
    [415, await post(url, chat(), { ...authorized(page), "content-type": "text/plain" })],
  ] as const;
  for (const [status, answer] of answers) expect([answer.status, ...corsOf(answer)]).toEqual([status, page, "origin"]);
});

// A cache could show a page the answer that was made for another one, or for none.
test("other origins, and requests of no page, get answers that vary by the origin", async () => {
  const router = await setUp([page]);
  const refused = await preflight(router.url + path, { origin: "https://evil.example.com" });
  expect([refused.status, ...corsOf(refused)]).toEqual([401, undefined, "origin"]);
  const answer = await post(router.url + path, chat(), authorized(`${page}.evil.com`));
  expect([answer.status, ...corsOf(answer)]).toEqual([200, undefined, "origin"]);
  expect(corsOf(await post(router.url + path, chat(), { authorization: `Bearer ${key}` }))).toEqual([
    undefined,
    "origin",
  ]);
  // No preflight, and none for a path that is not served.
  expect((await call(router.url + path, { method: "OPTIONS", headers: authorized(page) })).status).toBe(405);
  expect((await preflight(`${router.url}/v1/none`, authorized(page))).status).toBe(404);
});

// The engine's `vary` replaced the router's.
test("an answer varies by the origin and by what the engine says, and is readable as the router says", async () => {
  const engine = await httpEngine(rig, ({ response }) =>
    response
      .writeHead(200, { "access-control-allow-origin": "*", vary: "accept-encoding", "set-cookie": ["a=1", "b=2"] })
      .end("{}"),
  );
  const router = await rig.router({ engines: [engine.url], config: { cors: { origins: [page] } } });
  const answer = await post(router.url + path, chat(), { origin: page });
  expect(corsOf(answer)).toEqual([page, "accept-encoding, origin"]);
  expect(answer.headers["set-cookie"]).toEqual(["a=1", "b=2"]);
  expect(corsOf(await post(router.url + path, chat()))).toEqual(["*", "accept-encoding, origin"]);
});

test("* lets every page in", async () => {
  const router = await setUp(["*"]);
  expect(corsOf(await preflight(router.url + path, { origin: "null" }))[0]).toBe("*");
  expect(corsOf(await post(router.url + path, chat(), authorized("https://any")))).toEqual(["*", "origin"]);
});

test("without the setting nothing is said here, and OPTIONS is refused", async () => {
  const router = await setUp(undefined);
  const refused = await preflight(router.url + path, authorized(page));
  expect([refused.status, errorOf(refused).code, ...corsOf(refused)]).toEqual([
    405,
    "method_not_allowed",
    undefined,
    undefined,
  ]);
  // What the engine says passes.
  expect(corsOf(await post(router.url + path, chat(), authorized(page)))).toEqual(["*", "Origin"]);
});
