import { type AnswerFault, type ApiFamily, errorStreamFrame } from "@espalier/api";
import { asEspalierError, EspalierError, type Logger } from "@espalier/core";
import {
  type FailureKind as AttemptFailureKind,
  type AttemptOwner,
  answerHeaders,
  dropHeader,
  type Proxy as EngineProxy,
  PiecedBody,
  type RunningAttempt,
  retryAfterMs,
  type Upstream,
  type WireBody,
  wireBody,
} from "@espalier/engines";
import type { FailureKind, Retries } from "@espalier/routing";
import type { RelayMetrics } from "../data-plane/request-metrics.ts";
import { type BodyFilter, type ClientResponse, ResponseSink } from "./response-sink.ts";

/** One engine as the relay sees it. */
export interface Engine extends Upstream {
  /** Replaces the request's body for this engine. */
  readonly body?: readonly Buffer[] | undefined;
}

/** One client's request. */
export interface RelayedRequest {
  readonly method: string;
  /** With the query; begins with a slash. */
  readonly path: string;
  /** For engines, as flat pairs: from `requestHeaders`. */
  readonly headers: readonly string[];
  readonly requestId: string;
  /** Empty once the answer has begun. */
  readonly body: readonly Buffer[];
  /** API family of the error frame in a stream that was cut. */
  readonly family: ApiFamily;
  /** When the answer must be complete, on the scale of the clock's `nowMs`; no limit by default. */
  readonly answerDueMs?: number;
}

/** Shared by all relays. */
export interface RelayParts {
  readonly proxy: Pick<EngineProxy, "attempt">;
  /** Statuses after which another engine is tried; 429 is one. */
  readonly retryStatuses: ReadonlySet<number>;
  readonly relayMetrics: RelayMetrics;
  readonly logger: Logger;
}

/** Why one attempt did not give the client a whole answer. */
export interface AttemptFailure {
  readonly kind: FailureKind;
  /** The engine's status, for kind `status`. */
  readonly status?: number;
  /** The engine's Retry-After, for kind `status`; absent when it sent none. */
  readonly retryAfterMs?: number | undefined;
  /** Whether it failed before the first byte of the body, so that another engine may still answer. */
  readonly beforeFirstByte: boolean;
  readonly error: EspalierError;
}

export type RelayOutcome =
  /** `bytes` is the size of the body that was written. */
  | { readonly kind: "completed"; readonly status: number; readonly bytes: number }
  /** Nothing was written: the caller answers the error. */
  | { readonly kind: "failed"; readonly error: EspalierError }
  /** Failed after the first byte. The client's response has been ended with an error frame, or destroyed. */
  | { readonly kind: "cut"; readonly error: EspalierError }
  /** The client went away, or stopped reading for too long. */
  | { readonly kind: "client_closed" };

/**
 * The verdict on the beginning of an answer. `more` asks for a longer beginning; `unknown_model` is the engine's, and so is a
 * fault of an answer with status 200.
 */
export type Verdict = "pass" | "decline" | "more" | "unknown_model" | AnswerFault;

/** Whether a request was not taken, by the status of the error with which its answer begins. */
export function isRefusal(status: number): boolean {
  return status < 500 || status === 503;
}

/** The engine of the next attempt: undefined when none is left, `later` when the subclass will call `proceed`. */
export type NextEngine = Engine | "later" | undefined;

/** A longer beginning of an answer passes without a final verdict. */
const maxJudgedBytes = 64 * 1024;

const noBytes = Buffer.alloc(0);

/**
 * Gives one client the answer of one of several engines. Makes attempts one at a time until an answer's first byte, and
 * from then on relays that engine's bytes. Withholds the engine's headers until the first byte of its body: engines
 * send headers when they accept a request, long before the prompt is processed, and another engine can take over until
 * a byte was sent. Subclasses choose the engines and account for the attempts.
 */
