import {
  type Cancel,
  type Clock,
  EspalierError,
  type HttpClient,
  type HttpRequest,
  type HttpResponse,
  type HttpStreamClient,
  type HttpStreamObserver,
  type HttpStreamRequest,
  type Scheduler,
} from "@espalier/core";
import type { Dispatcher } from "undici";
import type { Connection, WireRequest } from "./connection.ts";
import { classifyError } from "./failure.ts";
import type { TlsOptions } from "./options.ts";
import { type ConnectionUser, createUpstreamPools, type EnginePool, type UpstreamPools } from "./upstream-pools.ts";

/**
 * The client for control traffic.
 *
 * @param pools separate from those of clients' requests, so that health checks never queue behind them
 * @param clock measures `HttpResponse.headMs`; absent: nothing is measured
 */
export function createHttpClient(pools: UpstreamPools, scheduler: Scheduler, clock?: Clock): HttpClient {
  return (request) =>
    new Promise((resolve, reject) => {
      const url = URL.canParse(request.url) ? new URL(request.url) : undefined;
      const pool = pools.of(url?.origin ?? request.url);
      const path = `${url?.pathname ?? "/"}${url?.search ?? ""}`;
      const call = new ControlCall({ pool, request, path, clock }, (result) => {
        cancelTimeout();
        if (result instanceof EspalierError) reject(result);
        else resolve(result);
      });
      const cancelTimeout = scheduler.after(request.timeoutMs, () => call.fail(new EspalierError("upstream_timeout")));
      call.start();
    });
}

interface ControlCallParts {
  readonly pool: EnginePool;
  readonly request: HttpRequest;
  /** With the query. */
  readonly path: string;
  readonly clock: Clock | undefined;
}

/** One control request: its answer is collected as a whole. A stale connection is redialled once. */
class ControlCall implements Dispatcher.DispatchHandler, ConnectionUser {
  readonly #pool: EnginePool;
  readonly #request: WireRequest;
  readonly #maxBytes: number;
  readonly #settled: (result: HttpResponse | EspalierError) => void;
  readonly #clock: Clock | undefined;
  #connection: Connection | undefined;
  #redialled = false;
  #done = false;
  #status = 0;
  #headers: Record<string, string> = {};
  #chunks: Buffer[] = [];
  #bytes = 0;
  #sentMs = 0;
  #headMs: number | undefined;

