import { createServer, type IncomingMessage, type Server } from "node:http";
import { createServer as createTlsServer, Server as TlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import {
  type Cancel,
  type Connection,
  type ConnectionEnd,
  type ConnectionObserver,
  drainMarkBytes,
  EspalierError,
  maxUntrustedBytes,
  type Scheduler,
  type Transport,
} from "@espalier/core";
import { type RawData, WebSocket, WebSocketServer } from "ws";

/**
 * Certificates of both ends, in PEM. A peer with a certificate that `ca` has signed counts as a router of the cluster.
 */
export interface MutualTls {
  readonly cert: string | Uint8Array;
  readonly key: string | Uint8Array;
  readonly ca: string | Uint8Array;
  /** A name that the certificate of every router must be valid for. Without it, only the signature is checked. */
  readonly serverName?: string;
}

/**
 * Takes requests to upgrade that are not for the mesh.
 *
 * @returns false when the path is not its own; it has not touched the socket then
 */
type UpgradeHandler = (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean;

export interface WsTransportOptions {
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  readonly scheduler: Scheduler;
  readonly tls?: MutualTls;
  readonly upgrade?: UpgradeHandler;
  /** Largest frame in either direction. */
  readonly maxFrameBytes?: number;
  /** From the beginning of a dial to the end of the websocket's own handshake. */
  readonly connectTimeoutMs?: number;
  /** How long the other end may take to answer a clean close. */
  readonly closeTimeoutMs?: number;
  /** Sockets from outside at once, those of other upgrade paths included. */
  readonly maxSockets?: number;
}

/** Where routers dial each other. */
const meshPath = "/mesh";

const defaultWsLimits = {
  maxFrameBytes: 1_024 * 1_024,
  connectTimeoutMs: 1_000,
  closeTimeoutMs: 500,
  maxSockets: 512,
} as const;

/** A transport whose certificates can be changed while it runs. */
export interface WebSocketTransport extends Transport {
  /**
   * New connections use these; open ones keep theirs.
   *
   * @throws Error for certificates that cannot be used, or do not fit their key: then the old ones stay
   */
  setTls(tls: MutualTls): void;
}

/**
 * A transport of websockets with a server of its own, so that other paths can be served on the same port. Frames are
 * binary and never compressed.
 *
 * `start` throws `listen_failed` when the address is not available.
 */
export function createWsTransport(options: WsTransportOptions): WebSocketTransport {
  return new WsTransport({ ...defaultWsLimits, ...options });
}

/** How long a request may take to arrive whole before it is dropped. */
const requestTimeoutMs = 2_000;
/** Headers of a request to the mesh listener. */
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
        reject(
          new EspalierError("listen_failed", `Cannot listen on ${host}:${port} (mesh.port): ${error.message}`, {
            cause: error,
          }),
        ),
      );
      // Even where several processes share other ports, this port is exclusive.
      this.#server.listen({ host, port, exclusive: true }, resolve);
    });
    this.#server.removeAllListeners("error");
    // A later error of the listening socket, such as too many open files, loses one connection and no more.
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
    // Until a websocket has taken over the socket, only this listener sees its errors.
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

type WsSettings = WsTransportOptions & { readonly [Name in keyof typeof defaultWsLimits]: number };

/**
 * Begins to dial.
 *
 * @returns the websocket, to end it; undefined when the address cannot be dialed at all
 */
function dialWebSocket(
  address: string,
  settings: WsSettings,
  observer: Parameters<Transport["dial"]>[1],
): WebSocket | undefined {
  const { tls, scheduler, connectTimeoutMs, closeTimeoutMs, maxFrameBytes } = settings;
  const url = `${tls ? "wss" : "ws"}://${address}${meshPath}`;
  if (!URL.canParse(url) || new URL(url).pathname !== meshPath) {
    scheduler.after(0, () => observer.closed({ kind: "error", code: 0, reason: `${address} is not an address` }));
    return undefined;
  }
  const webSocket = new WebSocket(url, {
    perMessageDeflate: false,
    maxPayload: maxFrameBytes,
    skipUTF8Validation: true,
    // A mask protects proxies from scripts in browsers. There is no script here, and a mask of zeros costs nothing.
    generateMask: (mask: Buffer) => void mask.fill(0),
    ...(tls && {
      cert: asPem(tls.cert),
      key: asPem(tls.key),
      ca: asPem(tls.ca),
      minVersion: "TLSv1.3" as const,
      ...(tls.serverName === undefined ? { checkServerIdentity } : { servername: tls.serverName }),
    }),
  });
  let end: ConnectionEnd | undefined;
  let isOpen = false;
  const cancelTimeout = scheduler.after(connectTimeoutMs, () => {
    end ??= { kind: "timeout", code: 0, reason: `no answer in ${connectTimeoutMs} ms` };
    webSocket.terminate();
  });
  webSocket.once("upgrade", (response: IncomingMessage) => {
    webSocket.once("open", () => {
      isOpen = true;
      cancelTimeout();
      const { socket } = response;
      const connection = new WsConnection({ webSocket, socket, remote: address, scheduler, closeTimeoutMs });
      connection.observe(observer);
      observer.opened(connection);
    });
  });
  webSocket.on("error", (error: Error & { readonly code?: string }) => {
    if (!isOpen) end ??= dialEnd(error, tls !== undefined);
  });
  webSocket.once("close", () => {
    if (isOpen) return;
    cancelTimeout();
    observer.closed(end ?? { kind: "error", code: 1006, reason: "the dial was given up" });
  });
  return webSocket;
}

