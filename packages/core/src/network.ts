import { isIP } from "node:net";
import type { Cancel } from "./clock.ts";
import type { EspalierError } from "./errors.ts";
import type { Startable } from "./startable.ts";

/** A small request for control traffic (health, metrics, discovery): bounded in time and size, never a user's request. */
export interface HttpRequest {
  readonly url: string;
  readonly method?: "GET" | "POST" | "PATCH" | "DELETE";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** From the call to the last byte of the answer. */
  readonly timeoutMs: number;
  /** A longer answer is an error. */
  readonly maxBytes: number;
}

export interface HttpResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** From the sending of the request on an open connection to the head of its answer. Absent if it was not measured. */
  readonly headMs?: number;
}

/**
 * Sends one control request.
 *
 * @throws EspalierError `upstream_connect_failed`, `upstream_timeout` or `upstream_protocol_error`
 */
export type HttpClient = (request: HttpRequest) => Promise<HttpResponse>;

/** A control request with a streamed answer: a watch. */
export interface HttpStreamRequest {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** From the call to the head of the answer. There is no timeout after that. */
  readonly headTimeoutMs: number;
}

/** Observer of a streamed answer. Its functions must not throw. */
export interface HttpStreamObserver {
  onHead(status: number, headers: Readonly<Record<string, string>>): void;
  /** A piece of the body, of any length; the bytes are valid during the call. */
  onData(chunk: Uint8Array): void;
  /**
   * Called once, last. Undefined: the answer is complete; else `upstream_connect_failed`, `upstream_timeout` or
   * `upstream_protocol_error`.
   */
  onEnd(error: EspalierError | undefined): void;
}

/**
 * Sends a GET request.
 *
 * @returns cancels the request at once; the observer is not called afterwards
 */
export type HttpStreamClient = (request: HttpStreamRequest, observer: HttpStreamObserver) => Cancel;

/** One connection that carries binary frames in order, or breaks. */
export interface Connection {
  send(frame: Uint8Array): void;
  /** Bytes that were sent and have not left this process. */
  readonly bufferedBytes: number;
  /** Ends it in good order. */
  close(code: number, reason: string): void;
  /** Ends it at once. */
  terminate(): void;
  /**
   * Declares the other end authenticated. Before that, it may send only `maxUntrustedBytes`, or the connection ends.
   */
  trust(): void;
  /** `host:port` of the other end, for logs. */
  readonly remote: string;
}

/**
 * Observer of a connection. It is never called from inside a call to the connection or the transport. `closed` is
 * called once for every connection, no matter which end closed it, and nothing follows it.
 */
export interface ConnectionObserver {
  /** The bytes are a view into a larger buffer: copy them to keep them. */
  frame(frame: Uint8Array): void;
  /** @param reason from the other end, or the failure; no frame follows it */
  closed(reason: ConnectionEnd): void;
  /** Buffered bytes fell below `drainMarkBytes`. */
  drained(): void;
}

export interface ConnectionEnd {
  /** `closed`: in good order by either end, `reset`: the other end is gone, `refused`: nothing listened. */
  readonly kind: "closed" | "reset" | "refused" | "timeout" | "error";
  /** Whether a failed dial was accepted, then reset before any answer. */
  readonly isReset?: boolean;
  readonly code: number;
  readonly reason: string;
}

/** The port for connections: sockets in production, memory in tests and in the simulator. */
export interface Transport extends Startable {
  /** Where it listens, `host:port`; empty before the start. */
  readonly address: string;
  /** @param accept called for every incoming connection; returns its observer */
  onConnection(accept: (connection: Connection) => ConnectionObserver): void;
  /** Starts a dial. The observer's `opened` is called on success, `closed` on failure. */
  dial(address: string, observer: ConnectionObserver & { opened(connection: Connection): void }): void;
}

/**
 * A connection with this many buffered bytes should get no more. Once it has reached this mark, its observer's
 * `drained` is called when fewer remain.
 */
export const drainMarkBytes = 64 * 1_024;

/** Most bytes accepted from the other end before `trust` is called. */
export const maxUntrustedBytes = 16 * 1_024;

/** The host as URLs have it: an IPv6 address in brackets. */
export const hostInUrl = (host: string): string => (host.includes(":") && !host.startsWith("[") ? `[${host}]` : host);

/** The host without the brackets of an IPv6 address, as sockets and names have it. */
export const plainHost = (host: string): string => host.replace(/^\[|\]$/g, "");

/** Whether a listener on the host, a name or an address without brackets, is reachable only from this machine. */
export function isLoopback(host: string): boolean {
  const plain = host.toLowerCase();
  if (isIP(plain) === 4) return plain.startsWith("127.");
  return plain === "localhost" || plain === "::1";
}
