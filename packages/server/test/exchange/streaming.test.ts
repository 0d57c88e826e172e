import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { createServer, type Socket } from "node:net";
import { createSeededRandom } from "@espalier/core";
import { type Engine, randomRuns, waitFor } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { BodyFilter } from "../../src/request/response-sink.ts";
import { closed, httpEngine, listen, rawEngine } from "./engines.ts";
import { createRig, postHead, rawClient, send } from "./rig.ts";

const sseHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

test("random bytes in random pieces arrive as they were, in both directions", async () => {
  let pieces: readonly Uint8Array[] = [];
  let withLength = false;
  const engine = await httpEngine(async ({ response }) => {
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    response.writeHead(200, withLength ? { "content-length": length } : {});
    for (const piece of pieces) {
      if (!response.write(piece)) await once(response, "drain");
      if (piece.length % 2 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    response.end();
  });
  const rig = await createRig({ engines: [engine.url] });
  const bytes = fc.uint8Array({ maxLength: 3_000 });
  const property = fc.asyncProperty(
    fc.array(fc.oneof(bytes, bytes, fc.uint8Array({ minLength: 60_000, maxLength: 90_000 })), { maxLength: 12 }),
    bytes,
    fc.boolean(),
    async (randomPieces, upload, length) => {
      pieces = randomPieces;
      withLength = length;
      const answer = await send(rig.port, { body: Buffer.from(upload) });
      expect(answer.complete).toBe(true);
      expect(answer.body.equals(Buffer.concat(pieces))).toBe(true);
      expect(engine.requests.at(-1)!.body.equals(upload)).toBe(true);
    },
  );
  await fc.assert(property, { numRuns: randomRuns(40) });
});

test("each chunk of a stream is passed on when it comes, with its own framing", async () => {
  let socket: Socket | undefined;
  const engine = await rawEngine((opened) => {
    socket = opened;
    opened.write(sseHead + chunk("data: 1\n\n"));
  });
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  for (const text of ["data: 1\n\n", "data: 2\n\n", "da", "ta: 3\n\n"]) {
    if (text !== "data: 1\n\n") socket!.write(chunk(text));
    await client.received(chunk(text));
  }
  expect(rig.outcomes).toEqual([]);
  expect(rig.proxy.activeStreams()).toBe(1);
  socket!.write("0\r\n\r\n");
  await client.received("0\r\n\r\n");
  expect(await rig.outcome()).toEqual({ kind: "completed", status: 200, bytes: 27 });
  expect(rig.proxy.activeStreams()).toBe(0);
});

test("the observer hears first byte and answer once, in order", async () => {
  const engine = await httpEngine(async ({ response }) => {
    response.writeHead(200).flushHeaders();
    for (let i = 0; i < 5; i++) {
      response.write("x");
      await new Promise((resolve) => setImmediate(resolve));
    }
    response.end();
  });
  const rig = await createRig({ engines: [engine.url] });
  expect((await send(rig.port)).body.toString()).toBe("xxxxx");
  expect(rig.events).toEqual(["start a 0", "answer a 200", "byte a"]);
});

/** An engine that writes `totalBytes` as fast as it is read, and says how much it has got rid of. */
async function floodEngine(totalBytes: number, headers: Record<string, string | number> = {}) {
  const piece = Buffer.alloc(64 * 1024, "x");
  const state = { accepted: 0, blocked: false };
  const engine = await httpEngine(async ({ response }) => {
    response.writeHead(200, headers);
    while (state.accepted < totalBytes) {
      state.accepted += piece.length;
      if (response.write(piece)) continue;
      state.blocked = true;
      await once(response, "drain");
      state.blocked = false;
    }
    response.end();
  });
  return { engine, state };
}

/** Waits until the engine has made no progress for a while: everything between it and the client is full. */
async function stalled(state: { accepted: number; blocked: boolean }): Promise<number> {
  let last = -1;
  let same = 0;
  await waitFor(
    () => {
      same = state.blocked && state.accepted === last ? same + 1 : 0;
      last = state.accepted;
      return same > 20;
    },
    { what: "stall of the engine" },
  );
  return last;
}

test("an engine is not read while its client does not read, and nothing of 100 MB is lost", async () => {
  const totalBytes = 100 * 1024 * 1024;
  const { engine, state } = await floodEngine(totalBytes);
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  client.socket.pause();
  const accepted = await stalled(state);
  // The kernel's socket buffers on loopback hold a few megabytes; our own share is far less.
  expect(accepted).toBeLessThan(20 * 1024 * 1024);
  expect(rig.responses[0]!.writableLength).toBeLessThan(256 * 1024);
  const rssBefore = process.memoryUsage().rss;
  let received = 0;
  client.socket.removeAllListeners("data");
  client.socket.on("data", (data: Buffer) => {
    received += data.length;
  });
  client.socket.resume();
  expect(await rig.outcome()).toEqual({ kind: "completed", status: 200, bytes: totalBytes });
  await waitFor(() => received > totalBytes, { what: "the whole body" });
  expect(process.memoryUsage().rss - rssBefore).toBeLessThan(100 * 1024 * 1024);
});

test("a client that pauses again and again gets the same bytes", async () => {
  const random = createSeededRandom(7);
  const body = Buffer.from(Array.from({ length: 3_000_000 }, () => random.integer(256)));
  const engine = await httpEngine(({ response }) =>
    response.writeHead(200, { "content-length": body.length }).end(body),
  );
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  const chunks: Buffer[] = [];
  client.socket.removeAllListeners("data");
  client.socket.on("data", (data: Buffer) => {
    chunks.push(data);
    client.socket.pause();
    setImmediate(() => client.socket.resume());
  });
  await rig.outcome();
  const bytes = (): Buffer => Buffer.concat(chunks);
  await waitFor(() => bytes().length > body.length, { what: "the whole body" });
  expect(bytes().subarray(-body.length).equals(body)).toBe(true);
});

/** An engine that does not read the request's body to its end, so that destroying its socket resets it. */
async function carelessEngine(answer: string): Promise<Engine> {
  const server = createServer((socket) => {
    socket.once("data", () => {
      socket.pause();
      socket.write(answer);
    });
  });
  return listen(server);
}

const upload = "z".repeat(4_000_000);
const uploadHead = `POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: ${upload.length}\r\n\r\n${upload}`;

/** Writes bit by bit until the client is so far behind that the proxy stops reading. @returns bytes written */
async function fillUp(engine: Engine, response: ServerResponse): Promise<number> {
  const piece = Buffer.alloc(50_000, "y");
  let written = 0;
  let full = 0;
  while (full < 5 && written < 50_000_000) {
    if (!response.writableNeedDrain) {
      engine.sockets[0]!.write(piece);
      written += piece.length;
      await waitFor(() => response.socket!.bytesWritten >= written, { what: "the piece at the client's socket" });
      full = 0;
    } else {
      full += 1;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  return written;
}

// undici 7.30 asserts that its parser is not paused when a connection that will not be kept alive ends or is reset.
// The assertion was thrown from a socket event and took the process down, with a slow client as the only condition.
test.each(["end", "reset"])("an engine that closes while the client is behind does no harm (%s)", async (how) => {
  const engine = await carelessEngine("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, uploadHead);
  client.socket.pause();
  await waitFor(() => engine.sockets[0]?.isPaused(), { what: "the answer's head" });
  engine.sockets[0]!.write("y");
  await waitFor(() => rig.responses[0]?.headersSent, { what: "the beginning" });
  const size = 1 + (await fillUp(engine, rig.responses[0]!));
  if (how === "end") engine.sockets[0]!.end();
  else engine.sockets[0]!.destroy();
  for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve));
  client.socket.resume();
  const outcome = await rig.outcome();
  if (how === "end") expect(outcome).toEqual({ kind: "completed", status: 200, bytes: size });
  else expect(outcome).toMatchObject({ kind: "cut", error: { code: "upstream_cut_short" } });
});

test("a body without a length that ends with a reset is cut, not taken for complete", async () => {
  const engine = await carelessEngine("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nbeginning");
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, uploadHead);
  await client.received("beginning");
  engine.sockets[0]!.destroy();
  expect(await rig.outcome()).toMatchObject({ kind: "cut" });
  await closed(client.socket);
  expect(client.text()).not.toContain("0\r\n\r\n");
});

test("a filter sees every chunk, may hold back, replace and add, and its status and type", async () => {
  const asked: unknown[] = [];
  const seen: string[] = [];
  const filter: BodyFilter = {
    changesLength: true,
    push: (data) => {
      const text = data.toString();
      seen.push(text);
      if (text === "hold") return undefined;
      if (text === "split") return [Buffer.from("<"), data, Buffer.from(">")];
      return text === "drop" ? Buffer.alloc(0) : data;
    },
    end: () => Buffer.from("tail"),
  };
  let socket: Socket | undefined;
  const engine = await rawEngine((opened) => {
    socket = opened;
    opened.write("HTTP/1.1 201 Created\r\ncontent-type: text/x\r\ncontent-length: 17\r\n\r\npass");
  });
  const rig = await createRig({
    engines: [engine.url],
    exchange: () => ({
      bodyFilter: (status, contentType) => {
        asked.push([status, contentType]);
        return filter;
      },
    }),
  });
  const answer = send(rig.port);
  for (const part of ["hold", "split", "drop"]) {
    const before = seen.length;
    await waitFor(() => seen.length > 0 && seen.length >= before, { what: "the filter" });
    socket!.write(part);
    await waitFor(() => seen.at(-1) === part, { what: part });
  }
  const { body, headers, complete } = await answer;
  expect(body.toString()).toBe("pass<split>tail");
  expect(complete).toBe(true);
  expect(headers).not.toHaveProperty("content-length");
  expect(asked).toEqual([[201, "text/x"]]);
  expect(await rig.outcome()).toEqual({ kind: "completed", status: 201, bytes: 15 });
});

test.each([
  ["HEAD", 200],
  ["GET", 304],
  ["GET", 204],
])("there is no filter for %s %i", async (method, status) => {
  const engine = await httpEngine(({ response }) => response.writeHead(status).end());
  const bodyFilter = (): BodyFilter => ({ changesLength: true, push: (data) => data, end: () => Buffer.from("never") });
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ bodyFilter }) });
  expect((await send(rig.port, { method })).body.toString()).toBe("");
  expect(await rig.outcome()).toMatchObject({ kind: "completed", bytes: 0 });
});

