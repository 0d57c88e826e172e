import { type AddressInfo, createServer } from "node:net";
import { EspalierError } from "@espalier/core";
import { createVirtualTime, type Engine, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { closed, deadUrl, httpEngine, namedEngine, rawEngine } from "./engines.ts";
import { createRig, postHead, type Rig, rawClient, send } from "./rig.ts";

const statusEngine = (status: number, body = "no") =>
  httpEngine(({ response }) => response.writeHead(status, { "retry-after": "7" }).end(body));
const resetEngine = () => rawEngine((socket) => socket.resetAndDestroy());

test("a refused connection is tried elsewhere with the same body", async () => {
  const engine = await namedEngine("b");
  const rig = await createRig({ engines: [await deadUrl(), engine.url] });
  expect(await send(rig.port, { body: '{"a":1}' })).toMatchObject({ status: 200 });
  expect(engine.requests[0]!.body.toString()).toBe('{"a":1}');
  expect(rig.events).toEqual(["start a 0", "fail a connect", "start b 1", "answer b 200", "byte b"]);
  expect(rig.failures[0]).toMatchObject({ beforeFirstByte: true, error: { code: "upstream_connect_failed" } });
});

test.each<[string, () => Promise<Engine>]>([
  ["a reset before the answer", resetEngine],
  ["an end before the answer", () => rawEngine((socket) => socket.end())],
  ["an end inside the head", () => rawEngine((socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-"))],
])("%s is tried elsewhere once, on the budget", async (_, open) => {
  const bad = await open();
  const good = await namedEngine("b");
  const rig = await createRig({
    engines: [bad.url, good.url],
    options: { retry: { budgetMinimum: 1, budgetRatio: 0 } },
  });
  expect((await send(rig.port)).body.toString()).toBe('{"engine":"b"}');
  expect(rig.events).toEqual(["start a 0", "fail a reset", "start b 1", "answer b 200", "byte b"]);
});

test("each engine that cannot be reached is tried once, whatever the budget, and the last error is the answer", async () => {
  const engines = [await deadUrl(), await deadUrl(), await deadUrl(), (await resetEngine()).url];
  const rig = await createRig({ engines, options: { retry: { budgetMinimum: 0, budgetRatio: 0 } } });
  const answer = await send(rig.port);
  expect(JSON.parse(answer.body.toString())).toMatchObject({ error: { code: "upstream_reset" } });
  expect(answer.status).toBe(502);
  expect(rig.failures.map(({ upstream, kind }) => `${upstream.key} ${kind}`)).toEqual([
    "a connect",
    "b connect",
    "c connect",
    "d reset",
  ]);
  expect(await rig.outcome()).toMatchObject({ kind: "failed", failures: rig.failures });
});

test("no engine at all is no_engine_available", async () => {
  const rig = await createRig({ engines: [] });
  expect(await send(rig.port)).toMatchObject({ status: 503 });
  expect(await rig.outcome()).toMatchObject({ error: { code: "no_engine_available" }, failures: [] });
});

test.each(["ftp://127.0.0.1:1", "not a url"])("an engine at %j is passed over", async (url) => {
  const engine = await namedEngine("b");
  const rig = await createRig({ engines: [url, engine.url] });
  expect(await send(rig.port)).toMatchObject({ status: 200 });
  expect(rig.events[1]).toBe("fail a connect");
});

test.each([502, 503, 504, 429])("status %i is tried elsewhere once, and its answer is dropped", async (status) => {
  const bad = await statusEngine(status);
  const good = await namedEngine("b");
  const rig = await createRig({ engines: [bad.url, good.url] });
  const answer = await send(rig.port);
  expect(answer.body.toString()).toBe('{"engine":"b"}');
  expect(answer.headers).not.toHaveProperty("retry-after");
  expect(rig.events).toEqual(["start a 0", "fail a status", "start b 1", "answer b 200", "byte b"]);
  expect(rig.failures[0]).toMatchObject({ kind: "status", status, beforeFirstByte: true });
});

test.each([400, 404, 500, 501])("status %i is the engine's answer", async (status) => {
  const bad = await statusEngine(status);
  const good = await namedEngine("b");
  const rig = await createRig({ engines: [bad.url, good.url] });
  expect(await send(rig.port)).toMatchObject({ status });
  expect(good.requests).toEqual([]);
});

test("the configured statuses replace the default ones; 429 stays", async () => {
  const [bad500, bad503, bad429, good] = [
    await statusEngine(500),
    await statusEngine(503),
    await statusEngine(429),
    await namedEngine("b"),
  ];
  const first = [bad500, bad503, bad429];
  const rig = await createRig({
    engines: [],
    options: { retry: { retryStatuses: [500] } },
    exchange: () => {
      const engines = [first.shift()!, good].map(({ url }, i) => ({ key: String(i), url, headers: [] }));
      return { next: (tried) => engines[tried.length] };
    },
  });
  expect((await send(rig.port)).status).toBe(200);
  expect((await send(rig.port)).status).toBe(503);
  expect((await send(rig.port)).status).toBe(200);
});

test("with nobody else left an engine's 429 or 503 passes through as it is", async () => {
  for (const status of [429, 503]) {
    const bad = await statusEngine(status, "busy here");
    const rig = await createRig({ engines: [bad.url] });
    const answer = await send(rig.port);
    expect(answer).toMatchObject({ status, headers: { "retry-after": "7" } });
    expect(answer.body.toString()).toBe("busy here");
    expect(rig.events).toEqual(["start a 0", "fail a status", `answer a ${status}`, "byte a"]);
    expect(await rig.outcome()).toMatchObject({ kind: "completed", status });
  }
});

test("a failure is reported before the next engine is chosen, whatever its kind", async () => {
  const engines = [await deadUrl(), (await statusEngine(503)).url, (await namedEngine("c")).url];
  const order: string[] = [];
  const rig = await createRig({
    engines: [],
    exchange: () => ({
      next: (tried) => {
        order.push(`next after ${tried.length}`);
        const url = engines[tried.length]!;
        return { key: url, url, headers: [] };
      },
      observer: {
        attemptStarted: (_, attempt) => void order.push(`start ${attempt}`),
        attemptFailed: (_, { kind }) => void order.push(kind),
      },
    }),
  });
  await send(rig.port);
  const expected = [
    "next after 0",
    "start 0",
    "connect",
    "next after 1",
    "start 1",
    "status",
    "next after 2",
    "start 2",
  ];
  expect(order).toEqual(expected);
});

test("a request has one charged retry: the second engine's 503 passes through", async () => {
  const engines = [await statusEngine(503, "first"), await statusEngine(503, "second"), await namedEngine("c")];
  const rig = await createRig({ engines: engines.map(({ url }) => url) });
  expect((await send(rig.port)).body.toString()).toBe("second");
  expect(engines[2]!.requests).toEqual([]);
});

test("free and charged retries add up: refused, 503, refused, answered", async () => {
  const engines = [await deadUrl(), (await statusEngine(503)).url, await deadUrl(), (await namedEngine("d")).url];
  const rig = await createRig({ engines });
  expect((await send(rig.port)).body.toString()).toBe('{"engine":"d"}');
  expect(rig.failures.map(({ kind }) => kind)).toEqual(["connect", "status", "connect"]);
});

test.each([
  ["is kept when it ends at 64 KiB", 64 * 1024, true],
  ["is closed when it is a byte longer", 64 * 1024 + 1, false],
])("the connection of an answer that was passed over %s", async (_, length, isKept) => {
  const body = Buffer.alloc(length, "x");
  const head = `HTTP/1.1 503 Busy\r\ncontent-length: ${length}\r\n\r\n`;
  const busy = await rawEngine((socket) => void socket.write(Buffer.concat([Buffer.from(head), body])));
  const rig = await createRig({ engines: [busy.url, (await namedEngine("b")).url] });
  expect((await send(rig.port)).status).toBe(200);
  if (!isKept) await closed(busy.sockets[0]);
  expect((await send(rig.port)).status).toBe(200);
  expect(busy.sockets[0]?.destroyed).toBe(!isKept);
});

test("an answer that was passed over and does not end is read for two seconds", async () => {
  const time = createVirtualTime();
  const busy = await rawEngine((socket) => void socket.write("HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\n"));
  const rig = await createRig({ engines: [busy.url, (await namedEngine("b")).url], time });
  expect((await send(rig.port)).status).toBe(200);
  time.advance(1_900);
  expect((await send(rig.port)).status).toBe(200);
  expect(busy.openSockets()).toBe(2);
  time.advance(300);
  await closed(busy.sockets[0]);
  expect(busy.openSockets()).toBe(1);
});

test("the budget is its minimum for few requests, and slides with time", async () => {
  const time = createVirtualTime();
  const engines = [(await statusEngine(503)).url, (await namedEngine("b")).url];
  const rig = await createRig({ engines, time, options: { retry: { budgetMinimum: 3 } } });
  const statuses = async (count: number): Promise<number[]> => {
    const seen: number[] = [];
    for (let i = 0; i < count; i++) seen.push((await send(rig.port)).status);
    return seen;
  };
  expect(await statuses(5)).toEqual([200, 200, 200, 503, 503]);
  time.advance(8_900);
  expect(await statuses(1)).toEqual([503]);
  time.advance(1_200);
  expect(await statuses(4)).toEqual([200, 200, 200, 503]);
  time.advance(60_000);
  expect(await statuses(1)).toEqual([200]);
});

test("beyond the minimum the budget is a share of the requests", async () => {
  const time = createVirtualTime();
  let failing = false;
  const first = await httpEngine(({ response }) => response.writeHead(failing ? 503 : 200).end());
  const rig = await createRig({
    engines: [first.url, (await namedEngine("b")).url],
    time,
    options: { retry: { budgetMinimum: 3 } },
  });
  for (let i = 0; i < 40; i++) await send(rig.port);
  failing = true;
  const statuses: number[] = [];
  // 20 % of 50 requests are 10; they arrive as the first ten, when 41 to 50 requests have earned 8.2 to 10.
  for (let i = 0; i < 12; i++) statuses.push((await send(rig.port)).status);
  expect(statuses.filter((status) => status === 200)).toHaveLength(10);
  expect(statuses.slice(0, 8)).toEqual(Array.from({ length: 8 }, () => 200));
  // What those requests earned is gone with them.
  time.advance(11_000);
  const later: number[] = [];
  for (let i = 0; i < 5; i++) later.push((await send(rig.port)).status);
  expect(later).toEqual([200, 200, 200, 503, 503]);
});

test.each([
  ["text", "I am not HTTP\r\n\r\n"],
  ["an invalid header", "HTTP/1.1 200 OK\r\nbad header: x\r\n\r\n"],
  ["two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx"],
  ["length and chunks at once", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
  ["headers without end", `HTTP/1.1 200 OK\r\nx: ${"y".repeat(70_000)}`],
  ["an unasked upgrade", "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"],
])("garbage (%s) is tried elsewhere on the budget, or is an upstream_protocol_error", async (_, garbage) => {
  const bad = await rawEngine((socket) => socket.write(garbage));
  const good = await namedEngine("b");
  const rig = await createRig({
    engines: [bad.url, good.url],
    options: { retry: { budgetMinimum: 1, budgetRatio: 0 } },
  });
  expect(await send(rig.port)).toMatchObject({ status: 200 });
  expect(rig.events.slice(0, 3)).toEqual(["start a 0", "fail a protocol", "start b 1"]);
  const second = await send(rig.port);
  expect(second.status).toBe(502);
  expect(JSON.parse(second.body.toString())).toMatchObject({ error: { code: "upstream_protocol_error" } });
});

test.each([
  ["a coding beneath the chunks", "transfer-encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"],
  ["a chunk that is none", "transfer-encoding: chunked\r\n\r\nno chunk\r\n"],
])("garbage after a head (%s) is an upstream_protocol_error: no other engine is asked", async (_, rest) => {
  const bad = await rawEngine((socket) => socket.write(`HTTP/1.1 200 OK\r\n${rest}`));
  const rig = await createRig({ engines: [bad.url, (await namedEngine("b")).url] });
  const answer = await send(rig.port);
  expect([answer.status, JSON.parse(answer.body.toString()).error.code]).toEqual([502, "upstream_protocol_error"]);
  expect(rig.events).toEqual(["start a 0", "fail a protocol"]);
});

test("an answer whose headers cannot be written is an upstream_protocol_error: no other engine is asked", async () => {
  const engines = [(await namedEngine("a")).url, (await namedEngine("b")).url];
  const responseHeaders = () => ["x-espalier-engine", "bad\n"];
  const rig = await createRig({ engines, exchange: () => ({ observer: { responseHeaders } }) });
  const answer = await send(rig.port);
  expect([answer.status, JSON.parse(answer.body.toString()).error.code]).toEqual([502, "upstream_protocol_error"]);
  const outcome = await rig.outcome();
  expect(outcome.kind === "failed" && outcome.failures.map(({ upstream, kind }) => `${upstream.key} ${kind}`)).toEqual([
    "a protocol",
  ]);
});

test("a short answer that was passed over leaves its connection usable", async () => {
  const statuses = [503, 200];
  const first = await httpEngine(({ response }) => response.writeHead(statuses.shift() ?? 200).end("x".repeat(60_000)));
  const rig = await createRig({ engines: [first.url, (await namedEngine("b")).url] });
  expect((await send(rig.port)).body.toString()).toBe('{"engine":"b"}');
  expect((await send(rig.port)).body.length).toBe(60_000);
  expect(first.sockets).toHaveLength(1);
});

test("a long answer that was passed over is not read to its end", async () => {
  const first = await rawEngine((socket) => {
    socket.write("HTTP/1.1 503 No\r\ncontent-length: 100000000\r\n\r\n");
    socket.write(Buffer.alloc(200_000));
  });
  // Time stands still, so that it is the size and not the time limit that ends it.
  const time = createVirtualTime();
  const rig = await createRig({ engines: [first.url, (await namedEngine("b")).url], time });
  expect((await send(rig.port)).status).toBe(200);
  await closed(first.sockets[0]);
});

test("an answer that was passed over and does not end is given up after two seconds", async () => {
  const time = createVirtualTime();
  const first = await rawEngine((socket) => socket.write("HTTP/1.1 503 No\r\ncontent-length: 10\r\n\r\nabc"));
  const rig = await createRig({ engines: [first.url, (await namedEngine("b")).url], time });
  expect((await send(rig.port)).status).toBe(200);
  time.advance(1_900);
  expect(first.openSockets()).toBe(1);
  time.advance(200);
  await closed(first.sockets[0]);
});

test("when the client leaves, an answer being dropped does not disturb anybody", async () => {
  const first = await rawEngine((socket) => socket.write("HTTP/1.1 503 No\r\ncontent-length: 10\r\n\r\nabc"));
  const second = await httpEngine(() => {});
  const rig = await createRig({ engines: [first.url, second.url] });
  const client = rawClient(rig.port, postHead);
  await waitFor(() => second.requests.length === 1, { what: "the second attempt" });
  client.socket.destroy();
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  first.sockets[0]!.write("defghij");
  await closed(second.sockets[0]);
});

test("a kept connection that the engine resets at the next request is redialled, at no charge and unnoticed", async () => {
  const engine = await rawEngine((socket, index) => {
    if (index === 1) socket.resetAndDestroy();
    else socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
  });
  const options = { retry: { budgetMinimum: 0, budgetRatio: 0 } };
  const rig = await createRig({ engines: [engine.url], options, time: createVirtualTime() });
  for (let i = 0; i < 2; i++) expect((await send(rig.port)).body.toString()).toBe("ok");
  expect(engine.sockets).toHaveLength(2);
  expect(rig.events).toEqual(["start a 0", "answer a 200", "byte a", "start a 0", "answer a 200", "byte a"]);
});

test("a kept connection is redialled once, and then the engine has failed", async () => {
  const engine = await rawEngine((socket, index) => {
    if (index > 0) socket.resetAndDestroy();
    else socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
  });
  const other = await namedEngine("b");
  const rig = await createRig({ engines: [engine.url, other.url], time: createVirtualTime() });
  await send(rig.port);
  expect((await send(rig.port)).body.toString()).toBe('{"engine":"b"}');
  expect(engine.sockets).toHaveLength(2);
  expect(rig.events.slice(3)).toEqual(["start a 0", "fail a reset", "start b 1", "answer b 200", "byte b"]);
});

test("an engine that restarted between two requests is reached again, with every old connection dead", async () => {
  const open = (port = 0) => httpEngine(({ response }) => setImmediate(() => response.end("ok")), { port });
  const before = await open();
  const rig = await createRig({ engines: [before.url] });
  await Promise.all(Array.from({ length: 5 }, () => send(rig.port)));
  for (const socket of before.sockets) socket.resetAndDestroy();
  const { port } = before;
  before.server.close();
  await waitFor(() => before.openSockets() === 0 && !before.server.listening, { what: "the end of the old process" });
  const after = await open(port);
  const answers = await Promise.all(Array.from({ length: 5 }, () => send(rig.port)));
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  expect(after.requests).toHaveLength(5);
  expect(rig.failures).toEqual([]);
});

test("an engine killed under load loses no request that it had not begun to answer, as far as the budget goes", async () => {
  let accepted = 0;
  const doomed = await httpEngine(() => {
    accepted += 1;
  });
  const options = { retry: { budgetMinimum: 29, budgetRatio: 0 } };
  const rig = await createRig({ engines: [doomed.url, (await namedEngine("b")).url], options });
  const answers = Promise.all(Array.from({ length: 30 }, () => send(rig.port)));
  await waitFor(() => accepted === 30, { what: "30 requests at the engine" });
  doomed.server.close();
  for (const socket of doomed.sockets) socket.resetAndDestroy();
  const bodies = (await answers).map(({ body }) => body.toString());
  expect(bodies.filter((body) => body === '{"engine":"b"}')).toHaveLength(29);
  expect(bodies.filter((body) => body.includes("upstream_reset"))).toHaveLength(1);
});

test("a dial that takes too long is a failed connection, and the next engine answers", async () => {
  const time = createVirtualTime();
  // A TLS handshake that is never answered keeps the dial under way.
  const silent = createServer().listen(0, "127.0.0.1");
  await waitFor(() => silent.listening, { what: "the silent engine" });
  const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const rig = await createRig({ engines: [url, (await namedEngine("b")).url], time });
  const answer = send(rig.port);
  await waitFor(() => rig.events.length === 1, { what: "the first attempt" });
  time.advance(1_900);
  expect(rig.events).toEqual(["start a 0"]);
  time.advance(200);
  expect((await answer).status).toBe(200);
  expect(rig.events[1]).toBe("fail a connect");
  silent.close();
});

test("a want of this process's own is no engine's failure: no other one is asked, and the client may come again", async () => {
  const rig = await createRig({
    engines: ["http://a", "http://b"],
    attempt: (owner) => {
      const start = (): boolean => {
        queueMicrotask(() => owner.refused(new EspalierError("out_of_descriptors")));
        return true;
      };
      return { start, cancel() {}, resume() {} } as unknown as ReturnType<Rig["proxy"]["attempt"]>;
    },
  });
  const answer = await send(rig.port);
  expect([answer.status, answer.headers["retry-after"]]).toEqual([503, "1"]);
  expect(JSON.parse(answer.body.toString()).error.code).toBe("out_of_descriptors");
  expect([rig.events, rig.failures]).toEqual([["start a 0"], []]);
});
