import { createServer as createTlsServer } from "node:https";
import { certificate, createVirtualTime, privateKey, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { closed, httpEngine, listen, namedEngine, rawEngine } from "./engines.ts";
import { createRig, postHead, rawClient, send } from "./rig.ts";

test("no more connections than the cap: the rest wait their turn", async () => {
  let running = 0;
  let most = 0;
  const held: (() => void)[] = [];
  const engine = await httpEngine(({ response }) => {
    most = Math.max(most, ++running);
    held.push(() => {
      running -= 1;
      response.end("ok");
    });
    // The first three are held together; from then on one is let go for each that comes.
    if (engine.requests.length >= 3) held.shift()?.();
    if (engine.requests.length > 37) for (const answer of held.splice(0)) answer();
  });
  const rig = await createRig({ engines: [engine.url], options: { maxConnectionsPerEngine: 3 } });
  const answers = await Promise.all(Array.from({ length: 40 }, () => send(rig.port)));
  expect(answers.every(({ status }) => status === 200)).toBe(true);
  expect(most).toBe(3);
  expect(engine.sockets).toHaveLength(3);
});

test("those who wait are served in order, over connections that close after each answer too", async () => {
  const engine = await httpEngine(({ response }) => response.writeHead(200, { connection: "close" }).end("ok"));
  const rig = await createRig({ engines: [engine.url], options: { maxConnectionsPerEngine: 1 } });
  const order: string[] = [];
  const one = async (path: string) => {
    const answer = await send(rig.port, { path });
    order.push(path);
    return answer.status;
  };
  const statuses: Promise<number>[] = [];
  for (const path of ["/1", "/2", "/3", "/4"]) {
    statuses.push(one(path));
    await waitFor(() => rig.events.length >= statuses.length, { what: "the start" });
  }
  expect(await Promise.all(statuses)).toEqual([200, 200, 200, 200]);
  expect(engine.requests.map(({ path }) => path)).toEqual(["/1", "/2", "/3", "/4"]);
  expect(engine.sockets).toHaveLength(4);
});

test("one more than connections and queue hold goes to the next engine, or is overloaded", async () => {
  const engine = await httpEngine(() => {});
  const other = await namedEngine("b");
  // Going elsewhere costs nothing, for the engine did not get the request.
  const retry = { budgetMinimum: 0, budgetRatio: 0 };
  const options = { maxConnectionsPerEngine: 2, maxQueuedPerEngine: 1, retry };
  const urls = [engine.url];
  const rig = await createRig({
    engines: [],
    options,
    exchange: () => {
      const upstreams = urls.map((url) => ({ key: url, url, headers: [] }));
      return { next: (tried) => upstreams[tried.length] };
    },
  });
  for (let i = 0; i < 3; i++) rawClient(rig.port, postHead);
  await waitFor(() => rig.proxy.activeStreams() === 3 && engine.requests.length === 2, { what: "a full engine" });
  const refused = await send(rig.port);
  expect(refused).toMatchObject({ status: 429, headers: { "retry-after": "1" } });
  expect(await rig.outcome()).toMatchObject({ failures: [{ kind: "overloaded", error: { code: "overloaded" } }] });
  urls.push(other.url);
  expect((await send(rig.port)).body.toString()).toBe('{"engine":"b"}');
  expect(rig.failures.at(-1)).toMatchObject({ kind: "overloaded", beforeFirstByte: true });
});

test("one who waits longer than an answer may take is passed on", async () => {
  const time = createVirtualTime();
  const engine = await httpEngine(({ response }) => response.write("x"));
  const options = { maxConnectionsPerEngine: 1, firstByteMs: 10_000 };
  const rig = await createRig({ engines: [engine.url, (await namedEngine("b")).url], options, time });
  rawClient(rig.port, postHead);
  await waitFor(() => rig.events.includes("byte a"), { what: "the first request" });
  const second = send(rig.port);
  await waitFor(() => rig.proxy.activeStreams() === 2, { what: "the second request" });
  time.advance(10_100);
  expect((await second).body.toString()).toBe('{"engine":"b"}');
  expect(rig.failures).toMatchObject([{ kind: "overloaded" }]);
});

test("a failed dial makes room for the next one who waits", async () => {
  let index = 0;
  const engine = await rawEngine((socket) => {
    if (index++ === 0) socket.resetAndDestroy();
    else socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
  });
  const rig = await createRig({ engines: [engine.url], options: { maxConnectionsPerEngine: 1 } });
  const statuses = await Promise.all([send(rig.port), send(rig.port)]);
  expect(statuses.map(({ status }) => status).sort()).toEqual([200, 502]);
});

test("the connection used last is used next", async () => {
  const ports: (number | undefined)[] = [];
  const held: (() => void)[] = [];
  // The first four wait for each other, so that each has a connection of its own.
  const engine = await httpEngine(({ response }) => {
    ports.push(response.socket?.remotePort);
    held.push(() => response.end("ok"));
    if (ports.length >= 4) for (const answer of held.splice(0)) answer();
  });
  const rig = await createRig({ engines: [engine.url] });
  await Promise.all(Array.from({ length: 4 }, () => send(rig.port)));
  for (let i = 0; i < 5; i++) await send(rig.port);
  expect(new Set(ports.slice(0, 4)).size).toBe(4);
  expect(ports[4]).toBeTypeOf("number");
  expect(ports.slice(4)).toEqual(Array(5).fill(ports[4]));
  expect(engine.sockets).toHaveLength(4);
});

test("an unused connection is closed after the keep-alive timeout", async () => {
  const engine = await rawEngine((socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
  const rig = await createRig({ engines: [engine.url], options: { engineKeepAliveMs: 50 } });
  await send(rig.port);
  await closed(engine.sockets[0]);
  expect((await send(rig.port)).status).toBe(200);
  expect(engine.sockets).toHaveLength(2);
});

test("a dropped engine closes what is idle, finishes what runs, and can come back", async () => {
  const engine = await httpEngine(({ response, path }) => {
    if (path === "/slow") response.write("begun ");
    else response.end("ok");
  });
  const rig = await createRig({ engines: [engine.url] });
  const slow = send(rig.port, { path: "/slow" });
  await waitFor(() => rig.events.includes("byte a"), { what: "the stream" });
  await send(rig.port);
  expect(engine.sockets).toHaveLength(2);
  rig.proxy.drop(engine.url);
  await closed(engine.sockets[1]);
  expect(engine.sockets[0]!.destroyed).toBe(false);
  engine.requests[0]!.response.end("finished");
  expect((await slow).body.toString()).toBe("begun finished");
  await closed(engine.sockets[0]);
  expect((await send(rig.port)).status).toBe(200);
  rig.proxy.drop("http://127.0.0.1:1");
});

test("a dropped engine's control connections close as well, whatever path its URL has", async () => {
  const engine = await httpEngine(({ response }) => response.end("fine"));
  const rig = await createRig({ engines: [engine.url] });
  await rig.proxy.httpClient({ url: `${engine.url}/v1/health`, timeoutMs: 1_000, maxBytes: 100 });
  expect(engine.sockets).toHaveLength(1);
  rig.proxy.drop(`${engine.url}/v1`);
  await closed(engine.sockets[0]);
});

test("a dropped engine still serves those who wait for a connection", async () => {
  const engine = await httpEngine(() => {});
  const rig = await createRig({ engines: [engine.url], options: { maxConnectionsPerEngine: 1 } });
  const answers = [send(rig.port), send(rig.port)];
  await waitFor(() => rig.proxy.activeStreams() === 2 && engine.requests.length === 1, { what: "two requests" });
  rig.proxy.drop(engine.url);
  engine.requests[0]!.response.end("first");
  await waitFor(() => engine.requests.length === 2, { what: "the second request" });
  engine.requests[1]!.response.end("second");
  expect((await Promise.all(answers)).map(({ body }) => body.toString())).toEqual(["first", "second"]);
  await closed(engine.sockets.at(-1));
});

test("one that waited for a connection in vain goes elsewhere at no charge", async () => {
  const time = createVirtualTime();
  const engine = await httpEngine(() => {});
  const options = {
    ...{ maxConnectionsPerEngine: 1, firstByteMs: 5_000 },
    retry: { budgetMinimum: 0, budgetRatio: 0 },
  };
  const rig = await createRig({ engines: [engine.url, (await namedEngine("b")).url], options, time });
  const held = send(rig.port);
  await waitFor(() => engine.requests.length === 1, { what: "the first request" });
  const waiting = send(rig.port);
  await waitFor(() => rig.events.length === 2, { what: "the second request" });
  time.advance(5_500);
  expect((await waiting).body.toString()).toBe('{"engine":"b"}');
  expect((await held).status).toBe(504);
});

test("stop ends every exchange as draining and closes every connection", async () => {
  const engine = await httpEngine(({ response, path }) => {
    if (path === "/waits") return;
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (path === "/stream") response.write("data: 1\n\n");
    else response.end();
  });
  const rig = await createRig({ engines: [engine.url] });
  const waits = send(rig.port, { path: "/waits" });
  const streams = send(rig.port, { path: "/stream" });
  await waitFor(() => rig.events.includes("byte a") && engine.requests.length === 2, { what: "both" });
  await send(rig.port, { path: "/idle" });
  await rig.proxy.stop();
  expect(await waits).toMatchObject({ status: 503 });
  expect((await streams).body.toString()).toMatch(/^data: 1\n\ndata: \{"error":.*"draining".*\n\n$/);
  expect(rig.proxy.activeStreams()).toBe(0);
  await waitFor(() => engine.openSockets() === 0, { what: "the end of every connection" });
});

async function tlsEngine(text: string) {
  const server = createTlsServer({ cert: certificate, key: privateKey }, (_, response) => {
    response.writeHead(200, { connection: "close" }).end(text);
  });
  const sessions: boolean[] = [];
  const asked: (string | false | null)[] = [];
  server.on("secureConnection", (socket) => {
    sessions.push(socket.isSessionReused());
    asked.push(socket.servername);
  });
  const { url, ...engine } = await listen(server);
  return { ...engine, sessions, asked, url: url.replace("http:", "https:") };
}

test("an engine behind TLS is reached by address and by name, with its own authority, and sessions are resumed", async () => {
  const engine = await tlsEngine("secret");
  const names = [engine.url, engine.url.replace("127.0.0.1", "localhost")];
  for (const url of names) {
    const options = { tls: { ca: certificate } };
    const rig = await createRig({ engines: [url], options });
    const before = engine.sockets.length;
    expect((await send(rig.port)).body.toString()).toBe("secret");
    await closed(engine.sockets[before]);
    expect((await send(rig.port)).body.toString()).toBe("secret");
    expect(engine.sessions.at(-1)).toBe(true);
  }
  expect(engine.asked).toEqual([false, false, "localhost", "localhost"]);
});

test("an engine behind TLS is asked for the name that is configured for it", async () => {
  const engine = await tlsEngine("secret");
  const tls = { ca: certificate, servername: "localhost" };
  const rig = await createRig({ engines: [engine.url], options: { tls } });
  expect((await send(rig.port)).body.toString()).toBe("secret");
  expect(engine.asked).toEqual(["localhost"]);
});

test("an unknown authority is a failed connection, unless it is not to be checked", async () => {
  const engine = await tlsEngine("secret");
  const strict = await createRig({ engines: [engine.url] });
  expect(await send(strict.port)).toMatchObject({ status: 502 });
  expect(strict.failures).toMatchObject([{ kind: "connect", error: { code: "upstream_connect_failed" } }]);
  const lax = await createRig({ engines: [engine.url], options: { tls: { rejectUnauthorized: false } } });
  expect((await send(lax.port)).body.toString()).toBe("secret");
});

test("TLS options that are changed count for new connections, which resume no session of the old ones", async () => {
  const engine = await tlsEngine("secret");
  const rig = await createRig({ engines: [engine.url], options: { tls: { ca: certificate } } });
  const ask = async () => {
    const { status } = await send(rig.port);
    await closed(engine.sockets.at(-1));
    return status;
  };
  expect([await ask(), await ask()]).toEqual([200, 200]);
  rig.proxy.setTls({ ca: certificate });
  expect([await ask(), await ask()]).toEqual([200, 200]);
  expect(engine.sessions).toEqual([false, true, false, true]);
  rig.proxy.setTls({});
  expect((await send(rig.port)).status).toBe(502);
  rig.proxy.setTls({ ca: certificate });
  expect(await ask()).toBe(200);
});

test("a certificate for another name is a failed connection", async () => {
  const engine = await tlsEngine("secret");
  const tls = { ca: certificate, servername: "elsewhere.example" };
  const rig = await createRig({ engines: [engine.url], options: { tls } });
  expect(await send(rig.port)).toMatchObject({ status: 502 });
  expect(rig.failures).toMatchObject([{ kind: "connect" }]);
});

test("a health check gets through to an engine that is full of requests", async () => {
  const engine = await httpEngine(({ response, path }) => {
    if (path === "/health") response.end("fine");
  });
  const options = { maxConnectionsPerEngine: 1, maxQueuedPerEngine: 0 };
  const rig = await createRig({ engines: [engine.url], options });
  rawClient(rig.port, postHead);
  await waitFor(() => engine.requests.length === 1, { what: "the request" });
  expect(await rig.proxy.httpClient({ url: `${engine.url}/health`, timeoutMs: 2_000, maxBytes: 100 })).toMatchObject({
    body: "fine",
  });
});
