import type { Socket } from "node:net";
import { gzipSync } from "node:zlib";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { closed, httpEngine, rawEngine } from "./engines.ts";
import { createRig, postHead, rawClient, send } from "./rig.ts";

const sse = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

/** An engine that begins a response and hands its socket over. */
async function beginner(head: string) {
  const state: { socket: Socket | undefined } = { socket: undefined };
  const engine = await rawEngine((socket) => {
    state.socket = socket;
    socket.write(head);
  });
  return { engine, state };
}

test.each([
  ["after whole events", ["data: 1\n\n"], ""],
  ["inside a line", ["data: 1\n\ndata: {"], "\n\n"],
  ["after a line", ["data: 1\n\ndata: 2\n"], "\n"],
  ["after whole events with CRLF", ["data: 1\r\n\r\n"], ""],
  ["after a line with CRLF", ["data: 1\r\n"], "\n"],
  ["between CR and LF", ["data: 1\r\n\r\ndata: 2\r"], "\n\n"],
  ["after whole events with CR", ["data: 1\r\r"], ""],
  ["after whole events in tiny chunks", ["data: 1", "\n", "\n"], ""],
  ["after whole events with CRLF in tiny chunks", ["data: 1", "\r", "\n", "\r", "\n"], ""],
  ["inside an event in tiny chunks", ["data: 1\n\n", "d", "a"], "\n\n"],
])("a stream cut %s gets one error frame, no [DONE], and a clean end", async (_, texts, completion) => {
  const { engine, state } = await beginner(sse);
  const rig = await createRig({ engines: [engine.url] });
  const answer = send(rig.port);
  await waitFor(() => state.socket, { what: "the request" });
  const text = texts.join("");
  for (const part of texts) {
    state.socket!.write(chunk(part));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await waitFor(() => rig.events.includes("byte a"), { what: "the first byte" });
  state.socket!.end();
  const { body, complete } = await answer;
  const received = body.toString();
  expect(received.startsWith(text + completion)).toBe(true);
  const frame = received.slice(text.length + completion.length);
  expect(frame).toMatch(/^data: \{"error":.*\}\n\n$/);
  expect(JSON.parse(frame.slice(6))).toMatchObject({ error: { code: "upstream_cut_short", type: "server_error" } });
  expect(complete).toBe(true);
  expect(received).not.toContain("[DONE]");
  expect(rig.failures[0]).toMatchObject({ kind: "reset", beforeFirstByte: false });
});

test("a cut stream of another API gets that API's frame", async () => {
  const { engine, state } = await beginner(sse + chunk("event: ping\ndata: {}\n\n"));
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ family: "anthropic" }) });
  const answer = send(rig.port);
  await waitFor(() => rig.events.includes("byte a"), { what: "the first byte" });
  state.socket!.end();
  expect((await answer).body.toString()).toMatch(/\n\nevent: error\ndata: \{"type":"error",.*\}\n\n$/);
});

test("what a filter held back of a cut stream is dropped, and the frame fits what was written", async () => {
  const { engine, state } = await beginner(sse + chunk("data: 1\n\n") + chunk("data: half"));
  const held: string[] = [];
  const bodyFilter = () => ({
    changesLength: true,
    push: (data: Buffer) => {
      if (data.toString().endsWith("\n\n")) return data;
      held.push(data.toString());
      return undefined;
    },
    end: () => Buffer.from("never"),
  });
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ bodyFilter }) });
  const answer = send(rig.port);
  await waitFor(() => held.length === 1, { what: "the second chunk" });
  state.socket!.end();
  expect((await answer).body.toString()).toMatch(/^data: 1\n\ndata: \{"error":.*\}\n\n$/);
});

