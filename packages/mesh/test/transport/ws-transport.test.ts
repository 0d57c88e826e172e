import { request } from "node:http";
import { connect as connectSocket, createServer, type Socket } from "node:net";
import { EspalierError, systemScheduler, type Transport } from "@espalier/core";
import { createAuthority, hasOpenssl, waitFor } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import type { MutualTls, WsTransportOptions } from "../../src/transport/ws-transport.ts";
import { createWsTransport } from "../../src/transport/ws-transport.ts";
import { connect, describeTransport, listen, startListening, suiteFrameBytes } from "./transport-suite.ts";

function makeTransport(options: Partial<WsTransportOptions> = {}): Transport {
  const defaults = { host: "127.0.0.1", port: 0, scheduler: systemScheduler, maxFrameBytes: suiteFrameBytes };
  return createWsTransport({ ...defaults, ...options });
}

/** A port of this machine on which something listens, until the test ends. */
async function listenRaw(onSocket: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    onSocket(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  const address = server.address();
  return `127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
}

/** A port of this machine that nobody has. */
async function deadAddress(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return `127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
}

describeTransport("websockets", () => ({
  make: () => makeTransport(),
  deadAddress,
}));

/** An authority and a certificate that it has signed. */
function makeCertificates(): MutualTls {
  const authority = createAuthority("DNS:router.test");
  const tls = { ca: authority.ca, ...authority.issue() };
  authority.close();
  return tls;
}

const tls = hasOpenssl() ? makeCertificates() : undefined;

if (!tls) {
  process.stderr.write("NOT RUN: mutual TLS of the mesh, because there is no openssl to make certificates with\n");
} else {
  describe("mutual TLS", () => testMutualTls(tls));
  describeTransport("websockets over mutual TLS", () => ({
    make: () => makeTransport({ tls }),
    deadAddress,
  }));
}

/** Dials and tells how it ended. */
async function endOf(from: Transport, address: string): Promise<string> {
  const heard = listen();
  let hasOpened = false;
  from.dial(address, {
    ...heard,
    opened() {
      hasOpened = true;
    },
  });
  const end = await waitFor(() => heard.ends[0] ?? (hasOpened && "opened"), { what: "an end of the dial" });
  return typeof end === "string" ? end : end.kind;
}

describe("the server of websockets", () => {
  test("never compresses, whatever the other end offers", async () => {
    const transport = makeTransport();
    const accepted = await startListening(transport);
    const client = new WebSocket(`ws://${transport.address}/mesh`, { perMessageDeflate: true });
    await new Promise((resolve) => client.once("open", resolve));
    expect(client.extensions).toBe("");
    client.send(new Uint8Array(1_000));
    await waitFor(() => accepted[0]?.[1].frames.length === 1, { what: "the frame" });
    client.terminate();
  });

  test("does not offer compression when it dials", async () => {
    const offers: (string | undefined)[] = [];
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: true });
    server.on("connection", (_, { headers }) => offers.push(headers["sec-websocket-extensions"]));
    onTestFinished(() => server.close());
    await new Promise((resolve) => server.once("listening", resolve));
    const address = server.address();
    const transport = makeTransport();
    await startListening(transport);
    await endOf(transport, `127.0.0.1:${typeof address === "object" ? address?.port : 0}`);
    expect(offers).toEqual([undefined]);
  });

  test("ends a connection that sends text", async () => {
    const transport = makeTransport();
    const accepted = await startListening(transport);
    const client = new WebSocket(`ws://${transport.address}/mesh`);
    await new Promise((resolve) => client.once("open", resolve));
    client.send("hello");
    const [code] = await new Promise<[number]>((resolve) => client.once("close", (closed) => resolve([closed])));
    expect(code).toBe(1003);
    await waitFor(() => accepted[0]?.[1].ends.length === 1, { what: "the end" });
    expect(accepted[0]![1]).toMatchObject({ frames: [], ends: [{ kind: "error", code: 1003 }] });
  });

  test("ends a connection whose bytes are no websocket frames", async () => {
    const transport = makeTransport();
    const accepted = await startListening(transport);
    const client = new WebSocket(`ws://${transport.address}/mesh`);
    const socket = new Promise<Socket>((resolve) => client.once("upgrade", (response) => resolve(response.socket)));
    client.on("error", () => {});
    await new Promise((resolve) => client.once("open", resolve));
    (await socket).write(Buffer.alloc(100, 0xff));
    await waitFor(() => accepted[0]?.[1].ends.length === 1, { what: "the end" });
    expect(accepted[0]![1].ends).toMatchObject([{ kind: "error", code: 1002 }]);
  });

  test("leaves other paths to whoever takes them, and refuses the rest", async () => {
    const others = new WebSocketServer({ noServer: true });
    const transport = makeTransport({
      upgrade(incoming, socket, head) {
        if (incoming.url !== "/other") return false;
        others.handleUpgrade(incoming, socket, head, (webSocket) => webSocket.send("from another"));
        return true;
      },
    });
    await startListening(transport);
    const client = new WebSocket(`ws://${transport.address}/other`);
    const message = await new Promise((resolve) => client.once("message", (data) => resolve(String(data))));
    expect(message).toBe("from another");
    expect(await statusOf(transport.address, "/nowhere")).toBe(404);
    expect(await statusOf(transport.address, "/mesh", { origin: "https://a.page" })).toBe(403);
    expect(await statusOf(transport.address, "/mesh?any=query")).toBe(101);
    const closed = new Promise((resolve) => client.once("close", resolve));
    await transport.stop();
    await closed;
  });

  test("says what it is for to those who do not upgrade", async () => {
    const transport = makeTransport();
    await startListening(transport);
    expect(await statusOf(transport.address, "/mesh", { connection: "close" }, false)).toBe(426);
  });

  test("drops those who do not finish their request", async () => {
    const transport = makeTransport();
    await startListening(transport);
    const [host, port] = transport.address.split(":");
    const socket = connectSocket(Number(port), host);
    socket.on("error", () => {});
    socket.write("GET /mesh HTTP/1.1\r\n");
    let isClosed = false;
    socket.resume().once("close", () => {
      isClosed = true;
    });
    await waitFor(() => isClosed, { what: "the end of a slow request", deadlineMs: 6_000 });
  });

  test("takes only so many sockets", async () => {
    const transport = makeTransport({ maxSockets: 2 });
    const dialer = makeTransport();
    await startListening(transport);
    await startListening(dialer);
    expect(await endOf(dialer, transport.address)).toBe("opened");
    expect(await endOf(dialer, transport.address)).toBe("opened");
    expect(await endOf(dialer, transport.address)).not.toBe("opened");
  });

  test("says so when it cannot listen, and can be stopped all the same", async () => {
    const first = makeTransport();
    await startListening(first);
    const second = makeTransport({ port: Number(first.address.split(":")[1]) });
    const error = await second.start().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(EspalierError);
    expect(error).toMatchObject({ code: "listen_failed" });
    await second.stop();
  });
});

