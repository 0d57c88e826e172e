import { createServer } from "node:net";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { closed, httpEngine, listen, namedEngine, rawEngine } from "./engines.ts";
import { createRig, postHead, rawClient, send } from "./rig.ts";

test("a client that leaves before the answer ends the engine's request at once", async () => {
  const engine = await httpEngine(() => {});
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  await waitFor(() => engine.requests.length === 1, { what: "the request at the engine" });
  client.socket.destroy();
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  await closed(engine.sockets[0]);
  expect(rig.events).toEqual(["start a 0"]);
  expect(rig.proxy.activeStreams()).toBe(0);
});

test("a client that leaves in the middle of a stream ends it at the engine", async () => {
  const engine = await httpEngine(({ response }) => response.write("data: 1\n\n"));
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  await client.received("data: 1");
  client.socket.destroy();
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  await closed(engine.sockets[0]);
  expect(rig.events).toEqual(["start a 0", "answer a 200", "byte a"]);
});

test("a client that closes only its sending side has left too", async () => {
  const engine = await httpEngine(() => {});
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  await waitFor(() => engine.requests.length === 1, { what: "the request at the engine" });
  client.socket.end();
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  await closed(engine.sockets[0]);
});

test("a client that leaves while it is behind frees the engine", async () => {
  const piece = Buffer.alloc(64 * 1024);
  const engine = await httpEngine(({ response }) => {
    while (response.write(piece)) {}
    response.on("drain", () => {
      while (response.write(piece)) {}
    });
  });
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  client.socket.pause();
  await waitFor(() => rig.responses[0]?.writableNeedDrain, { what: "a full buffer" });
  client.socket.resetAndDestroy();
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  await closed(engine.sockets[0]);
});

test("a client that leaves while the connection is being opened stops the dial", async () => {
  // A TLS dial at an engine that never answers the handshake stays under way.
  const silent = await listen(createServer());
  const rig = await createRig({ engines: [silent.url.replace("http:", "https:")] });
  const client = rawClient(rig.port, postHead);
  await waitFor(() => silent.sockets.length === 1, { what: "the dial" });
  client.socket.destroy();
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  silent.sockets[0]!.resume();
  await closed(silent.sockets[0]);
});

test("a client that leaves while it waits for a connection gives its place up", async () => {
  const engine = await httpEngine(() => {});
  const options = { maxConnectionsPerEngine: 1, maxQueuedPerEngine: 1 };
  const rig = await createRig({ engines: [engine.url], options });
  const first = rawClient(rig.port, postHead);
  await waitFor(() => engine.requests.length === 1, { what: "the first request" });
  const second = rawClient(rig.port, postHead);
  await waitFor(() => rig.proxy.activeStreams() === 2, { what: "the second request" });
  second.socket.destroy();
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  const third = send(rig.port);
  await waitFor(() => rig.proxy.activeStreams() === 2, { what: "the third request" });
  first.socket.destroy();
  await waitFor(() => engine.requests.length === 2, { what: "the third request at the engine" });
  engine.requests[1]!.response.end("third");
  expect((await third).body.toString()).toBe("third");
});

test("a client that leaves between two attempts starts no other one", async () => {
  const engine = await rawEngine((socket) => socket.resetAndDestroy());
  const other = await namedEngine("b");
  const upstreams = [engine, other].map(({ url }, i) => ({ key: String(i), url, headers: [] }));
  const rig = await createRig({
    engines: [],
    exchange: (response) => ({
      next: (tried) => {
        if (tried.length > 0) response.destroy();
        return upstreams[tried.length];
      },
    }),
  });
  const client = rawClient(rig.port, postHead);
  await closed(client.socket);
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  await waitFor(() => rig.proxy.activeStreams() === 0, { what: "the end" });
});

test("a response that is closed already costs no engine anything", async () => {
  const engine = await namedEngine("a");
  const rig = await createRig({
    engines: [engine.url],
    exchange: (response) => {
      response.destroy();
      return {};
    },
  });
  rawClient(rig.port, postHead);
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  expect(rig.events).toEqual([]);
  expect(engine.sockets).toEqual([]);
});

test("a client that stops reading for the write timeout is taken for gone; one that only reads late is not", async () => {
  const time = createVirtualTime();
  const piece = Buffer.alloc(64 * 1024);
  const engine = await httpEngine(({ response }) => {
    const fill = (): void => {
      while (response.write(piece)) {}
    };
    response.on("drain", fill);
    fill();
  });
  const options = { clientWriteMs: 10_000, idleMs: 1_000 };
  const rig = await createRig({ engines: [engine.url], options, time });
  const client = rawClient(rig.port, postHead);
  const full = () => waitFor(() => rig.responses[0]?.writableNeedDrain, { what: "a full buffer" });
  client.socket.pause();
  await full();
  // The engine's silence is ours: its idle timeout does not run.
  time.advance(9_000);
  expect(rig.outcomes).toEqual([]);
  let received = 0;
  client.socket.on("data", (data: Buffer) => {
    received += data.length;
  });
  client.socket.resume();
  await waitFor(() => received > 20_000_000, { what: "more of the body" });
  client.socket.pause();
  await full();
  time.advance(9_000);
  expect(rig.outcomes).toEqual([]);
  time.advance(1_200);
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  expect(rig.responses[0]?.destroyed).toBe(true);
  await closed(engine.sockets[0]);
  expect(rig.failures).toEqual([]);
});
