import { type ErrorCode, EspalierError } from "@espalier/core";
import type { Dispatcher } from "undici";
import type { Connection, WireRequest } from "./connection.ts";
import type { Deadlined, Deadlines } from "./deadlines.ts";
import { type AttemptStage, classifyError, type FailureKind } from "./failure.ts";
import { isCoded } from "./headers.ts";
import { StreamedBody } from "./streamed-body.ts";
import type { ConnectionUser, EnginePool } from "./upstream-pools.ts";

/**
 * Maximum size and time for reading a discarded answer to keep its connection; past either, the connection is closed.
 */
const maxDiscardedBytes = 64 * 1024;
/** Longest time for reading a discarded answer. */
const maxDiscardMs = 2_000;
/**
 * A stale kept connection fails about a round trip after the request was written. Later the engine may have been working on
 * it, and a copy is a resend like any other.
 */
const maxStaleMs = 50;

/** An attempt as its owner controls it. */
export interface RunningAttempt {
  /** @returns false when all connections are in use and the queue is full; then nothing is reported */
  start(): boolean;
  /** Continues reading after `received` returned false. */
  resume(): void;
  /** Ends it at once without a report. */
  cancel(): void;
}

/** Receives the events of an attempt. Nothing follows `ended`, `failed`, `refused` or `stalled`. */
export interface AttemptOwner {
  /** Whether a body that has begun has no content yet, such as a stream of comments alone. */
  readonly awaitsContent: boolean;
  /** The final status and headers arrived. @returns false to discard the answer without further events */
  answered(status: number, rawHeaders: readonly Buffer[]): boolean;
  /** @returns false to pause until `resume` */
  received(chunk: Buffer): boolean;
  ended(): void;
  failed(kind: FailureKind, error: EspalierError): void;
  /** It ended without fault of the engine: the request cannot be sent, its deadline passed, or `abort` was called. */
  refused(error: EspalierError): void;
  /** The client has read nothing for too long. */
  stalled(): void;
}

export interface AttemptLimits {
  readonly connectMs: number;
  readonly firstByteMs: number;
  readonly idleMs: number;
  readonly clientWriteMs: number;
}

/** Limits resends of one client's request; shared by everything that is sent for it. */
export interface ResendGuard {
  /** Whether an engine may have read the request already, so that a copy should go out on a new connection. */
  readonly isResent: boolean;
  /** A connection ended with the request on it. */
  broke(): void;
  /** Takes the one free resend, on a new connection after a stale kept one. @returns whether it was available */
  redial(): boolean;
}

/** Terms of a request that apply to each of its attempts. */
export interface AttemptTerms {
  /** When the answer must be complete, on the clock's scale; Infinity for no deadline. */
  readonly deadlineMs: number;
  readonly resends: ResendGuard;
}

/**
 * - `queued`: waits for a connection. - `dialling`: has one that may not be open yet. - `sent`: waits for the answer.
 * - `headed`: has its head, and waits for the body. - `begun`: the body has begun. - `discarding`: the answer is unwanted.
 * - `done`.
 */
type Phase = "queued" | "dialling" | "sent" | "headed" | "begun" | "discarding" | "done";

/** One request to one engine: an undici handler that tracks its phase and time limits. */
export class Attempt implements RunningAttempt, Dispatcher.DispatchHandler, ConnectionUser, Deadlined {
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
  /** Start of the present phase, or of the present silence in a body. */
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

  start(): boolean {
    this.#deadlines.watch(this);
    if (this.#acquire()) return true;
    this.#finish();
    return false;
  }

  resume(): void {
    if (this.#phase !== "begun" || !this.#paused) return;
    this.#paused = false;
    this.#active = true;
    this.#connection?.flow();
  }

  cancel(): void {
    if (this.#phase === "done") return;
    this.#finish();
    if (this.#connection) this.#pool.discard(this.#connection);
    else this.#pool.forget(this);
  }

  /** Ends it at once and reports the error to the owner. */
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
    this.#phase = "headed";
    const headers = controller.rawHeaders as Buffer[];
    const isWanted = this.#owner.answered(status, headers);
    if (this.#isDone()) return;
    if (!isWanted) {
      this.#phase = "discarding";
      this.#sinceMs = this.#deadlines.nowMs();
    } else if (isCoded(headers)) {
      this.#end(() => this.#owner.failed("protocol", new EspalierError("upstream_protocol_error")));
    }
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#phase === "discarding") this.#discard(chunk);
    if (this.#phase === "headed") this.#phase = "begun";
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
    // A body without a length ends with its connection, and undici reports a reset as such an end.
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
        if (nowMs - this.#startedAtMs >= this.#limits.firstByteMs) this.#overdue("overloaded", "overloaded");
        break;
      case "dialling":
        if (nowMs - this.#sinceMs >= this.#limits.connectMs) this.#overdue("connect", "upstream_connect_failed");
        break;
      case "sent":
      case "headed":
        if (nowMs - this.#startedAtMs >= this.#limits.firstByteMs) this.#overdue("timeout", "upstream_timeout");
        break;
      case "begun":
        if (this.#owner.awaitsContent && nowMs - this.#startedAtMs >= this.#limits.firstByteMs)
          this.#overdue("timeout", "upstream_timeout");
        else this.#sweepBody(nowMs);
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
    if (!this.#paused && silentMs >= this.#limits.idleMs) this.#overdue("timeout", "upstream_timeout");
    else if (this.#paused && silentMs >= this.#limits.clientWriteMs) this.#end(() => this.#owner.stalled());
  }

  #overdue(kind: FailureKind, code: ErrorCode): void {
    this.#end(() => this.#owner.failed(kind, new EspalierError(code)));
  }

  #stage(): AttemptStage {
    if (this.#phase === "dialling") return "unsent";
    return this.#phase === "begun" ? "begun" : "sent";
  }

  /** Whether a kept connection had gone stale: closed by the engine while idle, or by its restart. */
  #isStale(): boolean {
    if (this.#phase !== "dialling" && this.#phase !== "sent") return false;
    const { body } = this.#request;
    if (body instanceof StreamedBody && !body.isWhole) return false;
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
