import { once } from "node:events";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttpsServer, type ServerOptions } from "node:https";
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from "node:net";
import type { Rig } from "./rig.ts";

/** What an engine of a test saw of one request. */
export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly rawHeaders: readonly string[];
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  readonly response: ServerResponse;
  readonly socket: Socket;
}

export interface HttpEngine {
  readonly url: string;
  readonly id: string;
  /** Requests of users; those of the router's own are answered and not kept. */
  readonly requests: SeenRequest[];
  /** Requests of the router's own. */
  readonly control: SeenRequest[];
  /** Closes its port, with every connection, for as long as `meanwhile` takes. */
  restart(meanwhile: () => Promise<void>): Promise<void>;
}

export interface HttpEngineOptions {
  readonly models?: readonly string[];
  /** Given, it serves https. */
  readonly tls?: ServerOptions;
  /** Its metrics page; empty by default. */
  readonly metrics?: () => string;
  /** Entries of its list of models, in place of `models`; undefined while it has none to give. */
  readonly listed?: ListedModels | (() => ListedModels | undefined);
}

type ListedModels = readonly Readonly<Record<string, unknown>>[];

/** An engine on node:http. `answer` is called when a user's request has arrived whole. */
export async function httpEngine(
  rig: Rig,
  answer: (request: SeenRequest) => void,
  { models = ["tiny"], tls, metrics, listed }: HttpEngineOptions = {},
): Promise<HttpEngine> {
  const requests: SeenRequest[] = [];
  const control: SeenRequest[] = [];
  const onRequest = async (message: IncomingMessage, response: ServerResponse): Promise<void> => {
    response.on("error", () => {});
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of message) chunks.push(chunk as Buffer);
    } catch {
      return;
    }
    const { method = "", url: path = "", rawHeaders, headers, socket } = message;
    const seen = { method, path, rawHeaders, headers, body: Buffer.concat(chunks), response, socket };
    const known =
      (path === "/metrics" ? metrics?.() : undefined) ??
      (path === "/v1/models" && listed
        ? JSON.stringify({ data: typeof listed === "function" ? listed() : listed })
        : undefined) ??
      controlAnswer(method, path, models);
    if (known === undefined) {
      requests.push(seen);
      answer(seen);
    } else {
      control.push(seen);
      response.writeHead(200, { "content-type": "application/json" }).end(known);
    }
  };
  const server = tls ? createHttpsServer(tls, onRequest) : createHttpServer(onRequest);
  const host = await listen(rig, server);
  return {
    url: `${tls ? "https" : "http"}://${host}`,
    id: host,
    requests,
    control,
    async restart(meanwhile) {
      server.close();
      server.closeAllConnections();
      await meanwhile();
      server.listen(Number(host.split(":")[1]), "127.0.0.1");
      await once(server, "listening");
    },
  };
}

/** An engine that speaks bytes: `answer` is called on each user's request, with the number of requests before it. */
export async function rawEngine(rig: Rig, answer: (socket: Socket, index: number) => void) {
  let count = 0;
  const server = createTcpServer((socket) => {
    let unread = "";
    socket.on("data", (chunk: Buffer) => {
      unread += chunk.toString("latin1");
      const length = /content-length: (\d+)/i.exec(unread)?.[1] ?? "0";
      const end = unread.indexOf("\r\n\r\n");
      if (end < 0 || unread.length < end + 4 + Number(length)) return;
      const [method = "", path = ""] = unread.split(" ", 2);
      unread = "";
      const known = controlAnswer(method, path, ["tiny"]);
      if (known === undefined) answer(socket, count++);
      else socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${Buffer.byteLength(known)}\r\n\r\n${known}`);
    });
  });
  const host = await listen(rig, server);
  return { url: `http://${host}`, id: host, count: () => count };
}

/** An engine that answers everything with JSON. */
export function jsonEngine(rig: Rig, body: string, options: HttpEngineOptions = {}): Promise<HttpEngine> {
  return httpEngine(
    rig,
    ({ response }) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
      response.end(body);
    },
    options,
  );
}

function controlAnswer(method: string, path: string, models: readonly string[]): string | undefined {
  if (method !== "GET") return undefined;
  if (path === "/health" || path.endsWith("/metrics")) return "";
  if (path === "/kv_event_sources" || path === "/server_info") return "{}";
  if (path === "/v1/models") return JSON.stringify({ data: models.map((id) => ({ id, owned_by: "test" })) });
  return undefined;
}

async function listen(rig: Rig, server: Server): Promise<string> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    socket.on("error", () => {});
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  rig.own(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}
