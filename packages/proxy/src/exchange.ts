import type { ServerResponse } from "node:http";
import type { EspalierError } from "@espalier/common";
import type { ApiFamily } from "@espalier/openai";
import type { AttemptFailure } from "./failure.ts";
import type { RequestCopies } from "./request-copies.ts";

/** One engine as the proxy sees it. */
export interface Upstream {
  readonly key: string;
  /** `http://host:port` or `https://host:port`, with an optional path prefix. */
  readonly url: string;
  /** Flat name and value pairs to send, such as credentials. They replace the client's headers of the same name. */
  readonly headers: readonly string[];
  /** What this engine gets in place of the exchange's body. */
  readonly body?: readonly Buffer[] | undefined;
}

/** What the proxy tells its caller while it works. No method may block. */
export interface ExchangeObserver {
  /**
   * @param attempt 0 for the first
   * @param withdraw ends the attempt as a failure of kind `withdrawn`, after which `next` is asked again. It does nothing
   *   once a byte of the answer has gone to the client or the attempt is over, and must not be called from inside a
   *   callback of the proxy.
   */
  attemptStarted?(upstream: Upstream, attempt: number, withdraw: () => void): void;
  /**
   * The attempt failed through the engine's fault; it is told before `next` is asked for another one. A failure of
   * kind `status` may still be followed by `responseStarted`: with nobody left, the client gets that very answer.
   * Not called when the client went away or the request's own deadline passed.
   */
  attemptFailed?(upstream: Upstream, failure: AttemptFailure): void;
  /**
   * Flat pairs, names in lower case, for the client's response, asked for just before its headers are written. They
   * replace the engine's headers of the same names.
   */
  responseHeaders?(upstream: Upstream, status: number): readonly string[];
  /**
   * The client gets this engine's answer: there will be no other attempt. It is called with the first byte of the
   * body, or with its end when it is empty. `headers` are the engine's, as flat pairs.
   */
  responseStarted?(upstream: Upstream, status: number, headers: readonly string[]): void;
  /** The first byte of the body came from the engine. */
  firstByte?(upstream: Upstream): void;
}

/** Sees every chunk of a body on its way to the client; may hold back, remove or replace bytes. */
export interface BodyFilter {
  /** Whether the body may come out in another length than it went in; if not, `content-length` is passed on. */
  readonly changesLength: boolean;
  push(chunk: Buffer): Buffer | readonly Buffer[] | undefined;
  /** The engine's body is complete: what was held back. Not called for a body that was cut. */
  end(): Buffer | undefined;
}

/** One client's request and the place its answer goes to. */
export interface Exchange {
  readonly method: string;
  /** With the query; begins with a slash. */
  readonly path: string;
  /** The client's headers, flat, as `rawHeaders` of node:http gives them. */
  readonly headers: readonly string[];
  /**
   * The caller's own headers, flat, names in lower case. They replace the client's of the same name, and the client
   * cannot have them taken out by naming them in `connection`.
   */
  readonly ownHeaders?: readonly string[];
  readonly body: readonly Buffer[];
  readonly requestId: string;
  /** Which wire shape an error frame takes in a stream that was cut. */
  readonly family: ApiFamily;
  /** Emits `close` at the latest when its connection closes, which Node does not see to for one that is pipelined. */
  readonly response: ServerResponse;
  /** Lets the client's `authorization` and `x-api-key` through to the engine. */
  readonly forwardAuthorization?: boolean;
  /**
   * Chooses the engine of the next attempt, now or later. An engine that has been tried is not tried again: returning it
   * means the same as `undefined`, that nobody is left.
   */
  next(tried: readonly AttemptFailure[]): Upstream | undefined | Promise<Upstream | undefined>;
  /**
   * Judges the beginning of a body before a byte of it goes to the client. `decline` gives this engine up for another one,
   * at no charge; `more` asks again with more of it. At 64 KiB, and at its end, a body that was not declined passes.
   */
  judge?(upstream: Upstream, status: number, head: Buffer, ended: boolean): "pass" | "decline" | "more";
  bodyFilter?(status: number, contentType: string): BodyFilter | undefined;
  readonly observer: ExchangeObserver;
  /** Of the client's request, where more is sent for it than this exchange. */
  readonly copies?: RequestCopies;
  /** When the answer must be complete, on the scale of the clock's `nowMs`. */
  readonly deadlineMs?: number;
}

export type ExchangeOutcome =
  /** `bytes` is the size of the body that was written. */
  | { readonly kind: "completed"; readonly status: number; readonly bytes: number }
  /** Nothing was written: the caller answers. */
  | { readonly kind: "failed"; readonly error: EspalierError; readonly failures: readonly AttemptFailure[] }
  /** Failed after the first byte. The client's response has been ended with an error frame, or destroyed. */
  | { readonly kind: "cut"; readonly error: EspalierError }
  /** The client went away, or stopped reading for longer than it may. */
  | { readonly kind: "client_closed" };
