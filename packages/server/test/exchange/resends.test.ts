import type { Socket } from "node:net";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { deadUrl, httpEngine, namedEngine, rawEngine } from "./engines.ts";
import { createRig, postHead, rawClient, send } from "./rig.ts";

/*
 * One prompt could take a whole fleet down: a connection that was reset after the request had been sent counted like one
 * that could not be opened, so the request went on to every engine there was, twice where connections had been kept.
 * What is sent again may be what broke the engine.
 */

/** Engines that end the connection of each request while it is poison, and how often each got such a request. */
async function breakable(count: number, end: (socket: Socket) => void = (socket) => socket.resetAndDestroy()) {
  const executed: number[] = Array.from({ length: count }, () => 0);
  let isPoison = true;
  const open = (_: unknown, at: number) =>
    rawEngine((socket) => {
      if (!isPoison) {
        socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        return;
      }
      executed[at]! += 1;
      end(socket);
    });
  const engines = await Promise.all(executed.map(open));
  const poison = (is: boolean): void => {
    isPoison = is;
  };
  return { urls: engines.map(({ url }) => url), engines, executed, poison };
}

const codeOf = (body: Buffer): string => JSON.parse(body.toString()).error.code;

test("a request that broke two engines is not tried on a third, and has an error of its own; the next one is served", async () => {
  const { urls, executed, poison } = await breakable(8);
  const rig = await createRig({ engines: urls });
  const answer = await send(rig.port);
  expect([answer.status, codeOf(answer.body)]).toEqual([502, "request_breaks_engines"]);
  expect(executed).toEqual([1, 1, 0, 0, 0, 0, 0, 0]);
  poison(false);
  expect((await send(rig.port)).body.toString()).toBe("ok");
});

test.each([1_024, 1])(
  "on kept connections too: one is redialled at the first engine, and that is all (of %i)",
  async (max) => {
    const { urls, executed, poison } = await breakable(3);
    let first = 0;
    const next = (tried: readonly unknown[]) => toEngine(urls, first + tried.length);
    const options = { maxConnectionsPerEngine: max };
    const rig = await createRig({ engines: [], options, exchange: () => ({ next }), time: createVirtualTime() });
    poison(false);
    for (; first < 3; first++) expect((await send(rig.port)).status).toBe(200);
    poison(true);
    first = 0;
    expect(codeOf((await send(rig.port)).body)).toBe("request_breaks_engines");
    expect(executed).toEqual([2, 1, 0]);
  },
);

const toEngine = (urls: readonly string[], at: number) =>
  urls[at] === undefined ? undefined : { key: String(at), url: urls[at], headers: [] };

