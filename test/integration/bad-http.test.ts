import { waitFor } from "@espalier/testing";
import { afterAll, beforeAll, expect, test } from "vitest";
import { call, chat, errorOf, openPost, post, rawConnection, rawPost } from "./client.ts";
import { type HttpEngine, httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
let router: RunningRouter;
let engine: HttpEngine;

beforeAll(async () => {
  engine = await httpEngine(rig, ({ body, response, headers }) => {
    const { stream, marker } = JSON.parse(body.toString()) as { stream?: boolean; marker?: unknown };
    const text = JSON.stringify({ marker, session: headers["x-session-id"] ?? null });
    if (stream) response.writeHead(200, { "content-type": "text/event-stream" }).write("data: {}\n\n");
    else response.writeHead(200, { "content-length": text.length }).end(text);
  });
  router = await rig.router({
    engines: [engine.url],
    config: { "forward-paths": ["/v1/audio/*"], limits: { "max-header-bytes": 2_048 } },
  });
});
afterAll(() => rig.close());

async function expectUnharmed(): Promise<void> {
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ marker: "next" }));
  expect([answer.status, answer.json]).toEqual([200, { marker: "next", session: null }]);
}

test.each<readonly [string, string]>([
  ["GET", "/"],
  ["GET", "/nothing/here"],
  ["POST", "/v1/chat"],
  ["POST", "/v1/chat/completions/more"],
  ["GET", "/v1//models"],
  ["GET", "/metrics"],
  ["GET", "/admin/engines"],
  ["PUT", "/%00"],
  ["GET", "/a*b"],
  ["GET", "/:id(^a+)+$)"],
  ["GET", "/v1/responses/:id(("],
  ["OPTIONS", "/x"],
  ["PROPFIND", "/x"],
])("%s %s: 404", async (method, path) => {
  const answer = await call(router.url + path, { method });
  expect([answer.status, errorOf(answer)]).toEqual([
    404,
    { message: expect.any(String), type: "not_found_error", param: null, code: expect.stringMatching(/_not_found$/) },
  ]);
  expect(answer.headers.allow).toBeUndefined();
  await expectUnharmed();
});

test.each<readonly [string, string, string]>([
  ["GET", "/v1/chat/completions", "POST"],
  ["DELETE", "/v1/embeddings?x=1", "POST"],
  ["PUT", "/generate", "POST"],
  ["OPTIONS", "/v1/completions/", "POST"],
  ["POST", "/v1/models", "GET, HEAD"],
  ["DELETE", "/v1/models/a/b", "GET, HEAD"],
  ["POST", "/health", "GET, HEAD"],
  ["PUT", "/v1/responses/resp_1", "GET, HEAD, POST, DELETE"],
  ["PATCH", "/v1/responses/resp_1/cancel", "GET, HEAD, POST, DELETE"],
])("%s %s: 405, and Allow says %s", async (method, path, allow) => {
  const answer = await call(router.url + path, { method });
  expect([answer.status, answer.headers.allow, errorOf(answer).code]).toEqual([405, allow, "method_not_allowed"]);
  await expectUnharmed();
});

test("a wrong method on /v1/messages is refused in Anthropic's shape", async () => {
  const answer = await call(`${router.url}/v1/messages`);
  expect([answer.status, answer.json.type, answer.headers.allow]).toEqual([405, "error", "POST"]);
});

test("an unknown model: 404, in the shape of each API", async () => {
  const openai = await post(`${router.url}/v1/chat/completions`, chat({ model: "gpt-9" }));
  expect([openai.status, errorOf(openai)]).toEqual([
    404,
    { message: 'The model "gpt-9" does not exist.', type: "not_found_error", param: "model", code: "model_not_found" },
  ]);
  const anthropic = await post(`${router.url}/v1/messages`, chat({ model: "claude-9" }));
  expect([anthropic.status, anthropic.json]).toEqual([
    404,
    {
      type: "error",
      error: { type: "not_found_error", message: 'The model "claude-9" does not exist.' },
      request_id: anthropic.headers["x-request-id"],
    },
  ]);
  await expectUnharmed();
});

