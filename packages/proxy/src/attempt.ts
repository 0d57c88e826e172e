import { type ErrorCode, EspalierError } from "@espalier/common";
import type { Dispatcher } from "undici";
import type { Connection, WireRequest } from "./connection.ts";
import type { Deadlined, Deadlines } from "./deadlines.ts";
import { type AttemptStage, classifyError, type FailureKind } from "./failure.ts";
import type { ConnectionUser, EnginePool } from "./upstream-pools.ts";

/** An unwanted answer is read to its end up to this size and time, to keep the connection; past either it is closed. */
const maxDiscardedBytes = 64 * 1024;
const maxDiscardMs = 2_000;
/** A kept connection that had gone stale ends about a round trip after the request was sent; later, the engine was at work on it. */
const maxStaleMs = 1_000;

/** What an attempt reports, and to whom. After `ended`, `failed` or `overdue` nothing more is reported. */
export interface AttemptOwner {
  /** The final status and headers came. @returns false to have the answer discarded, and hear no more of it */
  answered(status: number, rawHeaders: readonly Buffer[]): boolean;
  /** @returns false when no more is wanted until `resume` */
  received(chunk: Buffer): boolean;
  ended(): void;
  failed(kind: FailureKind, error: EspalierError): void;
  /** It ended through no fault of the engine: the request cannot be sent, or its deadline passed, or `abort`. */
  refused(error: EspalierError): void;
  /** The reader has taken nothing for too long. */
  stalled(): void;
}

export interface AttemptLimits {
  readonly connectTimeoutMs: number;
  readonly headersTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly clientWriteTimeoutMs: number;
}

/** What may be sent again of one client's request; everything that is sent for it shares one. */
export interface ResendGuard {
  /** Whether it may have been read by an engine, so that a further copy should not be lost to a stale connection. */
  readonly isResent: boolean;
  /** A connection ended with the request on it. */
  broke(): void;
  /** Takes the one resend at no charge: on a new connection, in place of a kept one that had gone stale. @returns whether it was left */
  redial(): boolean;
}

/** What one request sets for each of its attempts. */
export interface AttemptTerms {
  /** On the clock's scale, when the whole answer must be there; infinite where nobody says. */
  readonly deadlineMs: number;
  readonly resends: ResendGuard;
}

/**
 * - `queued`: waits for a connection. - `dialling`: has one that may not be open yet. - `sent`: waits for the answer.
 * - `begun`: the body has begun. - `discarding`: the answer is unwanted. - `done`.
 */
type Phase = "queued" | "dialling" | "sent" | "begun" | "discarding" | "done";

/** One request on its way to one engine: a handler of undici that knows how far it is and when it is overdue. */
export class Attempt implements Dispatcher.DispatchHandler, ConnectionUser, Deadlined {
  slot = -1;
  readonly #owner: AttemptOwner;
  readonly #pool: EnginePool;
  readonly #request: WireRequest;
  readonly #deadlines: Deadlines;
  readonly #limits: AttemptLimits;
  readonly #startedAtMs: number;
  readonly #terms: AttemptTerms;
  #phase: Phase = "queued";
  #connection: Connection | undefined;
  /** Since when the present phase, or the present silence in a body, lasts. */
  #sinceMs: number;
  /** Whether there was a chunk, a pause or a resumption since the last sweep. */
  #active = false;
  #paused = false;
  #discardedBytes = 0;

  constructor(
    owner: AttemptOwner,
    pool: EnginePool,
    request: WireRequest,
    deadlines: Deadlines,
    limits: AttemptLimits,
    terms: AttemptTerms,
  ) {
    this.#owner = owner;
    this.#pool = pool;
    this.#request = request;
    this.#deadlines = deadlines;
    this.#limits = limits;
    this.#terms = terms;
    this.#startedAtMs = deadlines.nowMs();
    this.#sinceMs = this.#startedAtMs;
  }

