import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { Client, type Dispatcher } from "undici";
import type { CurrentTls, TlsOptions } from "./options.ts";
import { StreamedBody } from "./streamed-body.ts";

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
 * Backpressure does not use undici's `pause`: version 7.30 asserts that its parser is not paused when an engine that answered
 * `connection: close` ends or resets the connection, and the failed assertion ends the process. So the parser always runs,
 * and while paused the socket appears to have nothing to read. Node then fills the socket's buffer and stops reading.
 */
export class Connection {
  readonly #client: Client;
  #socket: Socket | undefined;
  #held = false;
  readonly #interim = new InterimAnswers();
  /** Answers completed on the present socket. Above 0, a reset may just mean that it had gone stale. */
  answered = 0;
  /** Whether the present socket was reset or timed out. A body that ends with its connection is incomplete then. */
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
      // Time limits are enforced by `Deadlines`.
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
    // undici does not know the length of a body in pieces.
    const isPieced = body instanceof PiecedBody || body instanceof StreamedBody;
    const wire =
      isPieced && body.sizeBytes !== undefined
        ? { ...request, headers: [...headers, "content-length", String(body.sizeBytes)] }
        : request;
    this.#interim.expect();
    this.#client.dispatch(wire as unknown as Dispatcher.DispatchOptions, handler);
  }

  /** Pauses reading. At most one read of the socket, 64 KiB, still arrives. */
  hold(): void {
    this.#held = true;
  }

  /** Resumes reading. Must not be called from inside a handler of undici. */
  flow(): void {
    if (!this.#held) return;
    this.#held = false;
    // Node emits `readable` for new bytes only after the old ones were read.
    this.#socket?.emit("readable");
  }

  /** Makes a connection that has answered completely ready for the next request. */
  recycle(): void {
    this.answered += 1;
    this.#held = false;
  }

  /** Ends it at once, in any state. */
  destroy(): void {
    this.#client.destroy(null, ignore);
    this.#socket?.destroy();
  }

  #adopt(socket: Socket): void {
    socket.on("error", (error) => {
      // Errors without a system call are undici's own verdict on the answer.
      this.broken ||= "syscall" in error;
    });
    const read = socket.read.bind(socket);
    socket.read = (size) => {
      const chunk: Buffer | null = this.#held && size === undefined ? null : read(size);
      if (chunk) this.#interim.see(chunk);
      return chunk;
    };
  }
}

const [zero, one, two, carriageReturn] = [0x30, 0x31, 0x32, 0x0d];
const headEnd = [carriageReturn, 0x0a, carriageReturn, 0x0a];
/** Where a status line has its status, behind `HTTP/1.1 `. */
const statusAt = 9;

/**
 * Makes each `100 Continue` before an answer a `102 Processing`. Engines and proxies may send any interim answers unasked (RFC 9110
 * section 15.2); undici skips all but 100, which it takes for a fault.
 */
class InterimAnswers {
  #isExpected = false;
  /** Bytes seen of the present head. */
  #seen = 0;
  /** How many bytes of the blank line at a head's end were just seen. */
  #endSeen = 0;
  #isHundred = false;

  /** The next bytes begin the answer to a request. */
  expect(): void {
    this.#isExpected = true;
    this.#seen = 0;
    this.#endSeen = 0;
  }

  see(chunk: Buffer): void {
    for (let at = 0; this.#isExpected && at < chunk.length; at++) this.#next(chunk, at);
  }

  #next(chunk: Buffer, at: number): void {
    const byte = chunk[at]!;
    if (this.#seen === statusAt && byte !== one) {
      this.#isExpected = false;
      return;
    }
    if (this.#seen === statusAt + 1) this.#isHundred = byte === zero;
    if (this.#seen === statusAt + 2 && this.#isHundred && byte === zero) chunk[at] = two;
    this.#seen += 1;
    if (byte === headEnd[this.#endSeen]) this.#endSeen += 1;
    else this.#endSeen = byte === carriageReturn ? 1 : 0;
    if (this.#endSeen < headEnd.length) return;
    this.#seen = 0;
    this.#endSeen = 0;
  }
}

/** Where an engine listens. */
interface Address {
  readonly secure: boolean;
  /** A name or an address; an IPv6 address without its brackets. */
  readonly host: string;
  readonly port: number;
}

/** Opens sockets to one address. */
export interface Dialer {
  /**
   * @param opened called at most once, with an error or with the open socket; not after the socket was destroyed
   * @returns the socket being opened, so that the dial can be cancelled
   */
  dial(opened: (error: Error | null, socket: Socket) => void): Socket;
}

/** After this long without traffic the kernel begins to probe the peer. */
const keepAliveProbeMs = 60_000;
/** Node accepts stream options for sockets, although its types do not list them. */
const readBuffer = { highWaterMark: 64 * 1024 };

/** A dialer that resumes TLS sessions. */
export function createDialer(address: Address, options: CurrentTls): Dialer {
  // A resumed session shows no certificate: it is bound to the TLS options that it began with.
  let session: { readonly of: TlsOptions; readonly ticket: Buffer } | undefined;
  const { host, port, secure } = address;

  const dialTls = (): TLSSocket => {
    const tls = options.current;
    // RFC 6066 forbids addresses as server names.
    const servername = tls.servername ?? (isIP(host) ? undefined : host);
    const socket = connectTls({
      ...tls,
      ...readBuffer,
      host,
      port,
      ALPNProtocols: ["http/1.1"],
      ...(servername === undefined ? {} : { servername }),
      ...(session?.of === tls ? { session: session.ticket } : {}),
    });
    return socket.on("session", (ticket: Buffer) => {
      session = { of: tls, ticket };
    });
  };

  return {
    dial(opened) {
      const socket = secure ? dialTls() : connectTcp({ host, port, ...readBuffer });
      socket.setNoDelay(true);
      socket.setKeepAlive(true, keepAliveProbeMs);
      const fail = (error: Error): void => opened(error, socket);
      socket.once("error", fail);
      socket.once(secure ? "secureConnect" : "connect", () => {
        socket.removeListener("error", fail);
        opened(null, socket);
      });
      return socket;
    },
  };
}

/** Longer bodies are sent in pieces: undici keeps a body in one buffer until the answer has ended. */
const joinedBytes = 128 * 1_024;

/** A large body for undici: iterated anew for each attempt, until it is released. */
export class PiecedBody implements Iterable<Buffer> {
  readonly sizeBytes: number;
  #pieces: readonly Buffer[];

  constructor(pieces: readonly Buffer[], sizeBytes: number) {
    this.#pieces = pieces;
    this.sizeBytes = sizeBytes;
  }

  [Symbol.iterator](): Iterator<Buffer> {
    let at = 0;
    return {
      next: () => {
        const value = this.#pieces[at++];
        return value ? { done: false, value } : { done: true, value: undefined };
      },
    };
  }

  /** Releases the pieces: the body is not sent again. */
  release(): void {
    this.#pieces = [];
  }
}

export type WireBody = Buffer | PiecedBody | StreamedBody | null;

/** A body for an engine: one buffer unless it is large; null when empty. */
export function wireBody(pieces: readonly Buffer[]): WireBody {
  const sizeBytes = pieces.reduce((sum, { length }) => sum + length, 0);
  if (sizeBytes > joinedBytes) return new PiecedBody(pieces, sizeBytes);
  if (pieces.length <= 1) return pieces[0] ?? null;
  return Buffer.concat(pieces);
}
