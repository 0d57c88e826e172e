import { createServer, type IncomingMessage, type Server } from "node:http";
import { createServer as createTlsServer, Server as TlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { EspalierError } from "@espalier/common";
import { type WebSocket, WebSocketServer } from "ws";
import type { Connection, ConnectionObserver, Transport } from "./transport.ts";
import { WsConnection } from "./ws-connection.ts";
import { asPem, dialWebSocket, type WsSettings } from "./ws-dial.ts";
import { defaultWsLimits, type MutualTls, meshPath, type WsTransportOptions } from "./ws-options.ts";

/** A transport whose certificates can be changed while it runs. */
export interface WebSocketTransport extends Transport {
  /**
   * Connections from now on use these; those that are open stay.
   *
   * @throws Error for certificates that cannot be used, or do not fit their key: then the old ones stay
   */
  setTls(tls: MutualTls): void;
}

/**
 * A transport of websockets with a server of its own, so that other paths can be served on the same port. Frames are
 * binary and never compressed.
 *
 * `start` throws `listen_failed` when the address cannot be had.
 */
export function createWsTransport(options: WsTransportOptions): WebSocketTransport {
  return new WsTransport({ ...defaultWsLimits, ...options });
}

/** What a request may take to come in whole before it is dropped. */
const requestTimeoutMs = 2_000;
const maxHeaderBytes = 8 * 1_024;

class WsTransport implements WebSocketTransport {
  #settings: WsSettings;
  readonly #server: Server;
  readonly #webSockets = new Set<WebSocket>();
  readonly #sockets = new Set<Socket>();
  readonly #upgrader: WebSocketServer;
  #accept: (connection: Connection) => ConnectionObserver = () => {
    throw new TypeError("the transport was started before onConnection");
  };
  #address = "";
  #state: "new" | "running" | "stopped" = "new";

  constructor(settings: WsSettings) {
    this.#settings = settings;
    this.#upgrader = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: settings.maxFrameBytes,
      skipUTF8Validation: true,
    });
    this.#server = createListener(settings);
    this.#server.maxConnections = settings.maxSockets;
    this.#server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    this.#server.on("request", (_, response) => {
      response.writeHead(426, { connection: "close", upgrade: "websocket" }).end();
    });
    this.#server.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
    this.#server.on("clientError", (_, socket) => socket.destroy());
  }

  get address(): string {
    return this.#address;
  }

  onConnection(accept: (connection: Connection) => ConnectionObserver): void {
    this.#accept = accept;
  }

  setTls(tls: MutualTls): void {
    if (!(this.#server instanceof TlsServer)) throw new TypeError("this transport has no certificates");
    this.#server.setSecureContext(serverContext(tls));
    this.#settings = { ...this.#settings, tls };
  }

  async start(): Promise<void> {
    const { host, port } = this.#settings;
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", (error) =>
        reject(new EspalierError("listen_failed", `The mesh cannot listen on ${host}:${port}.`, { cause: error })),
      );
      // Where several processes share other ports, this one is still its own.
      this.#server.listen({ host, port, exclusive: true }, resolve);
    });
    this.#server.removeAllListeners("error");
    // An error of the listening socket after this, such as too many open files, loses one connection and no more.
    this.#server.on("error", () => {});
    const { address, port: bound, family } = this.#server.address() as AddressInfo;
    this.#address = family === "IPv6" ? `[${address}]:${bound}` : `${address}:${bound}`;
    this.#state = "running";
  }

  async stop(): Promise<void> {
    if (this.#state !== "running") return;
    this.#state = "stopped";
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const webSocket of this.#webSockets) webSocket.close(1001, "stopped");
    await this.#whenClosed();
    for (const webSocket of this.#webSockets) webSocket.terminate();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  dial(address: string, observer: Parameters<Transport["dial"]>[1]): void {
    if (this.#state !== "running") throw new TypeError("only a running transport dials");
    const webSocket = dialWebSocket(address, this.#settings, observer);
    if (webSocket) this.#track(webSocket);
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // Until a websocket has taken it, nobody else hears of the socket's errors.
    socket.on("error", () => socket.destroy());
    const path = (request.url ?? "").split("?", 1)[0];
    if (path !== meshPath) {
      if (this.#state === "running" && this.#settings.upgrade?.(request, socket, head)) return;
      refuse(socket, "404 Not Found");
      return;
    }
    // Browsers send their origin, and routers none: no page may talk to the mesh on its reader's behalf.
    if (this.#state !== "running" || request.headers.origin !== undefined) {
      refuse(socket, "403 Forbidden");
      return;
    }
    this.#upgrader.handleUpgrade(request, socket, head, (webSocket) => {
      this.#track(webSocket);
      const { scheduler, closeTimeoutMs } = this.#settings;
      const { remoteAddress = "", remotePort = 0, remoteFamily } = request.socket;
      const remote = remoteFamily === "IPv6" ? `[${remoteAddress}]:${remotePort}` : `${remoteAddress}:${remotePort}`;
      const connection = new WsConnection({ webSocket, socket: request.socket, remote, scheduler, closeTimeoutMs });
      connection.observe(this.#accept(connection));
    });
  }

  #track(webSocket: WebSocket): void {
    this.#webSockets.add(webSocket);
    webSocket.once("close", () => this.#webSockets.delete(webSocket));
  }

  /** Resolves once all websockets are closed, or their time for it is over. */
  async #whenClosed(): Promise<void> {
    const all = [...this.#webSockets].map(
      (webSocket) => new Promise<void>((resolve) => webSocket.once("close", () => resolve())),
    );
    let cancel = (): void => {};
    const late = new Promise<void>((resolve) => {
      cancel = this.#settings.scheduler.after(this.#settings.closeTimeoutMs, resolve);
    });
    await Promise.race([Promise.all(all), late]);
    cancel();
  }
}

function createListener({ tls }: WsSettings): Server {
  const limits = {
    headersTimeout: requestTimeoutMs,
    requestTimeout: requestTimeoutMs,
    connectionsCheckingInterval: requestTimeoutMs / 4,
    maxHeaderSize: maxHeaderBytes,
    noDelay: true,
  };
  if (!tls) return createServer(limits);
  return createTlsServer({
    ...limits,
    ...serverContext(tls),
    requestCert: true,
    rejectUnauthorized: true,
    handshakeTimeout: requestTimeoutMs,
  });
}

function serverContext({ cert, key, ca }: MutualTls) {
  return { cert: asPem(cert), key: asPem(key), ca: asPem(ca), minVersion: "TLSv1.3" } as const;
}

function refuse(socket: Duplex, status: string): void {
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
}