const asPem = (value: string | Uint8Array): string | Buffer => (typeof value === "string" ? value : Buffer.from(value));

/** Accepts every address: a peer with a certificate of the cluster's own authority is a router. */
const checkServerIdentity = (): boolean => false;

/** @param isSecure over TLS, where a router that is alive may refuse a certificate by a reset */
function dialEnd(error: Error & { readonly code?: string }, isSecure: boolean): ConnectionEnd {
  const kind = error.code === "ECONNREFUSED" ? "refused" : error.code === "ETIMEDOUT" ? "timeout" : "error";
  return { kind, code: 0, reason: error.message, isReset: error.code === "ECONNRESET" && !isSecure };
}

interface WsConnectionDeps {
  readonly webSocket: WebSocket;
  /** The underlying socket, to count bytes before the other end is trusted. */
  readonly socket: Socket;
  readonly remote: string;
  readonly scheduler: Scheduler;
  readonly closeTimeoutMs: number;
}

/** A connection over an open websocket. */
class WsConnection implements Connection {
  readonly remote: string;
  readonly #deps: WsConnectionDeps;
  readonly #countBytes: (chunk: Uint8Array) => void;
  #observer: ConnectionObserver | undefined;
  #isTrusted = false;
  #untrustedBytes = 0;
  #isAboveMark = false;
  /** What broke, until the websocket says that it is closed. */
  #broken: ConnectionEnd | undefined;
  #isEnding = false;
  #cancelClose: Cancel = () => {};

  constructor(deps: WsConnectionDeps) {
    this.#deps = deps;
    this.remote = deps.remote;
    const { webSocket, socket } = deps;
    webSocket.on("message", (data, isBinary) => this.#message(data, isBinary));
    webSocket.on("error", (error) => {
      this.#broken ??= errorEnd(error);
    });
    webSocket.once("close", (code, reason) => this.#closed(code, reason));
    this.#countBytes = (chunk) => {
      // The websocket has read the chunk by now: if a frame in it earned the trust, the bytes behind it are trusted
      // too.
      if (this.#isTrusted) return;
      this.#untrustedBytes += chunk.length;
      if (this.#untrustedBytes > maxUntrustedBytes)
        this.#breakOff(1009, "too many bytes before the handshake was done");
    };
    socket.on("data", this.#countBytes);
  }

  observe(observer: ConnectionObserver): void {
    this.#observer = observer;
  }

  get bufferedBytes(): number {
    return this.#deps.webSocket.bufferedAmount;
  }

  trust(): void {
    this.#isTrusted = true;
    this.#deps.socket.off("data", this.#countBytes);
  }

  send(frame: Uint8Array): void {
    const { webSocket } = this.#deps;
    if (this.#isEnding) return;
    webSocket.send(frame, { binary: true, compress: false }, this.#written);
    if (webSocket.bufferedAmount >= drainMarkBytes) this.#isAboveMark = true;
  }

  close(code: number, reason: string): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    const { webSocket, scheduler, closeTimeoutMs } = this.#deps;
    webSocket.close(code, reason);
    this.#cancelClose = scheduler.after(closeTimeoutMs, () => webSocket.terminate());
  }

  terminate(): void {
    this.#isEnding = true;
    this.#deps.webSocket.terminate();
  }

  readonly #written = (): void => {
    if (!this.#isAboveMark || this.#isEnding || this.#deps.webSocket.bufferedAmount >= drainMarkBytes) return;
    this.#isAboveMark = false;
    this.#observer?.drained();
  };

  #message(data: RawData, isBinary: boolean): void {
    if (this.#isEnding) return;
    if (isBinary && data instanceof Uint8Array) this.#observer?.frame(data);
    else this.#breakOff(1003, "a frame of text");
  }

  #breakOff(code: number, reason: string): void {
    this.#broken ??= { kind: "error", code, reason };
    this.close(code, reason);
  }

  #closed(code: number, reason: Buffer): void {
    this.#isEnding = true;
    this.#cancelClose();
    this.trust();
    this.#observer?.closed(
      this.#broken ?? { kind: code === 1006 ? "reset" : "closed", code, reason: reason.toString("utf8") },
    );
  }
}

/** Codes of ws for frames that break the protocol, and how a websocket reports them. */
const frameErrors: Readonly<Record<string, number>> = {
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
  WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH: 1009,
  WS_ERR_TOO_MANY_BUFFERED_PARTS: 1009,
};

function errorEnd(error: Error & { readonly code?: string }): ConnectionEnd {
  const code = error.code ?? "";
  if (code.startsWith("WS_ERR_")) return { kind: "error", code: frameErrors[code] ?? 1002, reason: error.message };
  return { kind: "reset", code: 1006, reason: error.message };
}