export abstract class Relay implements AttemptOwner {
  protected readonly retries: Retries;
  readonly #parts: RelayParts;
  readonly #request: RelayedRequest;
  readonly #response: ClientResponse;
  readonly #sink: ResponseSink;
  /** The client's body, and the one sent to the engine of the present attempt. */
  #body: WireBody = null;
  #sent: WireBody = null;
  /** The beginning of a body without a verdict yet. */
  #judgedHead: Buffer | undefined;
  /** The current attempt. */
  #attempt: RunningAttempt | undefined;
  #lastError: EspalierError | undefined;
  /** Of the present attempt's answer; 0 before its headers. */
  #status = 0;
  #rawHeaders: readonly Buffer[] = [];
  /** Whether the head of an answer was sent to the client. */
  #committed = false;
  /** Whether the body is an event stream to which a frame of our own can be added. */
  #takesFrames = false;
  #draining = false;
  #done = false;

  protected constructor(parts: RelayParts, request: RelayedRequest, response: ClientResponse, retries: Retries) {
    this.#parts = parts;
    this.#request = request;
    this.#response = response;
    this.#sink = new ResponseSink(response);
    this.retries = retries;
  }

  /** Chooses the engine of the next attempt. Must not choose one that failed. */
  protected abstract choose(): NextEngine;
  /** The attempt at the chosen engine is being sent. */
  protected abstract attemptStarted(): void;
  /**
   * The attempt failed through the engine's fault. Called before another engine is chosen. A failure of kind `status`
   * may still be followed by `answerStarted`: when no engine is left, the client gets that same answer. Not called when
   * the client went away or the request's own deadline passed.
   */
  protected abstract attemptFailed(failure: AttemptFailure): void;
  /** Checks the beginning of a body. At 64 KiB, or at the end of the body, it passes unless declined. */
  protected abstract judge(status: number, head: Buffer, ended: boolean): Verdict;
  /** The filter that reads or changes the body in transit. */
  protected abstract bodyFilter(status: number, contentType: string): BodyFilter | undefined;
  /** See `AttemptOwner`. */
  abstract readonly awaitsContent: boolean;
  /** Flat pairs, names in lower case, for the client's response. They replace the engine's headers of the same names. */
  protected abstract responseHeaders(): readonly string[];
  /** The client gets this answer, and there are no more attempts. @param headers the engine's, as flat pairs */
  protected abstract answerStarted(status: number, headers: readonly string[]): void;
  /** The first byte of the body arrived from the engine. */
  protected abstract firstByte(): void;
  /** The request is over. Called once. */
  protected abstract settled(outcome: RelayOutcome): void;

  /** Whether another engine may do better than one that answers with this status. */
  protected passesOver(status: number): boolean {
    return this.#parts.retryStatuses.has(status);
  }

  protected get isDone(): boolean {
    return this.#done;
  }

  /** Watches the client from now on. @returns whether it is still connected */
  protected open(): boolean {
    if (this.#response.destroyed) {
      this.#clientClosed();
      return false;
    }
    this.#response.once("close", () => this.#clientClosed());
    return true;
  }