  constructor(
    { pool, request, path, clock }: ControlCallParts,
    settled: (result: HttpResponse | EspalierError) => void,
  ) {
    this.#pool = pool;
    this.#clock = clock;
    this.#maxBytes = request.maxBytes;
    this.#settled = settled;
    this.#request = {
      method: request.method ?? "GET",
      path,
      headers: Object.entries(request.headers ?? {}).flat(),
      body: request.body === undefined ? null : Buffer.from(request.body),
    };
  }

  start(): void {
    if (this.#pool.acquire(this)) return;
    this.fail(new EspalierError("upstream_connect_failed", "Too many control requests wait for this address."));
  }

  fail(error: EspalierError): void {
    if (this.#done) return;
    this.#done = true;
    if (this.#connection) this.#pool.discard(this.#connection);
    else this.#pool.forget(this);
    this.#settled(error);
  }

  assigned(connection: Connection): void {
    this.#connection = connection;
    connection.dispatch(this.#request, this);
  }

  /** The connection is open, and the request leaves now. */
  onRequestStart(): void {
    this.#sentMs = this.#clock?.nowMs() ?? 0;
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200) return;
    if (this.#clock) this.#headMs = this.#clock.nowMs() - this.#sentMs;
    this.#status = status;
    this.#headers = readHeaders(controller);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes <= this.#maxBytes) this.#chunks.push(chunk);
    else this.fail(new EspalierError("upstream_protocol_error", `The answer is longer than ${this.#maxBytes} bytes.`));
  }

  onResponseEnd(): void {
    if (this.#done || !this.#connection) return;
    if (this.#connection.broken) {
      this.fail(new EspalierError("upstream_connect_failed", "The connection was reset at the end of the answer."));
      return;
    }
    this.#done = true;
    this.#pool.release(this.#connection);
    const answer = { status: this.#status, headers: this.#headers, body: Buffer.concat(this.#chunks).toString() };
    this.#settled(this.#headMs === undefined ? answer : { ...answer, headMs: this.#headMs });
  }

  onResponseError(_controller: unknown, thrown: Error): void {
    if (this.#done) return;
    if (this.#status === 0 && !this.#redialled && (this.#connection?.answered ?? 0) > 0) this.#redial();
    else this.fail(controlError(thrown, this.#connection?.ended ?? false));
  }

  #redial(): void {
    this.#redialled = true;
    const connection = this.#connection;
    this.#connection = undefined;
    this.#pool.discardIdle();
    if (connection) this.#pool.discard(connection);
    this.start();
  }
}

/** Headers by lower-case name; values of repeated names are joined. */
function readHeaders(controller: Dispatcher.DispatchController): Record<string, string> {
  const raw = controller.rawHeaders as Buffer[];
  const headers: Record<string, string> = {};
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]!.toString("latin1").toLowerCase();
    const value = raw[i + 1]!.toString("latin1");
    const earlier = Object.hasOwn(headers, name) ? headers[name] : undefined;
    headers[name] = earlier === undefined ? value : `${earlier}, ${value}`;
  }
  return headers;
}

/** Maps a failure to the errors of the `HttpClient` port. */
function controlError(thrown: Error, ended: boolean): EspalierError {
  const classified = classifyError(thrown, "sent", ended);
  if (classified instanceof EspalierError) return classified;
  const code = classified.kind === "protocol" ? "upstream_protocol_error" : "upstream_connect_failed";
  return new EspalierError(code, undefined, { cause: thrown });
}

/** The client for control traffic whose answers are read as they come. */
function createHttpStreamClient(pools: UpstreamPools, scheduler: Scheduler): HttpStreamClient {
  return (request, observer) => {
    const url = URL.canParse(request.url) ? new URL(request.url) : undefined;
    const call = new StreamCall(observer);
    try {
      call.start(pools.of(url?.origin ?? request.url), wireOf(request, url), scheduler, request.headTimeoutMs);
    } catch (thrown) {
      scheduler.after(0, () => call.end(thrown as EspalierError));
    }
    return () => call.cancel();
  };
}

function wireOf({ headers = {} }: HttpStreamRequest, url: URL | undefined): WireRequest {
  const path = `${url?.pathname ?? "/"}${url?.search ?? ""}`;
  return { method: "GET", path, headers: Object.entries(headers).flat(), body: null };
}

class StreamCall implements Dispatcher.DispatchHandler, ConnectionUser {
  readonly #observer: HttpStreamObserver;
  #pool: EnginePool | undefined;
  #request: WireRequest | undefined;
  #connection: Connection | undefined;
  #cancelTimeout: Cancel = () => {};
  #done = false;

  constructor(observer: HttpStreamObserver) {
    this.#observer = observer;
  }

  start(pool: EnginePool, request: WireRequest, scheduler: Scheduler, headTimeoutMs: number): void {
    this.#pool = pool;
    this.#request = request;
    this.#cancelTimeout = scheduler.after(headTimeoutMs, () => this.end(new EspalierError("upstream_timeout")));
    // A long-lived stream must not start on a stale connection.
    pool.discardIdle();
    if (pool.acquire(this)) return;
    this.#cancelTimeout();
    const full = new EspalierError("upstream_connect_failed", "Too many control requests wait for this address.");
    scheduler.after(0, () => this.end(full));
  }

  /** Ends it, complete or not, and notifies the observer. */
  end(error: EspalierError | undefined): void {
    if (this.#done) return;
    this.#release(error === undefined);
    this.#observer.onEnd(error);
  }

  cancel(): void {
    if (!this.#done) this.#release(false);
  }

  #release(isComplete: boolean): void {
    this.#done = true;
    this.#cancelTimeout();
    if (!this.#connection) this.#pool?.forget(this);
    else if (isComplete) this.#pool?.release(this.#connection);
    else this.#pool?.discard(this.#connection);
  }

  assigned(connection: Connection): void {
    this.#connection = connection;
    connection.dispatch(this.#request!, this);
  }

  onRequestStart(): void {}

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200 || this.#done) return;
    this.#cancelTimeout();
    this.#observer.onHead(status, readHeaders(controller));
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#done) this.#observer.onData(chunk);
  }

  onResponseEnd(): void {
    if (this.#connection?.broken) {
      this.end(new EspalierError("upstream_connect_failed", "The connection was reset in the middle of the answer."));
    } else this.end(undefined);
  }

  onResponseError(_controller: unknown, thrown: Error): void {
    this.end(controlError(thrown, this.#connection?.ended ?? false));
  }
}

/** Per address. Streamed answers occupy a connection each. */
const maxConnections = 128;
/** Control requests that wait for a connection to one address. */
const maxQueued = 128;
const keepAliveTimeoutMs = 4_000;

export interface ControlHttpDeps {
  readonly scheduler: Scheduler;
  readonly tls?: TlsOptions;
}

/** Control traffic to servers other than engines, with its own TLS options and connections. */
export interface ControlHttp {
  readonly request: HttpClient;
  readonly stream: HttpStreamClient;
  /** Closes every connection when it becomes idle. */
  close(): void;
}

/** Nothing is opened before the first request. */
export function createControlHttp({ scheduler, tls = {} }: ControlHttpDeps): ControlHttp {
  const pools = createUpstreamPools({ maxConnections, maxQueued, keepAliveTimeoutMs, tls: { current: tls } });
  return {
    request: createHttpClient(pools, scheduler),
    stream: createHttpStreamClient(pools, scheduler),
    close: () => pools.close(),
  };
}