const garbage: readonly (readonly [string, string, number, string])[] = [
  ["no HTTP", "\x16\x03\x01\x00\xa5\x01 hello\r\n\r\n", 400, "bad_request"],
  ["a bad version", "GET / HTTP/9.9\r\nhost: x\r\n\r\n", 400, "bad_request"],
  ["a space in a header name", "GET / HTTP/1.1\r\nhost: x\r\nbad name: 1\r\n\r\n", 400, "bad_request"],
  ["a control character in a value", "GET / HTTP/1.1\r\nhost: x\r\na: b\x01c\r\n\r\n", 400, "bad_request"],
  ["a line without a colon", "GET / HTTP/1.1\r\nhost: x\r\nnonsense\r\n\r\n", 400, "bad_request"],
  ["a negative length", "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400, "bad_request"],
  ["two lengths", "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 400, "bad_request"],
  [
    "a length and chunks",
    "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    400,
    "bad_request",
  ],
  [
    "chunks that are not the last coding",
    "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    400,
    "bad_request",
  ],
  [
    "headers over the limit",
    `GET / HTTP/1.1\r\nhost: x\r\nbig: ${"h".repeat(4_096)}\r\n\r\n`,
    431,
    "headers_too_large",
  ],
  ["headers far over the limit", `GET / HTTP/1.1\r\nhost: x\r\nbig: ${"h".repeat(500_000)}`, 431, "headers_too_large"],
  ["a path of 100 kB", `GET /${"p".repeat(100_000)} HTTP/1.1\r\nhost: x\r\n\r\n`, 414, "uri_too_long"],
  ["a path one character over the limit", `GET /${"p".repeat(2_048)} HTTP/1.1\r\nhost: x\r\n\r\n`, 414, "uri_too_long"],
  ["two hosts", "GET /health HTTP/1.1\r\nhost: x\r\nHOST: y\r\n\r\n", 400, "bad_request"],
  ["the same host twice", "GET /v1/models HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n", 400, "bad_request"],
  ["no host", "GET /health HTTP/1.1\r\n\r\n", 400, "bad_request"],
  ["no host for a body", "POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}", 400, "bad_request"],
  ["no host for a path that is not served", "GET /x HTTP/1.1\r\n\r\n", 400, "bad_request"],
  ["a path that is no URL", "GET /v1/%zz HTTP/1.1\r\nhost: x\r\n\r\n", 400, "bad_request"],
];

test.each(garbage)("%s: %i %s", async (_, bytes, status, code) => {
  const connection = await rawConnection(router.port);
  connection.write(Buffer.from(bytes, "latin1"));
  const text = await connection.until(/\}\}$/);
  expect(text).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(text).toMatch(/\r\ncontent-type: application\/json\r\n/i);
  expect(JSON.parse(text.slice(text.indexOf("\r\n\r\n")))).toEqual({
    error: { message: expect.any(String), type: "invalid_request_error", param: null, code },
  });
  connection.socket.destroy();
  await expectUnharmed();
});

const chunks = "2\r\n{}\r\n0\r\n\r\n";
const doubtful: readonly (readonly [string, string])[] = [
  [
    "a coding that no longer exists",
    `POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity, chunked\r\n\r\n${chunks}`,
  ],
  [
    "a coding beneath the chunks",
    `POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n${chunks}`,
  ],
  ["no version", "POST /v1/completions\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"],
];

// Node reads these as requests like others; a proxy in front that reads them otherwise lets a second request through unseen.
test.each(doubtful)("%s: 400, and nothing behind it on the connection is a request", async (_, bytes) => {
  for (const port of [router.port, Number(new URL(router.adminUrl).port)]) {
    const before = engine.requests.length;
    const connection = await rawConnection(port);
    connection.write(bytes + rawPost("/v1/chat/completions", JSON.stringify(chat({ marker: "smuggled" }))));
    await connection.closed();
    const text = connection.received();
    expect(text).toMatch(/^HTTP\/1\.1 400 /);
    expect(text).toMatch(/\r\nconnection: close\r\n/i);
    expect(text).not.toContain("HTTP/1.1 200");
    expect(engine.requests.length).toBe(before);
  }
  await expectUnharmed();
});

test("a fragment is no part of a request's target: 400", async () => {
  const answer = await call(router.url, { path: "/v1/models#x" });
  expect([answer.status, errorOf(answer).code]).toEqual([400, "bad_request"]);
});

test("an absolute target names the host, at the admin listener too", async () => {
  const get = (path: string) => call(router.adminUrl, { path });
  expect((await get("http://127.0.0.1/admin/status")).status).toBe(200);
  expect((await get("http://evil.example/admin/status")).status).toBe(400);
});