  /** Makes the first attempt. */
  protected launch(): void {
    if (this.#done) return;
    if (!this.#request.path.startsWith("/")) {
      this.#fail(new EspalierError("bad_request", "The path has no leading slash."));
      return;
    }
    this.retries.begin();
    try {
      this.#body = wireBody(this.#request.body);
      this.#launch(this.choose());
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  /** Tells that what `choose` waited for is ready: calls it again. */
  protected proceed(): void {
    if (this.#done) return;
    try {
      this.#launch(this.choose());
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  /** Ends the request with an error; no further attempts are made. */
  protected refuse(error: EspalierError): void {
    this.#close(error);
  }

  /**
   * Ends the current attempt as a failure of kind `withdrawn`. Does nothing once a byte of its answer was sent to the
   * client, or when it is over. Must not be called inside a hook.
   */
  protected withdrawAttempt(): void {
    if (this.#done || this.#committed || !this.#attempt) return;
    this.#giveUp("withdrawn", new EspalierError("upstream_reset"));
  }

  /** A hook threw, or the code has a defect. No exception may reach undici. */
  protected crash(thrown: unknown): void {
    if (this.#done) return;
    this.#parts.logger.error("a request failed through a defect", { requestId: this.#request.requestId, thrown });
    this.#attempt?.cancel();
    this.#close(asEspalierError(thrown));
  }

  answered(status: number, rawHeaders: readonly Buffer[]): boolean {
    try {
      if (this.passesOver(status) && this.#passOver(status, rawHeaders)) return false;
    } catch (thrown) {
      this.crash(thrown);
      return false;
    }
    this.#status = status;
    this.#rawHeaders = rawHeaders;
    return true;
  }

  received(chunk: Buffer): boolean {
    try {
      const due = this.#committed ? chunk : this.#begin(chunk, false);
      if (due === undefined || this.#sink.write(due)) return !this.#done;
    } catch (thrown) {
      this.crash(thrown);
      return false;
    }
    if (!this.#draining) {
      this.#draining = true;
      this.#response.once("drain", () => {
        this.#draining = false;
        this.#attempt?.resume();
      });
    }
    return false;
  }

  ended(): void {
    try {
      if (!this.#committed) {
        const rest = this.#begin(undefined, true);
        if (!this.#committed) return;
        if (rest !== undefined) this.#sink.write(rest);
      }
      this.#sink.end();
      this.#parts.relayMetrics.answered.add();
      this.#finish({ kind: "completed", status: this.#status, bytes: this.#sink.bytes });
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  failed(kind: AttemptFailureKind, error: EspalierError): void {
    this.#lost(kind, error);
  }

  refused(error: EspalierError): void {
    this.#parts.relayMetrics.abandoned.add();
    this.#close(error);
  }

  /** A response queued behind another one on its connection does not emit `close`. */
  stalled(): void {
    this.#sink.destroy();
    this.#clientClosed();
  }

  /** Makes attempts until one is in progress or choosing takes time. */
  #launch(first: NextEngine): void {
    let engine = first;
    while (engine !== undefined) {
      this.#attempt = undefined;
      if (engine === "later") return;
      const failure = this.#try(engine);
      if (failure === undefined) return;
      engine = this.retries.after(failure, false, () => this.choose());
    }
    this.#fail(this.#lastError ?? new EspalierError("no_engine_available"));
  }

  /** @returns undefined when the attempt is in progress; else how it failed, already reported */
  #try(engine: Engine): FailureKind | undefined {
    const { method, path, headers, answerDueMs } = this.#request;
    this.#status = 0;
    this.#judgedHead = undefined;
    this.attemptStarted();
    try {
      this.#sent = engine.body ? wireBody(engine.body) : this.#body;
      this.#attempt = this.#parts.proxy.attempt(this, {
        upstream: engine,
        method,
        path,
        headers,
        body: this.#sent,
        deadlineMs: answerDueMs ?? Number.POSITIVE_INFINITY,
        resends: this.retries,
      });
    } catch (thrown) {
      return this.#lose("connect", asEspalierError(thrown));
    }
    if (this.#attempt.start()) return undefined;
    return this.#lose("overloaded", new EspalierError("overloaded", "The engine's queue is full."));
  }

  /** Counts and reports a failed attempt. */
  #lose(kind: FailureKind, error: EspalierError): FailureKind {
    this.#parts.relayMetrics.failed[kind].add();
    this.#attempt = undefined;
    this.#lastError = error;
    this.attemptFailed({ kind, beforeFirstByte: !this.#committed, error });
    return kind;
  }

  #lost(kind: FailureKind, error: EspalierError): void {
    try {
      this.#lose(kind, error);
      const next = this.#committed ? undefined : this.retries.after(kind, this.#status > 0, () => this.choose());
      if (next !== undefined) this.#launch(next);
      else this.#close(error);
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  /**
   * Discards an answer to try another engine.
   *
   * @returns false when there is no other engine or no budget: the answer is then used
   */
  #passOver(status: number, rawHeaders: readonly Buffer[]): boolean {
    if (!this.retries.mayCharge()) return false;
    const error = new EspalierError("no_engine_available", `The engine answered with status ${status}.`);
    this.#lastError = error;
    const answer = { status, retryAfterMs: retryAfterMs(rawHeaders) };
    this.attemptFailed({ kind: "status", beforeFirstByte: true, error, ...answer });
    const next = this.retries.charged(() => this.choose());
    if (next === undefined) return false;
    this.#parts.relayMetrics.failed.status.add();
    this.#launch(next);
    return true;
  }

  /**
   * Begins the answer unless it is declined: writes the engine's status and headers.
   *
   * @returns the part of the body to write now, or undefined for none; `#committed` tells whether the answer has begun
   */
  #begin(chunk: Buffer | undefined, ended: boolean): Buffer | undefined {
    const head = this.#judgedHead ? Buffer.concat([this.#judgedHead, chunk ?? noBytes]) : chunk;
    this.#judgedHead = undefined;
    if (head !== undefined || ended) {
      const verdict = this.judge(this.#status, head ?? noBytes, ended);
      if (verdict === "decline") {
        this.#giveUp("declined", new EspalierError("no_engine_available"));
        return undefined;
      }
      if (verdict === "unknown_model") {
        this.#giveUp("unknown_model", new EspalierError("model_not_found", undefined, { param: "model" }));
        return undefined;
      }
      if (verdict === "more" && head !== undefined && !ended && head.length < maxJudgedBytes) {
        this.#judgedHead = Buffer.from(head);
        return undefined;
      }
      if (typeof verdict === "object" && this.#giveUpFaulty(verdict)) return undefined;
    }
    const headers = this.#writeHead();
    if (headers instanceof EspalierError) {
      this.#giveUp("protocol", headers);
      return undefined;
    }
    this.#committed = true;
    this.releaseBody();
    this.answerStarted(this.#status, headers);
    if (head !== undefined) this.firstByte();
    return head;
  }

  /** @returns the engine's headers that the client may see, or why they cannot be written: then nothing was written */
  #writeHead(): readonly string[] | EspalierError {
    const { pairs, contentType, encoded } = answerHeaders(this.#rawHeaders);
    const isEvents = contentType.startsWith("text/event-stream");
    const bodiless = this.#request.method === "HEAD" || this.#status === 204 || this.#status === 304;
    // A compressed body cannot be read, and a filter that looks for the end of an event would hold all of it back.
    const filter = bodiless || encoded ? undefined : this.bodyFilter(this.#status, contentType);
    // A stream may need an error frame at its end.
    if (filter?.changesLength || isEvents) dropHeader(pairs, "content-length");
    const extra = this.responseHeaders();
    for (let i = 0; i < extra.length; i += 2) dropHeader(pairs, extra[i]!);
    try {
      this.#sink.begin(this.#status, pairs.concat(extra), filter);
    } catch (thrown) {
      return new EspalierError("upstream_protocol_error", undefined, { cause: thrown });
    }
    this.#takesFrames = isEvents && !encoded;
    return pairs;
  }

  /** Releases the bodies: nothing is resent once the answer has begun, or once another has the request. */
  protected releaseBody(): void {
    for (const body of [this.#body, this.#sent]) if (body instanceof PiecedBody) body.release();
    this.#body = null;
    this.#sent = null;
  }

  /**
   * Gives up an answer with status 200 that is empty, or begins with an error by which the engine says that it did not take the
   * request. After any other error, it may have computed.
   */
  #giveUpFaulty({ kind, status }: AnswerFault): boolean {
    if (kind === "empty") {
      this.#giveUp("broken", new EspalierError("upstream_cut_short"));
      return true;
    }
    const attempt = this.#attempt;
    if (!isRefusal(status) || !this.passesOver(status) || !this.#passOver(status, [])) return false;
    attempt?.cancel();
    return true;
  }

  /** Cancels the current attempt; others may follow. */
  #giveUp(kind: FailureKind, error: EspalierError): void {
    this.#attempt?.cancel();
    this.#lost(kind, error);
  }

  #clientClosed(): void {
    if (this.#done) return;
    this.#attempt?.cancel();
    if (this.#attempt) this.#parts.relayMetrics.abandoned.add();
    this.#finish({ kind: "client_closed" });
  }

  /** Ends with an error in whichever way is still possible. */
  #close(error: EspalierError): void {
    if (!this.#committed) {
      this.#fail(error);
      return;
    }
    if (this.#takesFrames) this.#sink.endWithFrame(errorStreamFrame(this.#request.family, error));
    else this.#sink.destroy();
    this.#finish({ kind: "cut", error });
  }

  #fail(error: EspalierError): void {
    this.#finish({ kind: "failed", error: this.retries.verdict(error) });
  }

  #finish(outcome: RelayOutcome): void {
    if (this.#done) return;
    this.#done = true;
    this.#parts.relayMetrics.responseBytes(this.#sink.bytes);
    this.settled(outcome);
  }
}