describe("dialing websockets", () => {
  test("times out where nobody answers", async () => {
    const transport = makeTransport({ connectTimeoutMs: 50 });
    await startListening(transport);
    expect(await endOf(transport, await listenRaw(() => {}))).toBe("timeout");
  });

  test.each([
    ["another protocol", (socket: Socket) => socket.end("220 mail.test ESMTP\r\n")],
    ["a reset", (socket: Socket) => socket.resetAndDestroy()],
    ["another page", (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
  ])("fails on %s", async (_, answer) => {
    const transport = makeTransport();
    await startListening(transport);
    expect(await endOf(transport, await listenRaw(answer))).toBe("error");
  });

  test.each(["", "no port at all:x", "a b:1", "127.0.0.1:70000", "127.0.0.1:1/other"])(
    "fails on %j",
    async (address) => {
      const transport = makeTransport();
      await startListening(transport);
      expect(await endOf(transport, address)).toBe("error");
    },
  );

  test("a black hole is left by terminating, at once", async () => {
    const transport = makeTransport();
    const address = await listenRaw((socket) => {
      const server = new WebSocketServer({ noServer: true });
      socket.once("data", (chunk) => {
        const key = /Sec-WebSocket-Key: (.+)\r\n/i.exec(String(chunk))![1]!;
        const headers = { upgrade: "websocket", "sec-websocket-key": key, "sec-websocket-version": "13" };
        const incoming = Object.assign(Object.create(null), { method: "GET", url: "/mesh", headers });
        server.handleUpgrade(incoming, socket, Buffer.alloc(0), () => socket.pause());
      });
    });
    await startListening(transport);
    const heard = listen();
    let terminate = (): void => {};
    transport.dial(address, {
      ...heard,
      opened(connection) {
        terminate = () => connection.terminate();
        connection.close(1000, "");
      },
    });
    await waitFor(() => heard.ends.length > 0, { what: "the end by the close timeout", deadlineMs: 3_000 });
    terminate();
    expect(heard.ends).toMatchObject([{ kind: "reset" }]);
  });
});

function testMutualTls(tls: MutualTls): void {
  const rejects = async (dialer: Partial<WsTransportOptions>, listener: Partial<WsTransportOptions>): Promise<void> => {
    const [from, to] = [makeTransport(dialer), makeTransport(listener)];
    await startListening(from);
    const accepted = await startListening(to);
    expect(await endOf(from, to.address)).toBe("error");
    expect(accepted).toEqual([]);
  };

  test("keeps out those without a certificate, and plain connections", async () => {
    await rejects({}, { tls: tls });
  });

  test("keeps out those whom another authority has signed, on either side", async () => {
    const other = makeCertificates();
    await rejects({ tls: { ...other, ca: tls.ca } }, { tls: tls });
    await rejects({ tls: tls }, { tls: { ...other, ca: tls.ca } });
  });

  test("checks the name when one is given", async () => {
    await rejects({ tls: { ...tls, serverName: "another.test" } }, { tls: tls });
    const { atDialer } = await connect(
      makeTransport({ tls: { ...tls, serverName: "router.test" } }),
      makeTransport({ tls: tls }),
    );
    expect(atDialer.ends).toEqual([]);
  });
}

/** The status of the answer to a request, which asks for a websocket unless told otherwise. */
function statusOf(address: string, path: string, headers = {}, isUpgrade = true): Promise<number> {
  const upgrade = isUpgrade && {
    connection: "upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": Buffer.alloc(16).toString("base64"),
  };
  return new Promise((resolve, reject) => {
    const [host, port] = address.split(":");
    const sent = request({ host, port, path, headers: { ...upgrade, ...headers } });
    sent.once("response", (response) => resolve(response.resume().statusCode!));
    sent.once("upgrade", (response, socket) => {
      socket.destroy();
      resolve(response.statusCode!);
    });
    sent.once("error", reject).end();
  });
}