test("a path and headers that together are below the limit pass, one character more does not", async () => {
  const path = `/health?${"q".repeat(1_000 - "/health?".length)}`;
  // Node counts names and values.
  const room = 2_048 - path.length - "host".length - "x".length - "a".length;
  for (const [length, status] of [
    [room - 1, 200],
    [room, 431],
  ] as const) {
    const connection = await rawConnection(router.port);
    connection.write(`GET ${path} HTTP/1.1\r\nhost: x\r\na: ${"h".repeat(length)}\r\n\r\n`);
    expect(await connection.until(/\r\n\r\n/)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    connection.socket.destroy();
  }
});

test("HTTP/1.0 needs no host", async () => {
  const old = await rawConnection(router.port);
  old.write("GET /health HTTP/1.0\r\n\r\n");
  await old.closed();
  expect(old.received()).toMatch(/^HTTP\/1\.1 200 /);
});

// RFC 9112 section 6.1: a proxy of HTTP/1.0 in front may know no chunks, and see one request where Node sees two.
test("chunks over HTTP/1.0 are answered, and nothing behind them on the connection is a request; a length keeps it", async () => {
  const head = "POST /v1/chat/completions HTTP/1.0\r\nconnection: keep-alive\r\ncontent-type: application/json\r\n";
  const body = JSON.stringify(chat({ marker: 1 }));
  const next = rawPost("/v1/chat/completions", JSON.stringify(chat({ marker: 2 })));
  const sized = await rawConnection(router.port);
  sized.write(`${head}content-length: ${body.length}\r\n\r\n${body}${next}`);
  await sized.until(/"marker":1[\s\S]*"marker":2/);
  sized.socket.destroy();
  const before = engine.requests.length;
  const chunked = `${head}transfer-encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  for (const behind of ["", next]) {
    const connection = await rawConnection(router.port);
    connection.write(chunked + behind);
    await connection.closed();
    expect(connection.received()).toMatch(
      /^HTTP\/1\.1 200 [\s\S]*\r\nconnection: close\r\n[\s\S]*"marker":1,[^}]*\}$/i,
    );
  }
  await expectUnharmed();
  expect(engine.requests.slice(before).map(({ body }) => JSON.parse(body.toString()).marker)).toEqual([1, 1, "next"]);
});

test("a target in absolute form is not sent on to an engine as it is", async () => {
  const connection = await rawConnection(router.port);
  connection.write(rawPost("http://elsewhere/v1/chat/completions", JSON.stringify(chat({ marker: "absolute" }))));
  await connection.until(/\r\n\r\n[\s\S]+\}$/);
  for (const { path } of engine.requests) expect(path).toBe("/v1/chat/completions");
  await expectUnharmed();
});

// RFC 9112 section 3.2.2: a server has to take an absolute target. At forwarded paths it was refused, and a wrong method was 404.
test.each(["http://router.example", "HTTP://127.0.0.1:1", "https://[::1]:8080"])(
  "a target that begins with %s is the path behind it",
  async (origin) => {
    const get = (path: string) => call(router.url, { path: origin + path });
    expect((await get("/v1/models")).status).toBe(200);
    expect((await get("/v1/chat/completions")).headers.allow).toBe("POST");
    expect((await get("/admin/status")).status).toBe(404);
    expect((await get("")).status).toBe(404);
    const options = { method: "POST", path: `${origin}/v1/audio/voices?x=1`, body: "{}" };
    expect((await call(router.url, options)).status).toBe(200);
    expect(engine.requests.at(-1)?.path).toBe("/v1/audio/voices?x=1");
  },
);

test("garbage in a body of chunks ends the connection and reaches no engine", async () => {
  const before = engine.requests.length;
  const connection = await rawConnection(router.port);
  const head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
  connection.write(`${head}5\r\n{"mod\r\nZZ\r\n`);
  await connection.closed();
  expect(connection.received()).toMatch(/^HTTP\/1\.1 400 /);
  expect(engine.requests).toHaveLength(before);
  await expectUnharmed();
});

test("two requests on one connection are answered in turn, each its own", async () => {
  const connection = await rawConnection(router.port);
  const first = rawPost("/v1/chat/completions", JSON.stringify(chat({ marker: 1 })), ["x-session-id: one"]);
  const bad = rawPost("/v1/chat/completions", "{");
  const second = rawPost("/v1/chat/completions", JSON.stringify(chat({ marker: 2 })));
  connection.write(first + bad + second);
  const text = await connection.until(/"marker":2/);
  expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 400", "HTTP/1.1 200"]);
  expect(text.match(/\{"marker":.*?\}/g)).toEqual(['{"marker":1,"session":"one"}', '{"marker":2,"session":null}']);
  connection.socket.destroy();
});

test("garbage behind a request does not get into the answer that is under way", async () => {
  const connection = await rawConnection(router.port);
  connection.write(rawPost("/v1/chat/completions", JSON.stringify(chat({ stream: true }))));
  await connection.until(/data: \{\}\n\n/);
  connection.write("this is not HTTP\r\n\r\n");
  await connection.closed();
  expect(connection.received().match(/HTTP\/1\.1/g)).toHaveLength(1);
  await waitFor(() => engine.requests.at(-1)?.socket.destroyed, { what: "end of the engine's request" });
  await expectUnharmed();
});

test("a request that does not arrive whole in time: 408; an answer may take longer", async () => {
  const config = { timeouts: { "request-receive": "100ms" } };
  const hasty = await rig.router({ engines: [engine.url], config });
  const stream = openPost(`${hasty.url}/v1/chat/completions`, chat({ stream: true }));
  await waitFor(() => stream.received() !== "", { what: "beginning of the stream" });
  const connection = await rawConnection(hasty.port);
  connection.write(rawPost("/v1/chat/completions", "{").replace("content-length: 1", "content-length: 2"));
  const text = await connection.until(/"code":"request_timeout"/);
  expect(text).toMatch(/^HTTP\/1\.1 408 /);
  await connection.closed();
  engine.requests.at(-1)?.response.end("data: [DONE]\n\n");
  expect((await stream.body).toString()).toBe("data: {}\n\ndata: [DONE]\n\n");
  await expectUnharmed();
});
