import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from "node:net";
import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds, waitFor } from "@espalier/testing";
import { Client, credentials } from "@grpc/grpc-js";
import { afterEach, describe, expect, test } from "vitest";
import {
  createGrpcServer,
  type GrpcCall,
  type GrpcServer,
  grpcStatus,
  maxCallsPerConnection,
} from "../../src/grpc/grpc-server.ts";

const stops: (() => unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

interface Seen {
  /** Messages of all calls. */
  readonly messages: Buffer[];
  readonly closed: boolean[];
  readonly calls: GrpcCall[];
}

/** A server whose one method sends every message back, and ends with its client. */
async function echo(maxMessageBytes = 1_000_000): Promise<{ server: GrpcServer; seen: Seen }> {
  const seen: Seen = { messages: [], closed: [], calls: [] };
  const server = createGrpcServer({
    setting: "scale.port",
    ...{ host: "127.0.0.1", port: 0, tls: undefined, maxMessageBytes },
    methods: {
      "/test/Echo": (call) => {
        seen.calls.push(call);
        return {
          message(bytes) {
            seen.messages.push(Buffer.from(bytes));
            call.send(bytes);
          },
          drained() {},
          closed(isReset) {
            seen.closed.push(isReset);
            call.end();
          },
        };
      },
    },
  });
  await server.start();
  stops.push(() => server.stop());
  return { server, seen };
}

function session(address: string): ClientHttp2Session {
  const client = connect(`http://${address}`);
  client.on("error", () => {});
  stops.push(() => client.destroy());
  return client;
}

function open(client: ClientHttp2Session, path = "/test/Echo"): ClientHttp2Stream {
  const headers = { ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers" };
  const stream = client.request(headers, { endStream: false });
  stream.on("error", () => {});
  return stream;
}

/** `once` would take the error of a reset for its own. */
function closed(one: ClientHttp2Stream | ClientHttp2Session): Promise<void> {
  return new Promise((resolve) => void one.once("close", () => resolve()));
}

/** As Envoy does: without ending its side first, as `close` would. */
function reset(stream: ClientHttp2Stream): void {
  stream.destroy(new Error("reset"));
}

function frame(message: Buffer, flag = 0): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

async function statusOf(stream: ClientHttp2Stream): Promise<Readonly<Record<string, unknown>>> {
  stream.resume();
  const [trailers] = (await once(stream, "trailers")) as [Readonly<Record<string, unknown>>];
  return trailers;
}

/*
 * Envoy resets every ext_proc stream that it is done with. After 1,000 of them on one connection, Node's HTTP/2 ended the
 * connection with GOAWAY, and requests on it failed with 500.
 */
test("thousands of streams that their client resets leave a connection as it was", async () => {
  const { server, seen } = await echo();
  const client = session(server.address);
  let goaways = 0;
  client.on("goaway", () => {
    goaways += 1;
  });
  const count = 3_000;
  for (let at = 0; at < count; at += 50) {
    await Promise.all(
      Array.from({ length: 50 }, async () => {
        const stream = open(client);
        stream.write(frame(Buffer.from("a")));
        await once(stream, "data");
        reset(stream);
        await closed(stream);
      }),
    );
  }
  await waitFor(() => seen.closed.length === count, { what: "the end of every call" });
  expect([client.destroyed, goaways, seen.closed.every((isReset) => isReset)]).toEqual([false, 0, true]);
  const last = open(client);
  last.end(frame(Buffer.from("b")));
  expect(await statusOf(last)).toMatchObject({ "grpc-status": "0" });
  expect(seen.closed.at(-1)).toBe(false);
});

test("a call that ends by itself before its client resets it, and a reset of a stream that nobody knows, harm nothing", async () => {
  const { server, seen } = await echo();
  const client = session(server.address);
  for (let at = 0; at < 20; at++) {
    const stream = open(client);
    stream.write(frame(Buffer.from("a")));
    await once(stream, "data");
    seen.calls.at(-1)!.end();
    stream.close(constants.NGHTTP2_CANCEL);
    await closed(stream);
  }
  const ended = open(client);
  ended.end(frame(Buffer.from("a")));
  ended.close(constants.NGHTTP2_CANCEL);
  await waitFor(() => seen.closed.length === 21, { what: "21 ends" });
  expect(await statusOf(open(client).end(frame(Buffer.from("b"))))).toMatchObject({ "grpc-status": "0" });
});

test.each(fixedSeeds(30))("bytes that arrive in any pieces are the same calls: seed %i", async (seed) => {
  const random = createSeededRandom(seed);
  const { server, seen } = await echo();
  const client = session(await relay(server.address, random));
  const sent: string[] = [];
  const done = Array.from({ length: 8 }, async (_, call) => {
    const stream = open(client);
    const got: Buffer[] = [];
    stream.on("data", (chunk: Buffer) => got.push(chunk));
    const messages = Array.from({ length: 1 + random.integer(4) }, (_, at) =>
      Buffer.alloc(random.integer(random.integer(4) === 0 ? 60_000 : 40), `${call}${at}`),
    );
    sent.push(...messages.map(String));
    for (const message of messages) stream.write(frame(message));
    const expected = Buffer.concat(messages.map((message) => frame(message)));
    await waitFor(() => Buffer.concat(got).length >= expected.length, { what: "the echo" });
    expect(Buffer.concat(got).equals(expected)).toBe(true);
    if (call % 2 === 0) reset(stream);
    else stream.end();
  });
  await Promise.all(done);
  await waitFor(() => seen.closed.length === 8, { what: "all ends" });
  expect(seen.messages.map(String).sort()).toEqual(sent.sort());
  expect(seen.closed.filter((isReset) => isReset)).toHaveLength(4);
});

/** Sends bytes on in pieces of any length. */
async function relay(address: string, random: Random): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const port = Number(address.split(":")[1]);
    const upstream = connectTcp({ host: "127.0.0.1", port, noDelay: true });
    for (const one of [socket, upstream]) {
      sockets.add(one);
      one.on("error", () => {});
    }
    upstream.pipe(socket);
    socket.on("data", (chunk: Buffer) => {
      for (let from = 0; from < chunk.length; ) {
        const length = 1 + random.integer(random.integer(2) === 0 ? 12 : 4_000);
        upstream.write(chunk.subarray(from, from + length));
        from += length;
      }
    });
    socket.on("close", () => upstream.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  stops.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("messages", () => {
  test("of the greatest length are read, of one byte more are refused, and other calls go on", async () => {
    const { server, seen } = await echo(1_000);
    const client = session(server.address);
    const exact = open(client);
    exact.end(frame(Buffer.alloc(1_000)));
    expect(await statusOf(exact)).toMatchObject({ "grpc-status": "0" });
    const long = open(client);
    long.write(frame(Buffer.alloc(1_001)));
    expect(await statusOf(long)).toMatchObject({ "grpc-status": String(grpcStatus.resourceExhausted) });
    const next = open(client);
    next.end(frame(Buffer.from("next")));
    expect(await statusOf(next)).toMatchObject({ "grpc-status": "0" });
    expect(seen.messages.map(({ length }) => length)).toEqual([1_000, 4]);
  });

  test("that are compressed are refused", async () => {
    const { server } = await echo();
    const stream = open(session(server.address));
    stream.write(frame(Buffer.from("x"), 1));
    expect(await statusOf(stream)).toMatchObject({ "grpc-status": String(grpcStatus.unimplemented) });
  });

  test("of an unknown method are refused", async () => {
    const { server } = await echo();
    const stream = open(session(server.address), "/test/Other");
    const [headers] = (await once(stream, "response")) as [Readonly<Record<string, unknown>>];
    expect(headers).toMatchObject({ "grpc-status": String(grpcStatus.unimplemented) });
  });
});

test("one call more than a connection may have waits for another connection, and life goes on", async () => {
  const { server, seen } = await echo();
  const client = session(server.address);
  await once(client, "remoteSettings");
  expect(client.remoteSettings.maxConcurrentStreams).toBe(maxCallsPerConnection);
  const streams = Array.from({ length: maxCallsPerConnection }, () => open(client));
  await waitFor(() => seen.calls.length === maxCallsPerConnection, { what: "all calls" });
  const refused = open(client);
  streams[0]!.end();
  await statusOf(streams[0]!);
  refused.end(frame(Buffer.from("x")));
  expect(await statusOf(refused)).toMatchObject({ "grpc-status": "0" });
});

test("one connection more than there may be is closed, and the next one after an end is served", async () => {
  const server = createGrpcServer({
    setting: "scale.port",
    ...{ host: "127.0.0.1", port: 0, tls: undefined, maxMessageBytes: 1_000, maxConnections: 1 },
    methods: {
      "/test/Echo": (call) => ({ message: (bytes) => void call.send(bytes), drained() {}, closed: () => call.end() }),
    },
  });
  await server.start();
  stops.push(() => server.stop());
  const first = session(server.address);
  await once(first, "remoteSettings");
  await closed(session(server.address));
  first.close();
  await closed(first);
  await waitFor(
    async () => {
      const next = session(server.address);
      const stream = open(next);
      stream.end(frame(Buffer.from("a")));
      const isServed = await Promise.race([closed(next).then(() => false), statusOf(stream).then(() => true)]);
      if (!isServed) next.destroy();
      return isServed;
    },
    { what: "a served connection" },
  );
});

test("a drain refuses new connections and lets open calls end; a stop ends them", async () => {
  const { server, seen } = await echo();
  const client = session(server.address);
  const stream = open(client);
  stream.write(frame(Buffer.from("a")));
  await once(stream, "data");
  server.drain();
  const late = session(server.address);
  await closed(late);
  stream.write(frame(Buffer.from("b")));
  await waitFor(() => seen.messages.length === 2, { what: "the second message" });
  stream.end();
  expect(await statusOf(stream)).toMatchObject({ "grpc-status": "0" });

  const other = await echo();
  const cut = open(session(other.server.address));
  cut.write(frame(Buffer.from("a")));
  await once(cut, "data");
  await other.server.stop();
  await waitFor(() => other.seen.closed.length === 1, { what: "the end of the call" });
  expect(other.seen.closed).toEqual([true]);
});

describe("gRPC's own client", () => {
  const pass = { serialize: (bytes: Buffer) => bytes, deserialize: (bytes: Buffer) => bytes };

  async function call(handle: (bytes: Buffer, call: GrpcCall) => void) {
    const server = createGrpcServer({
      setting: "scale.port",
      ...{ host: "127.0.0.1", port: 0, tls: undefined, maxMessageBytes: 1_000_000 },
      methods: {
        "/test/Call": (call) => ({
          message: (bytes) => handle(bytes, call),
          drained() {},
          closed: () => call.end(),
        }),
      },
    });
    await server.start();
    stops.push(() => server.stop());
    const client = new Client(server.address, credentials.createInsecure());
    stops.push(() => client.close());
    return client.makeBidiStreamRequest("/test/Call", pass.serialize, pass.deserialize);
  }

  test("gets every message, and the end", async () => {
    const stream = await call((bytes, { send }) => void send(bytes));
    const got: string[] = [];
    stream.on("data", (bytes: Buffer) => got.push(bytes.toString()));
    const ended = new Promise<void>((resolve) => void stream.on("end", () => resolve()));
    for (const text of ["a", "b".repeat(100_000), ""]) stream.write(Buffer.from(text));
    stream.end();
    await ended;
    expect(got).toEqual(["a", "b".repeat(100_000), ""]);
  });

  test("gets an error's text, in any characters", async () => {
    const stream = await call((_, { end }) => end(grpcStatus.aborted, "nicht möglich: 100 %"));
    const failed = new Promise<Error>((resolve) => void stream.on("error", resolve));
    stream.on("data", () => {});
    stream.write(Buffer.from("a"));
    expect(await failed).toMatchObject({ code: grpcStatus.aborted, details: "nicht möglich: 100 %" });
  });
});

test("a port that is taken is said", async () => {
  const { server } = await echo();
  const port = Number(server.address.split(":")[1]);
  const second = createGrpcServer({
    setting: "scale.port",
    ...{ host: "127.0.0.1", port, tls: undefined, maxMessageBytes: 1 },
    methods: {},
  });
  await expect(second.start()).rejects.toMatchObject({ code: "listen_failed" });
});
