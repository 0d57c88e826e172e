import {
  type Cancel,
  EspalierError,
  type HttpStreamClient,
  type HttpStreamObserver,
  type HttpStreamRequest,
  type Scheduler,
} from "@espalier/common";
import type { Dispatcher } from "undici";
import type { Connection, WireRequest } from "./connection.ts";
import type { ConnectionUser, EnginePool } from "./engine-pool.ts";
import { controlError, readHeaders } from "./http-client.ts";
import type { UpstreamPools } from "./upstream-pools.ts";

/** The client for control traffic whose answers are read as they come. */
export function createHttpStreamClient(pools: UpstreamPools, scheduler: Scheduler): HttpStreamClient {
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
    // An answer that is waited for this long must not begin on a connection that went stale while idle.
    pool.discardIdle();
    if (pool.acquire(this)) return;
    this.#cancelTimeout();
    const full = new EspalierError("upstream_connect_failed", "Too many control requests wait for this address.");
    scheduler.after(0, () => this.end(full));
  }

  /** Ends it, complete or not, and tells. */
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
