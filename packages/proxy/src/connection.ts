import type { Socket } from "node:net";
import { Client, type Dispatcher } from "undici";
import type { Dialer } from "./dial.ts";
import { PiecedBody, type WireBody } from "./wire-body.ts";

const ignore = (): void => {};

/** The request as it goes to an engine. */
export interface WireRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly string[];
  readonly body: WireBody;
}

/**
 * One connection to an engine, used by one request at a time and redialled by undici when it was closed in between.
 *
 * Backpressure is made here and not with undici's `pause`: version 7.30 asserts that its parser is not paused when an
 * engine that answered `connection: close` ends or resets the connection, and the assertion takes the process down.
 * So the parser always runs, and while the reader is behind it is told that the socket has nothing to read. Node then
 * fills the socket's buffer and stops reading from the kernel.
 */
export class Connection {
  readonly #client: Client;
  #socket: Socket | undefined;
  #held = false;
  /** Answers completed on the present socket. More than 0 means that a reset may only mean that it had gone stale. */
  answered = 0;
  /** Whether the present socket was reset or timed out. A body that ends with its connection is then not complete. */
  broken = false;

  constructor(origin: string, dialer: Dialer, keepAliveTimeoutMs: number) {
    this.#client = new Client(origin, {
      connect: (_, opened) => {
        this.answered = 0;
        this.broken = false;
        this.#socket = dialer.dial((error, socket) => {
          if (error) {
            opened(error, null);
            return;
          }
          this.#adopt(socket);
          opened(null, socket);
        });
      },
      pipelining: 1,
      keepAliveTimeout: keepAliveTimeoutMs,
      // Limits in time are the sweep's business.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  }

  /** Whether the engine has closed the present socket, in order or not. */
  get ended(): boolean {
    return this.broken || this.#socket?.readableEnded === true;
  }

  dispatch(request: WireRequest, handler: Dispatcher.DispatchHandler): void {
    const { headers, body } = request;
    // Of a body in pieces undici does not know the length.
    const wire =
      body instanceof PiecedBody
        ? { ...request, headers: [...headers, "content-length", String(body.sizeBytes)] }
        : request;
    this.#client.dispatch(wire as unknown as Dispatcher.DispatchOptions, handler);
  }

  /** Stops reading. What is parsed already still arrives: at most one read of the socket, 64 KiB. */
  hold(): void {
    this.#held = true;
  }

  /** Reads on. Never to be called from inside a handler of undici. */
  flow(): void {
    if (!this.#held) return;
    this.#held = false;
    // Node tells readers about new bytes only after they have read the old ones.
    this.#socket?.emit("readable");
  }

  /** Makes a connection that has answered completely ready for the next request. */
  recycle(): void {
    this.answered += 1;
    this.#held = false;
  }

  /** Ends it at once, whatever it is doing. */
  destroy(): void {
    this.#client.destroy(null, ignore);
    this.#socket?.destroy();
  }

  #adopt(socket: Socket): void {
    socket.on("error", (error) => {
      // Without a system call behind it, it is undici's own verdict on the answer.
      this.broken ||= "syscall" in error;
    });
    const read = socket.read.bind(socket);
    socket.read = (size) => (this.#held && size === undefined ? null : read(size));
  }
}
