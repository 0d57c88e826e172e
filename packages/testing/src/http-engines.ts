import { once } from "node:events";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { waitFor } from "./test-environment.ts";

/** A request that a test's engine received. */
interface SeenRequest {
  readonly method: string;
  readonly path: string;
  /** Flat pairs as they came. */
  readonly rawHeaders: readonly string[];
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  readonly response: ServerResponse;
}

export interface Engine {
  readonly url: string;
  readonly port: number;
  readonly server: Server;
  /** Sockets opened since the start. */
  readonly sockets: Socket[];
  openSockets(): number;
}

interface HttpEngine extends Engine {
  readonly requests: SeenRequest[];
}

/** Servers on 127.0.0.1 that act as engines. They and their sockets close when the test ends. */
export interface HttpEngines {
  /** @param host 127.0.0.1 by default @param port a free one by default */
  listen(server: Server, host?: string, port?: number): Promise<Engine>;
  /** An engine on node:http. `answer` is called with the complete request. */
  httpEngine(answer: (request: SeenRequest) => void, listenAt?: { host?: string; port?: number }): Promise<HttpEngine>;
  /** An engine that answers with JSON of its own name, in the shape of a completion. */
  namedEngine(name: string): Promise<HttpEngine>;
  /** An engine that writes raw bytes: `answer` is called for each request, with the number of requests before it. */
  rawEngine(answer: (socket: Socket, index: number) => void): Promise<Engine>;
  /** A URL where connections are refused, each time another one. */
  deadUrl(): Promise<string>;
  /** Resolves when the other side has closed the socket. */
  closed(socket: Socket | undefined): Promise<void>;
}

/** Below 1,024: any other port can become that of a server that takes a free one, such as the test's own. */
let lastDeadPort = 0;

/** @param atEnd registers a cleanup, such as vitest's `onTestFinished` */
export function createHttpEngines(atEnd: (close: () => void) => void): HttpEngines {
  const listen: HttpEngines["listen"] = async (server, host = "127.0.0.1", port = 0) => {
    const sockets: Socket[] = [];
    server.on("connection", (socket) => {
      socket.on("error", () => {});
      sockets.push(socket);
    });
    server.listen(port, host);
    await once(server, "listening");
    atEnd(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    const address = server.address() as AddressInfo;
    const name = address.family === "IPv6" ? `[${address.address}]` : address.address;
    const openSockets = (): number => sockets.filter((socket) => !socket.destroyed).length;
    return { url: `http://${name}:${address.port}`, port: address.port, server, sockets, openSockets };
  };
  const httpEngine: HttpEngines["httpEngine"] = async (answer, listenAt = {}) => {
    const requests: SeenRequest[] = [];
    const server = createHttpServer(async (message: IncomingMessage, response) => {
      response.on("error", () => {});
      const chunks: Buffer[] = [];
      try {
        for await (const chunk of message) chunks.push(chunk as Buffer);
      } catch {
        return;
      }
      const { method = "", url: path = "", rawHeaders, headers } = message;
      const seen = { method, path, rawHeaders, headers, body: Buffer.concat(chunks), response };
      requests.push(seen);
      answer(seen);
    });
    return { ...(await listen(server, listenAt.host, listenAt.port)), requests };
  };
  return {
    listen,
    httpEngine,
    namedEngine: (name) =>
      httpEngine(({ response }) => {
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ engine: name }));
      }),
    rawEngine(answer) {
      let count = 0;
      const server = createTcpServer((socket) => {
        let unread = "";
        socket.on("data", (chunk: Buffer) => {
          unread += chunk.toString("latin1");
          const length = /content-length: (\d+)/i.exec(unread)?.[1] ?? "0";
          const end = unread.indexOf("\r\n\r\n");
          if (end < 0 || unread.length < end + 4 + Number(length)) return;
          unread = "";
          answer(socket, count++);
        });
      });
      return listen(server);
    },
    async deadUrl() {
      do lastDeadPort = (lastDeadPort % 1_023) + 1;
      while (!(await isRefused(lastDeadPort)));
      return `http://127.0.0.1:${lastDeadPort}`;
    },
    closed: async (socket) => {
      await waitFor(() => socket?.destroyed === true, { what: "close of the socket" });
    },
  };
}

function isRefused(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(port, "127.0.0.1", () => resolve(false));
  socket.on("error", () => resolve(true));
  return promise.finally(() => socket.destroy());
}
