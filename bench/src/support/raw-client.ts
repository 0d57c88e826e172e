import { connect, type Socket } from "node:net";
import type { Clock } from "@espalier/common";
import { createAnswerReader } from "./answer-reader.ts";
import { type PreparedRequest, stampSerial } from "./prepared-request.ts";

/** What a client saw of one request, both from the moment it was written to an open connection. */
export interface Timing {
  readonly firstByteMs: number;
  readonly totalMs: number;
}

/** A load generator's client: prepared bytes over raw sockets, because a real HTTP client costs more than the router. */
export interface RawClient {
  /**
   * Sends one request on an idle connection, or a new one.
   *
   * @throws Error when it is not answered with status 200 and a complete body
   */
  send(request: PreparedRequest): Promise<Timing>;
  close(): void;
}

/** Requests under way at a time. */
export const maxConnections = 2_048;

let lastSerial = 0;

/** @param urls connections are spread over these in turn */
export function createRawClient(urls: readonly string[], clock: Clock): RawClient {
  const addresses = urls.map((url) => new URL(url));
  const idle: Connection[] = [];
  const open = new Set<Connection>();

  const openAnother = (): Connection => {
    if (open.size >= maxConnections) throw new Error(`more than ${maxConnections} requests are under way`);
    const { hostname, port } = addresses[open.size % addresses.length]!;
    const connection = new Connection(connect({ host: hostname, port: Number(port), noDelay: true }), clock);
    open.add(connection);
    return connection;
  };
  return {
    async send(request) {
      const connection = idle.pop() ?? openAnother();
      const timing = await connection.send(request);
      idle.push(connection);
      return timing;
    },
    close() {
      for (const connection of open) connection.close();
    },
  };
}

interface Waiting {
  /** NaN until the connection is open and the request is written. */
  sentMs: number;
  readonly resolve: (timing: Timing) => void;
  readonly reject: (error: Error) => void;
}

/** One keep-alive connection with at most one request on it. */
class Connection {
  readonly #socket: Socket;
  readonly #clock: Clock;
  readonly #reader = createAnswerReader();
  /** The connection's own copies, so that a request can be changed while others are on their way. */
  readonly #copies = new Map<PreparedRequest, Buffer>();
  #waiting: Waiting | undefined;
  #firstByteMs = Number.NaN;

  constructor(socket: Socket, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#fail(new Error("the connection was closed before the answer was complete")));
  }

  send(request: PreparedRequest): Promise<Timing> {
    const bytes = this.#copyOf(request);
    stampSerial(bytes, request.serialAt, ++lastSerial);
    return new Promise((resolve, reject) => {
      if (this.#socket.destroyed) {
        reject(new Error("the connection was closed while it was idle"));
        return;
      }
      this.#firstByteMs = Number.NaN;
      const waiting: Waiting = { sentMs: Number.NaN, resolve, reject };
      this.#waiting = waiting;
      const write = (): void => {
        waiting.sentMs = this.#clock.nowMs();
        this.#socket.write(bytes);
      };
      if (this.#socket.connecting) this.#socket.once("connect", write);
      else write();
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #copyOf(request: PreparedRequest): Buffer {
    const known = this.#copies.get(request);
    if (known) return known;
    const copy = Buffer.from(request.bytes);
    this.#copies.set(request, copy);
    return copy;
  }

  #read(chunk: Buffer): void {
    const waiting = this.#waiting;
    if (!waiting) {
      this.#socket.destroy();
      return;
    }
    try {
      const complete = this.#reader.push(chunk);
      if (!complete && !this.#reader.begun) return;
      const afterMs = Number.isNaN(this.#firstByteMs) || complete ? this.#clock.nowMs() - waiting.sentMs : 0;
      if (Number.isNaN(this.#firstByteMs)) this.#firstByteMs = afterMs;
      if (!complete) return;
      this.#waiting = undefined;
      waiting.resolve({ firstByteMs: this.#firstByteMs, totalMs: afterMs });
    } catch (thrown) {
      this.#fail(thrown instanceof Error ? thrown : new Error(String(thrown)));
    }
  }

  #fail(error: Error): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    this.#socket.destroy();
    waiting?.reject(error);
  }
}
