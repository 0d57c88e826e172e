import { createServer } from "node:net";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createProxy } from "../../src/proxy/index.ts";
import { closed, deadUrl, httpEngine, listen, rawEngine } from "./engines.ts";

const limits = { timeoutMs: 5_000, maxBytes: 10_000 };

function createClient() {
  const time = createVirtualTime();
  const proxy = createProxy(time);
  onTestFinished(() => proxy.stop());
  return { client: proxy.httpClient, time, proxy };
}

test("a control request carries method, path, query, headers and body, and its answer comes back whole", async () => {
  const engine = await httpEngine(({ response }) => {
    response.writeHead(202, { "X-Kind": "test", "set-cookie": ["a=1", "b=2"] });
    response.end("größe");
  });
  const { client } = createClient();
  const url = `${engine.url}/v1/load?x=1&y=ü`;
  const headers = { "Content-Type": "application/json", authorization: "Bearer admin" };
  const answer = await client({ url, method: "POST", headers, body: '{"lora":"ü"}', ...limits });
  expect(answer.status).toBe(202);
  expect(answer.body).toBe("größe");
  expect(answer.headers).toMatchObject({ "x-kind": "test", "set-cookie": "a=1, b=2" });
  const seen = engine.requests[0]!;
  expect(seen).toMatchObject({ method: "POST", path: "/v1/load?x=1&y=%C3%BC" });
  expect(seen.headers).toMatchObject({ "content-type": "application/json", authorization: "Bearer admin" });
  expect(seen.body.toString()).toBe('{"lora":"ü"}');
});

test("GET is the default, a status is no error, and the connection is kept", async () => {
  const engine = await httpEngine(({ response }) => response.writeHead(503).end("not ready"));
  const { client } = createClient();
  for (let i = 0; i < 3; i++) {
    expect(await client({ url: `${engine.url}/health`, ...limits })).toMatchObject({ status: 503, body: "not ready" });
  }
  expect(engine.requests.map(({ method }) => method)).toEqual(["GET", "GET", "GET"]);
  expect(engine.sockets).toHaveLength(1);
});

test("the time to an answer begins when the connection is open", async () => {
  const { client, time } = createClient();
  const engine = await rawEngine((socket) => {
    time.advance(40);
    socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
  });
  engine.server.on("connection", () => time.advance(1_000));
  const asked = () => client({ url: `${engine.url}/health`, ...limits });
  expect((await asked()).headMs).toBe(40);
  expect((await asked()).headMs).toBe(40);
});

test("an answer of the greatest size passes, one byte more is an error and ends the connection", async () => {
  const engine = await httpEngine(({ response, path }) => response.end("x".repeat(Number(path.slice(1)))));
  const { client } = createClient();
  expect((await client({ url: `${engine.url}/10000`, ...limits })).body).toHaveLength(10_000);
  await expect(client({ url: `${engine.url}/10001`, ...limits })).rejects.toMatchObject({
    code: "upstream_protocol_error",
  });
  await closed(engine.sockets[0]);
});

test.each([
  ["a refused connection", deadUrl, "upstream_connect_failed"],
  ["a reset", async () => (await rawEngine((socket) => socket.resetAndDestroy())).url, "upstream_connect_failed"],
  [
    "a body cut short",
    async () => (await rawEngine((socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"))).url,
    "upstream_connect_failed",
  ],
  [
    "garbage",
    async () => (await rawEngine((socket) => socket.write("no HTTP\r\n\r\n"))).url,
    "upstream_protocol_error",
  ],
  ["another scheme", async () => "ftp://127.0.0.1/", "upstream_connect_failed"],
  ["nonsense", async () => "nonsense", "upstream_connect_failed"],
])("%s is reported", async (_, url, code) => {
  const { client } = createClient();
  await expect(client({ url: await url(), ...limits })).rejects.toMatchObject({ name: "EspalierError", code });
});

test.each([
  ["nothing", () => {}],
  [
    "headers only",
    (socket: { write(text: string): void }) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"),
  ],
])("the timeout covers an answer of %s, and frees the engine", async (_, answer) => {
  const engine = await rawEngine(answer);
  const { client, time } = createClient();
  const call = client({ url: engine.url, ...limits });
  const rejected = expect(call).rejects.toMatchObject({ code: "upstream_timeout" });
  await waitFor(() => engine.sockets.length === 1, { what: "the connection" });
  time.advance(4_999);
  expect(time.pendingCount).toBe(1);
  time.advance(1);
  await rejected;
  await closed(engine.sockets[0]);
  expect(time.pendingCount).toBe(0);
});

test("the timeout covers a dial that does not end", async () => {
  const silent = await listen(createServer((socket) => void socket.resume()));
  const { client, time } = createClient();
  const call = client({ url: silent.url.replace("http:", "https:"), ...limits });
  const rejected = expect(call).rejects.toMatchObject({ code: "upstream_timeout" });
  await waitFor(() => silent.sockets.length === 1, { what: "the dial" });
  time.advance(5_000);
  await rejected;
  await closed(silent.sockets[0]);
});

test("a kept connection that went stale is redialled once", async () => {
  const resets = new Set([1]);
  const engine = await rawEngine((socket, index) => {
    if (resets.has(index)) socket.resetAndDestroy();
    else socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
  });
  const { client } = createClient();
  for (let i = 0; i < 2; i++) expect((await client({ url: engine.url, ...limits })).body).toBe("ok");
  expect(engine.sockets).toHaveLength(2);
  for (const index of [3, 4]) resets.add(index);
  await expect(client({ url: engine.url, ...limits })).rejects.toMatchObject({ code: "upstream_connect_failed" });
});

test("four connections to an address, 64 waiting, and one more is refused", async () => {
  const engine = await httpEngine(() => {});
  const { client } = createClient();
  const calls = Array.from({ length: 68 }, () => client({ url: engine.url, ...limits }));
  await waitFor(() => engine.requests.length === 4, { what: "four requests" });
  await expect(client({ url: engine.url, ...limits })).rejects.toMatchObject({ code: "upstream_connect_failed" });
  for (let i = 0; i < 68; i++) {
    await waitFor(() => engine.requests[i], { what: `request ${i}` });
    engine.requests[i]!.response.end("ok");
  }
  expect((await Promise.all(calls)).every(({ body }) => body === "ok")).toBe(true);
  expect(engine.sockets).toHaveLength(4);
});