test("without a filter a length passes; an event stream never has one", async () => {
  const types = ["application/json", "text/event-stream; charset=utf-8"];
  const engine = await httpEngine(({ response }) => {
    response.writeHead(200, { "content-type": types.shift(), "content-length": 11 }).end("data: 1\n\n  ");
  });
  const rig = await createRig({ engines: [engine.url] });
  expect((await send(rig.port)).headers).toMatchObject({ "content-length": "11" });
  const stream = await send(rig.port);
  expect(stream.headers).not.toHaveProperty("content-length");
  expect(stream.body.toString()).toBe("data: 1\n\n  ");
});

test.each([
  ["a filter", { bodyFilter: () => ({ changesLength: true, push: () => thrower(), end: () => undefined }) }],
  ["the observer's firstByte", { observer: { firstByte: () => thrower() } }],
])("an error in %s is cut off from everything else", async (_, exchange) => {
  const engine = await httpEngine(({ response }) => response.end("body"));
  const rig = await createRig({ engines: [engine.url], exchange: () => exchange });
  const client = rawClient(rig.port, postHead);
  await closed(client.socket);
  expect(await rig.outcome()).toMatchObject({ kind: "cut", error: { code: "internal_error" } });
});

test.each([
  ["next", { next: () => thrower() }],
  ["the observer's attemptStarted", { observer: { attemptStarted: () => thrower() } }],
  ["the choice of a filter", { bodyFilter: () => thrower() }],
])("an error in %s before the first byte is an internal_error", async (_, exchange) => {
  const engine = await httpEngine(({ response }) => response.end("body"));
  const rig = await createRig({ engines: [engine.url], exchange: () => exchange });
  expect(await send(rig.port)).toMatchObject({ status: 500 });
  expect(rig.proxy.activeStreams()).toBe(0);
});

function thrower(): never {
  throw new Error("a defect of the caller");
}
