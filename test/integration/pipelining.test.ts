import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, post, type RawConnection, rawConnection, rawPost } from "./client.ts";
import { httpEngine, type SeenRequest } from "./engines.ts";
import { createRig } from "./rig.ts";

/*
 * One client that pipelined requests and left disabled a router until it was restarted: of eight such requests seven
 * counted as in flight for ever and went on at their engines. Node gives a connection to one response at a time and
 * tells only that one of its end; those behind it in the pipe never heard `close`, on which everything hung.
 */
const rig = createRig();
afterEach(() => rig.close());

/** Long enough to cost more than its answer, so that the next one waits where one prompt at a time is computed. */
const messages = [{ role: "user", content: "x".repeat(2_000) }];
const request = rawPost("/v1/chat/completions", JSON.stringify(chat({ messages, stream: true })));

const answer = ({ response }: SeenRequest): void => void response.end('data: {"choices":[]}\n\n');

test("a client that leaves takes every request with it that it has pipelined, and its places are free", async () => {
  const held: SeenRequest[] = [];
  let isOpen = false;
  const engine = await httpEngine(rig, (seen) => (isOpen ? answer(seen) : held.push(seen)));
  const config = { limits: { "max-concurrent-requests": 8, "max-body-bytes-in-flight": "32KiB" } };
  const router = await rig.router({ engines: [engine.url], config });
  const url = `${router.url}/v1/chat/completions`;
  const connection = await rawConnection(router.port);
  connection.write(request.repeat(8));
  await waitFor(() => held.length === 8, { what: "eight requests at the engine" });
  expect((await post(url, chat())).status).toBe(429);

  connection.socket.destroy();

  await router.untilIdle();
  await waitFor(() => held.every(({ socket }) => socket.destroyed), { what: "no request at the engine" });
  expect((await router.metrics()).sum("espalier_requests_in_flight")).toBe(0);
  isOpen = true;
  const next = await Promise.all(Array.from({ length: 8 }, () => post(url, chat({ stream: true }))));
  expect(next.map(({ status }) => status)).toEqual(Array(8).fill(200));
});

test("those that wait for their turn in the router leave it, too", async () => {
  const held: SeenRequest[] = [];
  const engine = await httpEngine(rig, (seen) => held.push(seen));
  const config = { admission: { classes: [{ name: "default", "max-pending-tokens": 1 }] } };
  const router = await rig.router({ engines: [engine.url], config });
  const connection = await rawConnection(router.port);
  connection.write(request.repeat(4));
  const waiting = async () => (await router.metrics()).sum("espalier_admission_queued_requests");
  await waitFor(async () => held.length === 1 && (await waiting()) === 3, { what: "three that wait" });

  connection.socket.destroy();

  await router.untilIdle();
  expect([await waiting(), held.length]).toEqual([0, 1]);
});

test("a drain does not wait for pipelined requests whose client has left", async () => {
  const held: SeenRequest[] = [];
  const engine = await httpEngine(rig, (seen) => held.push(seen));
  const router = await rig.router({ engines: [engine.url] });
  const connection = await rawConnection(router.port);
  connection.write(request.repeat(3));
  await waitFor(() => held.length === 3, { what: "three requests at the engine" });
  connection.socket.destroy();
  // Of a grace that no test waits for.
  expect(await router.router.drain.run({ delayMs: 0, graceMs: 3_600_000 })).toBe(0);
});

test("an operator's connection that pipelined streams of decisions and left makes room for who comes next", async () => {
  const router = await rig.router();
  const watch = "GET /admin/decisions HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
  const connection = await rawConnection(Number(new URL(router.adminUrl).port));
  connection.write(watch.repeat(65));
  await connection.until(/200 OK/);
  connection.socket.destroy();
  const watchers: RawConnection[] = [];
  await waitFor(
    async () => {
      const watcher = await rawConnection(Number(new URL(router.adminUrl).port));
      watcher.write(watch);
      if (/^HTTP\/1.1 200/.test(await watcher.until(/HTTP\/1.1 \d{3}/))) watchers.push(watcher);
      return watchers.length === 64;
    },
    { what: "64 who watch" },
  );
  for (const { socket } of watchers) socket.destroy();
});