test("a compressed stream cannot take a frame, so its connection is broken", async () => {
  const head = sse.replace("\r\n\r\n", "\r\ncontent-encoding: gzip\r\n\r\n");
  const { engine, state } = await beginner(head);
  const rig = await createRig({ engines: [engine.url] });
  const answer = send(rig.port);
  await waitFor(() => state.socket, { what: "the request" });
  const compressed = gzipSync("data: 1\n\n");
  state.socket!.write(`${compressed.length.toString(16)}\r\n`);
  state.socket!.write(compressed);
  state.socket!.write("\r\n");
  await waitFor(() => rig.events.includes("byte a"), { what: "the first byte" });
  state.socket!.end();
  expect((await answer).complete).toBe(false);
});

test.each([
  ["a length", "content-length: 100\r\n\r\npartial"],
  ["chunks", `transfer-encoding: chunked\r\n\r\n${chunk("partial")}`],
  ["a length on a closing connection", "connection: close\r\ncontent-length: 100\r\n\r\npartial"],
  ["chunks on a closing connection", `connection: close\r\ntransfer-encoding: chunked\r\n\r\n${chunk("partial")}`],
])("a body with %s that ends too early reaches the client as a broken body", async (_, rest) => {
  const { engine, state } = await beginner(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${rest}`);
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  await client.received("partial");
  state.socket!.end();
  expect(await rig.outcome()).toMatchObject({ kind: "cut", error: { code: "upstream_cut_short" } });
  await closed(client.socket);
  expect(client.text()).toMatch(/partial(\r\n)?$/);
  expect(rig.failures[0]).toMatchObject({ kind: "reset", beforeFirstByte: false });
});

test("garbage in the middle of a body is a cut through the engine's protocol error", async () => {
  const { engine, state } = await beginner(sse + chunk("data: 1\n\n"));
  const rig = await createRig({ engines: [engine.url] });
  const answer = send(rig.port);
  await waitFor(() => rig.events.includes("byte a"), { what: "the first byte" });
  state.socket!.write("this is no chunk\r\n");
  expect((await answer).body.toString()).toContain('"code":"upstream_protocol_error"');
  expect(rig.failures[0]).toMatchObject({ kind: "protocol", beforeFirstByte: false });
  await closed(engine.sockets[0]);
});

test("nobody else is asked once a byte has gone out", async () => {
  const { engine, state } = await beginner(sse + chunk("data: 1\n\n"));
  const other = await httpEngine(({ response }) => response.end("other"));
  const rig = await createRig({ engines: [engine.url, other.url] });
  const answer = send(rig.port);
  await waitFor(() => rig.events.includes("byte a"), { what: "the first byte" });
  state.socket!.resetAndDestroy();
  await answer;
  expect(other.requests).toEqual([]);
  expect(rig.events).toEqual(["start a 0", "answer a 200", "byte a", "fail a reset"]);
});

test("a stream that falls silent is cut after the idle timeout, counted from its last byte", async () => {
  const time = createVirtualTime();
  const { engine, state } = await beginner(sse + chunk("data: 1\n\n"));
  const rig = await createRig({ engines: [engine.url], time, options: { idleMs: 5_000 } });
  const client = rawClient(rig.port, postHead);
  await client.received("data: 1");
  for (const text of ["data: 2\n\n", "data: 3\n\n"]) {
    time.advance(4_500);
    state.socket!.write(chunk(text));
    await client.received(text);
  }
  time.advance(4_900);
  expect(rig.outcomes).toEqual([]);
  time.advance(300);
  expect(await rig.outcome()).toMatchObject({ kind: "cut", error: { code: "upstream_timeout" } });
  await client.received('"code":"upstream_timeout"');
  await closed(engine.sockets[0]);
  expect(rig.failures[0]).toMatchObject({ kind: "timeout", beforeFirstByte: false });
});

test("the connection is kept behind a stream that was cut, and the same client's next request on it works", async () => {
  const { engine, state } = await beginner(sse + chunk("data: 1\n\n"));
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  await client.received("data: 1");
  state.socket!.end();
  await client.received("0\r\n\r\n");
  client.socket.write(postHead);
  await client.received("0\r\n\r\nHTTP/1.1 200 ");
});
