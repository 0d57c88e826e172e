import { performServerHandshake, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { EspalierError, systemAfterPoll } from "@espalier/core";
import { ResetFilter } from "./reset-filter.ts";

/** Certificate chain and key as PEM texts; with `ca`, clients must show a certificate of that authority. */
export interface GrpcTls {
  readonly cert: string;
  readonly key: string;
  readonly ca?: string;
}

/** Status codes of gRPC that are used here. */
export const grpcStatus = {
  ok: 0,
  invalidArgument: 3,
  notFound: 5,
  resourceExhausted: 8,
  aborted: 10,
  unimplemented: 12,
  internal: 13,
} as const;

/** The server's side of one call. */
export interface GrpcCall {
  /** False once it has ended or the client is gone. A client that has only ended its side still listens. */
  readonly isOpen: boolean;
  /** @returns false when the client is behind: `drained` follows */
  send(message: Buffer): boolean;
  /** Ends the call; with another status than `ok`, as an error. Calls after the first do nothing. */
  end(status?: number, message?: string): void;
  pause(): void;
  resume(): void;
}

/** Follows one call. Nothing follows `closed`. */
export interface GrpcCallHandler {
  message(bytes: Buffer): void;
  drained(): void;
  /** @param isReset whether the client reset the call, rather than ended its side */
  closed(isReset: boolean): void;
}

/** Methods by path: `/package.Service/Method`. */
type GrpcMethods = Readonly<Record<string, (call: GrpcCall) => GrpcCallHandler>>;

export interface GrpcServerOptions {
  /** What sets the port, for the message when it is taken. */
  readonly setting: string;
  readonly host: string;
  /** 0 selects a free port. */
  readonly port: number;
  readonly tls: GrpcTls | undefined;
  /** Longest message of a client, in bytes. */
  readonly maxMessageBytes: number;
  readonly methods: GrpcMethods;
  /** Most connections; further ones are closed at once. 4,096 by default. */
  readonly maxConnections?: number;
}

/** A gRPC server over `node:http2`. */
export interface GrpcServer {
  /** `host:port`; empty before the start. */
  readonly address: string;
  /** @throws EspalierError `listen_failed` */
  start(): Promise<void>;
  /** Takes new certificates for new connections; does nothing without TLS. */
  setTls(tls: GrpcTls): void;
  /** Accepts no new connections, and asks clients to use others. Open calls go on. */
  drain(): void;
  /** Ends every connection. */
  stop(): Promise<void>;
}

/** Most calls at a time on one connection; a client opens another one for more. */
export const maxCallsPerConnection = 256;
/** Most connections unless said otherwise; further ones are closed at once. */
const usualMaxConnections = 4_096;
/** Bytes that may be on their way to this server, for one call and for one connection. */
const callWindowBytes = 1_048_576;
const connectionWindowBytes = 16_777_216;

/** Nothing listens before `start`. */
export function createGrpcServer(options: GrpcServerOptions): GrpcServer {
  const { host, port, methods, maxMessageBytes, tls } = options;
  const settings = { maxConcurrentStreams: maxCallsPerConnection, initialWindowSize: callWindowBytes };
  const sessions = new Set<ServerHttp2Session>();
  const accept = (socket: Socket): void => {
    const reset = new Set<number>();
    const filter = new ResetFilter(socket, (id) => void reset.add(id));
    const session = performServerHandshake(filter, { settings });
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
    // A connection that breaks ends its calls, which their handlers learn.
    session.on("error", () => {});
    session.setLocalWindowSize(connectionWindowBytes);
    session.on("stream", (stream, headers) => {
      const id = stream.id ?? 0;
      stream.on("close", () => {
        reset.delete(id);
        filter.forget(id);
      });
      serve(stream, String(headers[":path"]), { methods, maxMessageBytes, isReset: () => reset.has(id) });
    });
  };
  const secure = tls && createTlsServer({ ALPNProtocols: ["h2"], ...secureOptions(tls) });
  const server: Server = secure ?? createServer({ noDelay: true });
  server.maxConnections = options.maxConnections ?? usualMaxConnections;
  server.on(secure ? "secureConnection" : "connection", accept);
  let address = "";
  return {
    get address() {
      return address;
    },
    async start() {
      await new Promise<void>((resolve, reject) => {
        server.once("error", (error) => {
          const why = `Cannot listen on ${host}:${port} (${options.setting}): ${error.message}`;
          reject(new EspalierError("listen_failed", why, { cause: error }));
        });
        server.listen(port, host, resolve);
      });
      const bound = server.address() as AddressInfo;
      address = `${bound.family === "IPv6" ? `[${bound.address}]` : bound.address}:${bound.port}`;
    },
    setTls: (next) => void secure?.setSecureContext(secureOptions(next)),
    drain() {
      server.close();
      for (const session of sessions) session.close();
    },
    async stop() {
      const closed = server.listening ? new Promise<void>((resolve) => server.close(() => resolve())) : undefined;
      for (const session of sessions) session.destroy();
      await closed;
    },
  };
}

function secureOptions(tls: GrpcTls): Readonly<Record<string, unknown>> {
  return tls.ca === undefined ? { ...tls } : { ...tls, requestCert: true, rejectUnauthorized: true };
}

const answerHeaders = { ":status": 200, "content-type": "application/grpc" } as const;
const prefixBytes = 5;

function prefixOf({ length }: Buffer): Buffer {
  const prefix = Buffer.allocUnsafe(prefixBytes);
  prefix[0] = 0;
  prefix.writeUInt32BE(length, 1);
  return prefix;
}

interface ServedBy {
  readonly methods: GrpcMethods;
  readonly maxMessageBytes: number;
  /** Whether the client has reset the stream. */
  readonly isReset: () => boolean;
}

/** gRPC over HTTP/2 (grpc/grpc, `doc/PROTOCOL-HTTP2.md`), without compression. */
function serve(stream: ServerHttp2Stream, path: string, { methods, maxMessageBytes, isReset }: ServedBy): void {
  stream.on("error", () => {});
  const method = methods[path];
  if (!method) {
    const status = { "grpc-status": grpcStatus.unimplemented, "grpc-message": "unknown method" };
    stream.respond({ ...answerHeaders, ...status }, { endStream: true });
    return;
  }
  let trailers: Record<string, string | number> | undefined;
  let isClosed = false;
  stream.respond(answerHeaders, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers(trailers ?? { "grpc-status": grpcStatus.ok }));
  /** Messages of this turn of the event loop, with their prefixes. They go out together: each write is a system call. */
  let pending: Buffer[] = [];
  const flush = (): void => {
    const bytes = pending.length === 1 ? pending[0]! : Buffer.concat(pending);
    pending = [];
    if (!stream.destroyed && bytes.length > 0) stream.write(bytes);
  };
  const call: GrpcCall = {
    get isOpen() {
      return !stream.destroyed && !trailers;
    },
    send(message) {
      if (stream.destroyed || trailers) return true;
      if (pending.length === 0) process.nextTick(flush);
      pending.push(prefixOf(message), message);
      return !stream.writableNeedDrain;
    },
    end(status = grpcStatus.ok, message = "") {
      if (trailers) return;
      flush();
      trailers = { "grpc-status": status };
      if (message !== "") trailers["grpc-message"] = percentEncoded(message);
      if (!stream.destroyed) stream.end();
    },
    pause: () => void stream.pause(),
    resume: () => void stream.resume(),
  };
  const handler = method(call);
  const close = (isReset: boolean): void => {
    if (isClosed) return;
    isClosed = true;
    handler.closed(isReset);
  };
  const messages = new MessageReader(maxMessageBytes, (bytes) => handler.message(bytes));
  stream.on("data", (chunk: Buffer) => {
    const wrong = messages.push(chunk);
    if (wrong) call.end(wrong.status, wrong.message);
  });
  stream.on("drain", () => handler.drained());
  // Some clients end their side before they reset it, in the same turn of the event loop.
  stream.on("end", () => void systemAfterPoll().then(() => close(stream.aborted || isReset())));
  // The connection is gone, if the call is not over.
  stream.on("close", () => close(true));
}

/** Status messages are ASCII; other bytes, and percent signs, are encoded. */
function percentEncoded(message: string): string {
  return message.replace(/[^\x20-\x24\x26-\x7e]+/g, encodeURIComponent);
}

/** A message with its prefix. */
export const framed = (message: Buffer): Buffer => Buffer.concat([prefixOf(message), message]);

interface WrongMessage {
  readonly status: number;
  readonly message: string;
}

/** Cuts the bytes of a call into messages: a flag, a length of four bytes, and the message. */
export class MessageReader {
  readonly #maxBytes: number;
  readonly #onMessage: (bytes: Buffer) => void;
  #pieces: Buffer[] = [];
  #sizeBytes = 0;
  /** Of the next message with its prefix. */
  #neededBytes = prefixBytes;
  #isWrong = false;

  constructor(maxBytes: number, onMessage: (bytes: Buffer) => void) {
    this.#maxBytes = maxBytes;
    this.#onMessage = onMessage;
  }

  /** @returns why the call cannot go on */
  push(chunk: Buffer): WrongMessage | undefined {
    if (this.#isWrong) return undefined;
    this.#pieces.push(chunk);
    this.#sizeBytes += chunk.length;
    while (this.#sizeBytes >= this.#neededBytes) {
      const bytes = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces, this.#sizeBytes);
      this.#pieces = [bytes];
      const needed = prefixBytes + bytes.readUInt32BE(1);
      const wrong = this.#check(bytes[0]!, needed - prefixBytes);
      if (wrong) return wrong;
      this.#neededBytes = needed;
      if (bytes.length < needed) break;
      this.#pieces = bytes.length > needed ? [bytes.subarray(needed)] : [];
      this.#sizeBytes = bytes.length - needed;
      this.#neededBytes = prefixBytes;
      this.#onMessage(bytes.subarray(prefixBytes, needed));
    }
    return undefined;
  }

  #check(flag: number, length: number): WrongMessage | undefined {
    if (flag !== 0) {
      this.#isWrong = true;
      return { status: grpcStatus.unimplemented, message: "compressed messages are not read" };
    }
    if (length <= this.#maxBytes) return undefined;
    this.#isWrong = true;
    this.#pieces = [];
    return {
      status: grpcStatus.resourceExhausted,
      message: `a message of ${length} bytes is longer than ${this.#maxBytes}`,
    };
  }
}

/** Ends a call with an error when a step of it throws. @returns what it threw */
export function guarded(call: GrpcCall, step: () => void): unknown {
  try {
    step();
    return undefined;
  } catch (thrown) {
    const status = thrown instanceof EspalierError ? grpcStatus.invalidArgument : grpcStatus.internal;
    call.end(status, thrown instanceof Error ? thrown.message : String(thrown));
    return thrown;
  }
}
