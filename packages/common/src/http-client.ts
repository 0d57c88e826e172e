import type { Cancel } from "./clock.ts";
import type { EspalierError } from "./errors.ts";

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
}

/**
 * Sends one control request.
 *
 * @throws EspalierError `upstream_connect_failed`, `upstream_timeout` or `upstream_protocol_error`
 */
export type HttpClient = (request: HttpRequest) => Promise<HttpResponse>;

/** A control request whose answer is read as it comes, for as long as it comes: a watch. */
export interface HttpStreamRequest {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** From the call to the head of the answer. What comes after it has no limit in time here. */
  readonly headTimeoutMs: number;
}

/** Who reads an answer as it comes. Its functions return without throwing. */
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
 * @returns ends it at once; the observer hears nothing afterwards
 */
export type HttpStreamClient = (request: HttpStreamRequest, observer: HttpStreamObserver) => Cancel;