test.each([
  ["headers", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"],
  ["headers with a length", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"],
])("an engine that ends the connection after its %s was at work: no other one is asked", async (_, head) => {
  const { urls, executed } = await breakable(2, (socket) => socket.end(head));
  const rig = await createRig({ engines: urls });
  const answer = await send(rig.port);
  expect([answer.status, codeOf(answer.body)]).toEqual([502, "upstream_reset"]);
  expect(executed).toEqual([1, 0]);
});

test("a resend is charged to the budget: with none left, none is made, and engines that cannot be reached cost nothing", async () => {
  const { urls, executed } = await breakable(1);
  const options = { retry: { budgetMinimum: 1, budgetRatio: 0 } };
  const rig = await createRig({
    engines: [await deadUrl(), ...urls, await deadUrl(), (await namedEngine("d")).url],
    options,
  });
  expect((await send(rig.port)).status).toBe(200);
  const second = await send(rig.port);
  expect([second.status, codeOf(second.body)]).toEqual([502, "upstream_reset"]);
  expect(executed).toEqual([2]);
});

test.each([
  [
    "a head with a length",
    "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n",
    (socket: Socket) => socket.resetAndDestroy(),
  ],
  ["a stream's head", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", (socket: Socket) => socket.end()],
] as const)("a kept connection that ends after %s had not gone stale, however soon it ends", async (_, head, end) => {
  const { urls, executed, poison } = await breakable(2, (socket) => {
    socket.write(head);
    end(socket);
  });
  const rig = await createRig({ engines: urls, time: createVirtualTime() });
  poison(false);
  await send(rig.port);
  poison(true);
  expect(codeOf((await send(rig.port)).body)).toBe("upstream_reset");
  expect(executed).toEqual([1, 0]);
});

test("a kept connection that ends 50 ms after it got the request had not gone stale: the engine has failed", async () => {
  const time = createVirtualTime();
  const sockets: Socket[] = [];
  const { urls, executed, poison } = await breakable(1, (socket) => sockets.push(socket));
  const rig = await createRig({ engines: [...urls, (await namedEngine("b")).url], time });
  poison(false);
  await send(rig.port);
  poison(true);
  const answer = send(rig.port);
  await waitFor(() => sockets.length === 1, { what: "the request at the engine" });
  time.advance(50);
  sockets[0]!.resetAndDestroy();
  expect((await answer).body.toString()).toBe('{"engine":"b"}');
  expect([executed, rig.events.at(4)]).toEqual([[1], "fail a reset"]);
});

test("a connection that the engine closed after its answer is a new one when it is dialed again: its reset is no stale one's", async () => {
  const closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
  let executed = 0;
  const engine = await rawEngine((socket, index) => {
    if (index === 0) socket.end(closing);
    else {
      executed += 1;
      socket.resetAndDestroy();
    }
  });
  const rig = await createRig({ engines: [engine.url] });
  expect((await send(rig.port)).body.toString()).toBe("ok");
  expect(codeOf((await send(rig.port)).body)).toBe("upstream_reset");
  expect([executed, engine.sockets.length]).toEqual([1, 2]);
});

test("what was sent beside a request counts with it", async () => {
  const { urls, executed } = await breakable(3);
  const { retries } = await createRig({ engines: [] }).then(({ createRetries }) => ({ retries: createRetries() }));
  const rig = await createRig({ engines: urls.slice(1), exchange: () => ({ retries }) });
  const beside = { method: "POST", path: "/", headers: [], body: [] };
  const upstream = { url: urls[0]!, headers: [] };
  await rig.proxy.sendSide({ ...beside, keptBytes: 0, resends: retries, upstream }).outcome;
  expect(codeOf((await send(rig.port)).body)).toBe("request_breaks_engines");
  expect(executed).toEqual([1, 1, 0]);
});

test("what is sent again takes a connection of its own, so that it is not lost to one that has gone stale", async () => {
  const [first, second] = [await breakable(1), await breakable(1)];
  const rig = await createRig({ engines: [...first.urls, ...second.urls] });
  first.poison(true);
  second.poison(false);
  expect((await send(rig.port)).body.toString()).toBe("ok");
  expect((await send(rig.port)).body.toString()).toBe("ok");
  expect(second.engines[0]!.sockets).toHaveLength(2);
});

test.each([
  ["in one piece", [200_000]],
  ["in pieces", [70_000, 3, 140_000]],
  ["of the size up to which pieces are joined", [131_071, 1]],
] as const)("a large body %s is sent whole again, with its length", async (_, sizes) => {
  const body = sizes.map((size, at) => Buffer.alloc(size, 97 + at));
  const broken = await rawEngine((socket) => socket.resetAndDestroy());
  const engine = await httpEngine(({ response }) => response.write("begun"));
  const rig = await createRig({ engines: [broken.url, engine.url], exchange: () => ({ body }) });
  const client = rawClient(rig.port, postHead);
  await client.received("begun");
  const [seen] = engine.requests;
  expect(seen!.body.equals(Buffer.concat(body))).toBe(true);
  expect(seen!.headers["content-length"]).toBe(String(seen!.body.length));
  expect(rig.events).toContain("fail a reset");
});

test("when one kept connection had gone stale, the others to that engine are closed with it", async () => {
  const held: Socket[] = [];
  const answer = (socket: Socket): boolean => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
  const engine = await rawEngine((socket, index) => {
    if (index < 2) held.push(socket);
    else if (index === 2) socket.resetAndDestroy();
    else answer(socket);
  });
  const rig = await createRig({ engines: [engine.url], time: createVirtualTime() });
  const both = [send(rig.port), send(rig.port)];
  await waitFor(() => held.length === 2, { what: "two requests at the engine" });
  for (const socket of held) answer(socket);
  await Promise.all(both);
  expect((await send(rig.port)).body.toString()).toBe("ok");
  await waitFor(() => engine.openSockets() === 1, { what: "the end of the other kept connection" });
  expect(engine.sockets).toHaveLength(3);
});
