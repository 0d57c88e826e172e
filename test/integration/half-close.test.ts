import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, rawConnection, rawPost } from "./client.ts";
import { httpEngine, rawEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

// A client that shuts its half of the connection down behind its request (`nc -N`, some libraries) lost the request with it:
// Node ends what is under way on such a connection. A client that is gone looks the same until something is sent to it.

const rig = createRig();
afterEach(() => rig.close());

const path = "/v1/chat/completions";

/** A router before an engine that answers when it is told to. */
async function setUp() {
  const engine = await httpEngine(rig, () => {});
  const router = await rig.router({ engines: [engine.url] });
  const arrived = (count = 1) => waitFor(() => engine.requests.length === count, { what: "request at the engine" });
  return { engine, router, arrived };
}

test("a client that has shut its half down gets its answer, and the connection ends with it", async () => {
  const { engine, router, arrived } = await setUp();
  const connection = await rawConnection(router.port);
  connection.socket.end(rawPost(path, JSON.stringify(chat())));
  await arrived();
  await connection.until(/^HTTP\/1\.1 100 Continue\r\n\r\n/);
  engine.requests[0]!.response.writeHead(200, { "content-type": "application/json" }).end('{"late":true}');
  await connection.closed();
  expect(connection.received()).toMatch(
    /^(HTTP\/1\.1 100 Continue\r\n\r\n)+HTTP\/1\.1 200 OK\r\n[\s\S]+\{"late":true\}/,
  );
  await router.untilIdle();
});

const python = `
import http.client, socket, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
connection.request("POST", "${path}", sys.argv[2], {"content-type": "application/json"})
connection.sock.shutdown(socket.SHUT_WR)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
`;
const hasPython = spawnSync("python3", ["--version"]).status === 0;

// The probes were `102 Processing`, which Python's http.client, and all that is built on it, took for the answer.
test.skipIf(!hasPython)("Python's http.client that has shut its half down gets its answer", async () => {
  const { engine, router, arrived } = await setUp();
  const client = spawn("python3", ["-c", python, String(router.port), JSON.stringify(chat())]);
  let printed = "";
  client.stdout.on("data", (text: Buffer) => {
    printed += text.toString();
  });
  await arrived();
  await waitFor(() => engine.requests[0]!.socket.bytesRead > 0, { what: "the request" });
  // At least the first probe goes out: the end of the client's half arrives behind its request.
  const other = await rawConnection(router.port);
  other.write("GET /health HTTP/1.1\r\nhost: r\r\n\r\n");
  await other.until(/200 OK/);
  engine.requests[0]!.response.writeHead(200, { "content-type": "application/json" }).end('{"late":true}');
  await once(client, "close");
  expect(printed.trim()).toBe('200 {"late":true}');
  other.socket.destroy();
  await router.untilIdle();
});

test("a stream that is under way goes on to its end", async () => {
  const { engine, router, arrived } = await setUp();
  const connection = await rawConnection(router.port);
  connection.write(rawPost(path, JSON.stringify(chat({ stream: true }))));
  await arrived();
  const { response } = engine.requests[0]!;
  response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
  await connection.until(/data: 1/);
  connection.socket.end();
  // What comes behind the end of the client's half has the router read that first.
  const other = await rawConnection(router.port);
  other.write("GET /health HTTP/1.1\r\nhost: r\r\n\r\n");
  await other.until(/200 OK/);
  response.write("data: 2\n\n");
  await connection.until(/data: 2/);
  response.end("data: [DONE]\n\n");
  await connection.closed();
  expect(connection.received()).toMatch(/data: \[DONE\]/);
  expect(connection.received()).not.toContain("100 Continue");
  other.socket.destroy();
  await router.untilIdle();
});

test("a client that is gone is still found out before there is an answer, and its engine is told", async () => {
  const { engine, router, arrived } = await setUp();
  const connection = await rawConnection(router.port);
  connection.write(rawPost(path, JSON.stringify(chat())));
  await arrived();
  connection.socket.destroy();
  await waitFor(() => engine.requests[0]?.socket.destroyed, { what: "end of the engine's request" });
  await router.untilIdle();
});

// Nothing of a stream that pauses told the router that the client had gone: the engine went on for nobody.
test("a client that is gone is found out while its stream pauses", async () => {
  const { engine, router, arrived } = await setUp();
  const connection = await rawConnection(router.port);
  connection.write(rawPost(path, JSON.stringify(chat({ stream: true }))));
  await arrived();
  engine.requests[0]!.response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
  await connection.until(/data: 1/);
  connection.socket.end();
  await waitFor(() => engine.requests[0]?.socket.destroyed, { what: "end of the engine's request" });
  await router.untilIdle();
});

test("a client of HTTP/1.0 that shuts its half down is gone", async () => {
  const { engine, router, arrived } = await setUp();
  const connection = await rawConnection(router.port);
  connection.socket.end(rawPost(path, JSON.stringify(chat())).replace("HTTP/1.1", "HTTP/1.0"));
  await arrived();
  await waitFor(() => engine.requests[0]?.socket.destroyed, { what: "end of the engine's request" });
  await connection.closed();
  expect(connection.received()).toBe("");
  await router.untilIdle();
});

/** It was ended there: clients that asked again on it within milliseconds got a reset, since HTTP had told them to keep it. */
test("a connection is kept behind the error frame of a stream, and serves the next request", async () => {
  const engine = await rawEngine(rig, (socket, index) => {
    const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write(`${head}9\r\ndata: 1\n\n\r\n`, () => index === 0 && socket.resetAndDestroy());
  });
  const router = await rig.router({ engines: [engine.url] });
  const connection = await rawConnection(router.port);
  connection.write(rawPost(path, JSON.stringify(chat({ stream: true }))));
  const cut = /data: 1\n\n[\s\S]*"error"[\s\S]*\r\n0\r\n\r\n$/;
  await waitFor(() => cut.test(connection.received()), { what: "error frame" });
  connection.write(rawPost("/v1/nowhere", "{}"));
  await waitFor(() => /HTTP\/1\.1 404 /.test(connection.received()), { what: "answer to the next request" });
  expect(connection.received()).not.toMatch(/\r\nconnection: close\r\n/i);
  await router.untilIdle();
});
