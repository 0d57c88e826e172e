import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Socket } from "node:net";
import { silentLogger, systemAfterPoll, systemClock, systemScheduler } from "@espalier/core";
import { createVirtualTime, type VirtualTime, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { createDrain } from "../src/lifecycle/drain.ts";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

async function listen() {
  const open: ServerResponse[] = [];
  const server = createServer((_, response) => {
    open.push(response);
    response.once("close", () => open.splice(open.indexOf(response), 1));
    response.writeHead(200).write("begun");
  }).listen(0, "127.0.0.1");
  servers.push(server);
  await new Promise((resolve) => server.once("listening", resolve));
  return { server, open, port: (server.address() as AddressInfo).port };
}

async function connect(port: number, request: string): Promise<{ socket: Socket; text: () => string }> {
  const socket = new Socket();
  let text = "";
  socket.on("data", (chunk) => {
    text += chunk;
  });
  socket.on("error", () => {});
  socket.connect(port, "127.0.0.1");
  await new Promise((resolve) => socket.once("connect", resolve));
  socket.write(request);
  return { socket, text: () => text };
}

const get = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/** In small steps, between which sockets are asked about. */
async function settle(time: VirtualTime, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 10) {
    await time.advanceAsync(10);
    await systemAfterPoll();
  }
}

test("it accepts through the delay, lets answers end, then closes everything", async () => {
  const { server, open, port } = await listen();
  const time = createVirtualTime();
  const drain = createDrain({ ...time, logger: silentLogger, servers: () => [server], activeCount: () => open.length });
  const first = await connect(port, get);
  await waitFor(() => open.length === 1, { what: "first answer" });

  const done = drain.run({ delayMs: 5_000, graceMs: 180_000 });
  expect(drain.started).toBe(true);
  await time.advanceAsync(4_000);
  expect(server.listening).toBe(true);
  const second = await connect(port, get);
  await waitFor(() => open.length === 2, { what: "answer during the delay" });

  await time.advanceAsync(1_100);
  expect(server.listening).toBe(false);
  for (const response of [...open]) response.end("finished");
  await waitFor(() => open.length === 0, { what: "ended answers" });
  await settle(time, 600);
  expect(await done).toBe(0);
  await waitFor(() => first.socket.closed && second.socket.closed, { what: "closed sockets" });
  for (const client of [first, second]) expect(client.text()).toMatch(/begun[\s\S]*finished[\s\S]*0\r\n\r\n$/);
});

test("an idle keep-alive connection does not hold the drain back", async () => {
  const { server, open, port } = await listen();
  const drain = createDrain({
    clock: systemClock,
    scheduler: systemScheduler,
    logger: silentLogger,
    servers: () => [server],
    activeCount: () => open.length,
  });
  const idle = await connect(port, get);
  await waitFor(() => open.length === 1, { what: "answer" });
  open[0]?.end();
  await waitFor(() => open.length === 0, { what: "idle connection" });
  expect(await drain.run({ delayMs: 0, graceMs: 60_000 })).toBe(0);
  await waitFor(() => idle.socket.closed, { what: "swept connection" });
});

test("answers that outlast the grace are cut and counted", async () => {
  const { server, open, port } = await listen();
  const time = createVirtualTime();
  const drain = createDrain({ ...time, logger: silentLogger, servers: () => [server], activeCount: () => open.length });
  const client = await connect(port, get);
  await waitFor(() => open.length === 1, { what: "answer" });
  const done = drain.run({ delayMs: 0, graceMs: 1_000 });
  await time.advanceAsync(1_100);
  expect(await done).toBe(1);
  await waitFor(() => client.socket.closed, { what: "cut connection" });
});

test("forcing ends the drain at once, and running it twice is the same drain", async () => {
  const { server, open, port } = await listen();
  const time = createVirtualTime();
  const drain = createDrain({ ...time, logger: silentLogger, servers: () => [server], activeCount: () => open.length });
  await connect(port, get);
  await waitFor(() => open.length === 1, { what: "answer" });
  const done = drain.run({ delayMs: 0, graceMs: 180_000 });
  expect(drain.run({ delayMs: 0, graceMs: 1 })).toBe(done);
  await time.advanceAsync(10);
  drain.force();
  await time.advanceAsync(100);
  expect(await done).toBe(1);
});

test("a request that has come just before idle connections are closed is answered", async () => {
  const { server, open, port } = await listen();
  const time = createVirtualTime();
  const drain = createDrain({ ...time, logger: silentLogger, servers: () => [server], activeCount: () => open.length });
  const [idle, busy] = [await connect(port, get), await connect(port, get)];
  await waitFor(() => open.length === 2, { what: "answers" });
  open[0]?.end();
  await waitFor(() => idle.text().endsWith("0\r\n\r\n"), { what: "the end of the first answer" });

  const done = drain.run({ delayMs: 1_000, graceMs: 60_000 });
  await time.advanceAsync(900);
  // In the kernel before the loop comes round, while timers are due first.
  idle.socket.write(get);
  time.advance(100);
  await waitFor(() => open.length === 2, { what: "the request's answer" });
  for (const response of [...open]) response.end("finished");
  await waitFor(() => open.length === 0, { what: "ended answers" });
  await settle(time, 600);
  expect(await done).toBe(0);
  await waitFor(() => idle.socket.closed && busy.socket.closed, { what: "closed sockets" });
  expect(idle.text()).toMatch(/finished[\s\S]*0\r\n\r\n$/);
});

test("a connection that was made just before the listener closes has half a second for its request", async () => {
  const { server, open, port } = await listen();
  const time = createVirtualTime();
  const drain = createDrain({ ...time, logger: silentLogger, servers: () => [server], activeCount: () => open.length });
  const [late, silent] = [await connect(port, ""), await connect(port, "")];
  const done = drain.run({ delayMs: 0, graceMs: 60_000 });
  await settle(time, 400);
  expect(server.listening).toBe(false);
  late.socket.write(get);
  await waitFor(() => open.length === 1, { what: "the late request's answer" });
  open[0]?.end("finished");
  await waitFor(() => open.length === 0, { what: "the ended answer" });
  expect([late.socket.closed, silent.socket.closed]).toEqual([false, false]);
  await settle(time, 200);
  expect(await done).toBe(0);
  await waitFor(() => late.socket.closed && silent.socket.closed, { what: "closed sockets" });
  expect(late.text()).toMatch(/finished[\s\S]*0\r\n\r\n$/);
});

test("without a connection nothing is waited for", async () => {
  const { server } = await listen();
  const time = createVirtualTime();
  const drain = createDrain({ ...time, logger: silentLogger, servers: () => [server], activeCount: () => 0 });
  expect(await drain.run({ delayMs: 0, graceMs: 60_000 })).toBe(0);
});