  /** @returns false when the engine has no connection and no place in the queue; then nothing is reported */
  start(): boolean {
    this.#deadlines.watch(this);
    if (this.#acquire()) return true;
    this.#finish();
    return false;
  }

  /** Reads on after `received` returned false. */
  resume(): void {
    if (this.#phase !== "begun" || !this.#paused) return;
    this.#paused = false;
    this.#active = true;
    this.#connection?.flow();
  }

  /** Ends it at once and reports nothing. */
  cancel(): void {
    if (this.#phase === "done") return;
    this.#finish();
    if (this.#connection) this.#pool.discard(this.#connection);
    else this.#pool.forget(this);
  }

  /** Ends it at once and tells the owner why. */
  abort(error: EspalierError): void {
    this.#end(() => this.#owner.refused(error));
  }

  assigned(connection: Connection): void {
    this.#connection = connection;
    this.#phase = "dialling";
    this.#sinceMs = this.#deadlines.nowMs();
    connection.dispatch(this.#request, this);
  }

  onRequestStart(): void {
    if (this.#phase === "dialling") this.#phase = "sent";
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200 || this.#phase !== "sent") return;
    if (this.#owner.answered(status, controller.rawHeaders as Buffer[])) return;
    if (this.#isDone()) return;
    this.#phase = "discarding";
    this.#sinceMs = this.#deadlines.nowMs();
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#phase === "discarding") this.#discard(chunk);
    if (this.#phase === "sent") this.#phase = "begun";
    if (this.#phase !== "begun") return;
    this.#active = true;
    if (this.#owner.received(chunk) || this.#paused || this.#isDone()) return;
    this.#paused = true;
    this.#connection?.hold();
  }

  onResponseEnd(): void {
    if (this.#phase === "done") return;
    const wanted = this.#phase !== "discarding";
    const connection = this.#connection;
    if (!connection) return;
    // A body without a length ends with its connection, and undici takes a reset for such an end.
    if (connection.broken) {
      this.onResponseError(undefined, new Error("The connection was reset at the end of the body."));
      return;
    }
    this.#finish();
    this.#pool.release(connection);
    if (wanted) this.#owner.ended();
  }

  onResponseError(_controller: unknown, error: Error): void {
    if (this.#phase === "done") return;
    const classified = classifyError(error, this.#stage(), this.#connection?.ended ?? false);
    if (classified instanceof EspalierError) this.abort(classified);
    else if (classified.kind !== "protocol" && this.#isStale() && this.#terms.resends.redial()) this.#redial();
    else {
      if (classified.kind === "reset" && this.#phase !== "discarding") this.#terms.resends.broke();
      this.#end(() => this.#owner.failed(classified.kind, classified.error));
    }
  }

  sweep(nowMs: number): void {
    if (nowMs >= this.#terms.deadlineMs && this.#phase !== "discarding") {
      this.abort(new EspalierError("upstream_timeout", "The answer was not complete by the request's deadline."));
      return;
    }
    switch (this.#phase) {
      case "queued":
        if (nowMs - this.#startedAtMs >= this.#limits.headersTimeoutMs) this.#overdue("overloaded", "overloaded");
        break;
      case "dialling":
        if (nowMs - this.#sinceMs >= this.#limits.connectTimeoutMs) this.#overdue("connect", "upstream_connect_failed");
        break;
      case "sent":
        if (nowMs - this.#startedAtMs >= this.#limits.headersTimeoutMs) this.#overdue("timeout", "upstream_timeout");
        break;
      case "begun":
        this.#sweepBody(nowMs);
        break;
      case "discarding":
        if (nowMs - this.#sinceMs >= maxDiscardMs) this.cancel();
        break;
    }
  }

  #sweepBody(nowMs: number): void {
    if (this.#active) {
      this.#active = false;
      this.#sinceMs = nowMs;
      return;
    }
    const silentMs = nowMs - this.#sinceMs;
    if (!this.#paused && silentMs >= this.#limits.idleTimeoutMs) this.#overdue("timeout", "upstream_timeout");
    else if (this.#paused && silentMs >= this.#limits.clientWriteTimeoutMs) this.#end(() => this.#owner.stalled());
  }

  #overdue(kind: FailureKind, code: ErrorCode): void {
    this.#end(() => this.#owner.failed(kind, new EspalierError(code)));
  }

  #stage(): AttemptStage {
    if (this.#phase === "dialling") return "unsent";
    return this.#phase === "begun" ? "begun" : "sent";
  }

  /** Whether the engine closed the kept connection while it was idle, or is a new process. */
  #isStale(): boolean {
    if (this.#phase !== "dialling" && this.#phase !== "sent") return false;
    return (this.#connection?.answered ?? 0) > 0 && this.#deadlines.nowMs() - this.#sinceMs < maxStaleMs;
  }

  #acquire(): boolean {
    return this.#pool.acquire(this, this.#terms.resends.isResent);
  }

  #redial(): void {
    this.#phase = "queued";
    const connection = this.#connection;
    this.#connection = undefined;
    this.#pool.discardIdle();
    if (connection) this.#pool.discard(connection);
    if (this.#acquire()) return;
    this.#finish();
    this.#owner.failed("overloaded", new EspalierError("overloaded"));
  }

  #discard(chunk: Buffer): void {
    this.#discardedBytes += chunk.length;
    if (this.#discardedBytes > maxDiscardedBytes) this.cancel();
  }

  /** Gives the connection up and reports the end. */
  #end(report: () => void): void {
    const wanted = this.#phase !== "discarding";
    this.cancel();
    if (wanted) report();
  }

  #finish(): void {
    this.#phase = "done";
    this.#deadlines.forget(this);
  }

  /** A callback may have ended the attempt; a method call keeps the compiler from assuming otherwise. */
  #isDone(): boolean {
    return this.#phase === "done";
  }
}
