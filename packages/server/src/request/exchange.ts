import type { AnswerFault, ApiFamily } from "@espalier/api";
import { asEspalierError, EspalierError, type Logger } from "@espalier/core";
import {
  type FailureKind as AttemptFailureKind,
  type AttemptOwner,
  type AttemptRequest,
  PiecedBody,
  type RunningAttempt,
  retryAfterMs,
  StreamedBody,
  type WireBody,
  wireBody,
} from "@espalier/engines";
import type { FailureKind } from "@espalier/routing";
import type { AnswerSource, Engine, ExchangeControl, ExchangeOutcome, NextEngine } from "./answer-source.ts";
import { ClientAnswer } from "./client-answer.ts";
import type { AttemptMetrics } from "./request-metrics.ts";
import type { ClientResponse } from "./response-sink.ts";

/** One client's request. */
export interface ExchangedRequest {
  readonly method: string;
  /** With the query; begins with a slash. */
  readonly path: string;
  /** For engines, as flat pairs: from `requestHeaders`. */
  readonly headers: readonly string[];
  readonly requestId: string;
  /** Empty once the answer has begun. */
  readonly body: readonly Buffer[];
  /** A body that is still arriving, in place of `body`. */
  readonly upload?: StreamedBody | undefined;
  /** API family of the error frame in a stream that was cut. */
  readonly family: ApiFamily;
  /** When the answer must be complete, on the scale of the clock's `nowMs`; no limit by default. */
  readonly answerDueMs?: number;
}

/** Brings attempts to engines: over HTTP, or on a gateway's stream. */
export interface Carrier {
  /** See `Proxy.attempt`. */
  attempt(owner: AttemptOwner, request: AttemptRequest): RunningAttempt;
  /** Whether it has passed an answer on before anybody could judge it, so that the first one is the client's. */
  readonly isFinal?: boolean;
}

/** Shared by exchanges over one carrier. */
export interface ExchangeParts {
  readonly carrier: Carrier;
  readonly attemptMetrics: AttemptMetrics;
  readonly logger: Logger;
}

/** Whether a request was not taken, by the status of the error with which its answer begins. */
function isRefusal(status: number): boolean {
  return status < 500 || status === 503;
}

/** A longer beginning of an answer passes without a final verdict. */
const maxJudgedBytes = 64 * 1024;

const noBytes = Buffer.alloc(0);

/**
 * Gives one client the answer of one of several engines. Makes attempts one at a time until an answer's first byte, and
 * from then on passes that engine's bytes on. Its source chooses the engines, and its carrier brings attempts to them.
 */
export class Exchange implements AttemptOwner, ExchangeControl {
  readonly #parts: ExchangeParts;
  readonly #request: ExchangedRequest;
  readonly #response: ClientResponse;
  readonly #source: AnswerSource;
  readonly #answer: ClientAnswer;
  /** The client's body, and the one sent to the engine of the present attempt. */
  #body: WireBody = null;
  #sent: WireBody = null;
  /** The current attempt. */
  #attempt: RunningAttempt | undefined;
  #lastError: EspalierError | undefined;
  #isDrainWatched = false;
  /** Whether another engine goes on with the stream. */
  #isResumed = false;
  #done = false;

  constructor(parts: ExchangeParts, request: ExchangedRequest, response: ClientResponse, source: AnswerSource) {
    this.#parts = parts;
    this.#request = request;
    this.#response = response;
    this.#answer = new ClientAnswer(response);
    this.#source = source;
  }

  get isDone(): boolean {
    return this.#done;
  }

  get awaitsContent(): boolean {
    return this.#source.reader.awaitsContent;
  }

  /** Watches the client from now on, and has the source begin. */
  start(): void {
    if (this.#response.destroyed) {
      this.#clientClosed();
      return;
    }
    this.#response.on("close", () => this.#clientClosed());
    const { upload } = this.#request;
    if (upload) upload.onFault = (fault) => this.#spoiled(asEspalierError(fault));
    try {
      this.#source.start(this);
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  launch(): void {
    if (this.#done) return;
    if (!this.#request.path.startsWith("/")) {
      this.#fail(new EspalierError("bad_request", "The path has no leading slash."));
      return;
    }
    this.#source.retries.begin();
    this.#body = this.#request.upload ?? wireBody(this.#request.body);
    this.proceed();
  }

  proceed(): void {
    if (this.#done) return;
    try {
      this.#launch(this.#source.choose());
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  refuse(error: EspalierError): void {
    this.#close(error);
  }

  withdraw(): void {
    if (this.#done || this.#answer.hasBegun || !this.#attempt || this.#isFinal) return;
    this.#giveUp("withdrawn", new EspalierError("upstream_reset"));
  }

  move(): boolean {
    if (this.#done || !this.#attempt || !this.#mayResume) return false;
    try {
      const attempt = this.#attempt;
      const leave = (): void => {
        attempt.cancel();
        this.#lose("withdrawn", new EspalierError("upstream_cut_short"));
      };
      return this.#resume("withdrawn", leave);
    } catch (thrown) {
      this.crash(thrown);
      return false;
    }
  }

  crash(thrown: unknown): void {
    if (this.#done) return;
    this.#parts.logger.error("request failed: defect of the router", { requestId: this.#request.requestId, thrown });
    this.#attempt?.cancel();
    this.#close(asEspalierError(thrown));
  }

  answered(status: number, rawHeaders: readonly Buffer[]): boolean {
    if (this.#answer.hasBegun) {
      if (this.#answer.goesOn(status, rawHeaders)) return true;
      this.#lost("status", statusError(status));
      return false;
    }
    try {
      const verdict = this.#isFinal ? "pass" : this.#source.judgeHead(status, rawHeaders);
      if (verdict === "pass_over" && this.#passOver(status, rawHeaders)) return false;
      if (verdict === "decline") {
        this.#lost("declined", statusError(status));
        return false;
      }
    } catch (thrown) {
      this.crash(thrown);
      return false;
    }
    this.#answer.head(status, rawHeaders);
    return true;
  }

  received(chunk: Buffer): boolean {
    try {
      const due = this.#answer.hasBegun ? chunk : this.#begin(chunk, false);
      if (due === undefined || this.#answer.write(due)) return !this.#done;
    } catch (thrown) {
      this.crash(thrown);
      return false;
    }
    if (!this.#isDrainWatched) {
      this.#isDrainWatched = true;
      this.#response.on("drain", () => this.#attempt?.resume());
    }
    return false;
  }

  ended(): void {
    try {
      if (!this.#answer.hasBegun) {
        const rest = this.#begin(undefined, true);
        if (!this.#answer.hasBegun) return;
        if (rest !== undefined) this.#answer.write(rest);
      }
      if (this.#source.reader.isBroken && this.#endBroken()) return;
      this.#complete();
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  failed(kind: AttemptFailureKind, error: EspalierError): void {
    this.#lost(kind, error);
  }

  refused(error: EspalierError): void {
    this.#parts.attemptMetrics.abandoned.add();
    this.#close(error);
  }

  /** A response queued behind another one on its connection does not emit `close`. */
  stalled(): void {
    this.#answer.destroy();
    this.#clientClosed();
  }

  /** The client has the whole answer. */
  #complete(): void {
    this.#answer.end();
    this.#parts.attemptMetrics.answered.add();
    this.#finish({ kind: "completed", status: this.#answer.status, bytes: this.#answer.bytes });
  }

  /** Makes attempts until one is in progress or choosing takes time. */
  #launch(first: NextEngine): void {
    let engine = first;
    while (engine !== undefined) {
      this.#attempt = undefined;
      if (engine === "later") return;
      const failure = this.#try(engine);
      if (failure === undefined) return;
      engine = this.#source.retries.after(failure, false, () => this.#chooseAgain());
    }
    this.#close(this.#lastError ?? new EspalierError("no_engine_available"));
  }

  /** @returns undefined when the attempt is in progress; else how it failed, already reported */
  #try(engine: Engine): FailureKind | undefined {
    const { method, path, headers, answerDueMs } = this.#request;
    this.#answer.reset();
    this.#source.started();
    try {
      this.#sent = engine.body ? wireBody(engine.body) : this.#body;
      this.#attempt = this.#parts.carrier.attempt(this, {
        upstream: engine,
        method,
        path,
        headers,
        body: this.#sent,
        deadlineMs: answerDueMs ?? Number.POSITIVE_INFINITY,
        resends: this.#source.retries,
      });
    } catch (thrown) {
      return this.#lose("connect", asEspalierError(thrown));
    }
    if (this.#attempt.start()) return undefined;
    return this.#lose("overloaded", new EspalierError("overloaded", "The engine's queue is full."));
  }

  /** A body of which an engine has taken more than is held goes to no other one. */
  #chooseAgain(): NextEngine {
    return this.#request.upload?.isWhole === false ? undefined : this.#source.choose();
  }

  get #isFinal(): boolean {
    return this.#parts.carrier.isFinal === true;
  }

  /** Counts and reports a failed attempt. */
  #lose(kind: FailureKind, error: EspalierError): FailureKind {
    this.#parts.attemptMetrics.failed[kind].add();
    this.#attempt = undefined;
    this.#lastError = error;
    this.#source.failed({ kind, beforeFirstByte: !this.#answer.hasBegun, error });
    return kind;
  }

  #lost(kind: FailureKind, error: EspalierError): void {
    try {
      this.#lose(kind, error);
      if (this.#mayResume && this.#resume(kind)) return;
      const isBegun = this.#answer.hasBegun && !this.#isResumed;
      const next = isBegun
        ? undefined
        : this.#source.retries.after(kind, this.#hasLastingHead, () => this.#chooseAgain());
      if (next !== undefined) this.#launch(next);
      else this.#close(error);
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  /** Whether the head of an answer came that no other engine's answer may replace. */
  get #hasLastingHead(): boolean {
    const { status } = this.#answer;
    return status > 0 && (status !== 200 || this.#source.mayBeginAnew !== true);
  }

  /** A gateway's stream has no place for the answer of another engine, nor has one that no event can be added to. */
  get #mayResume(): boolean {
    return this.#answer.takesFrames && !this.#isResumed && !this.#isFinal;
  }

  /**
   * Has another engine go on with a stream that broke.
   *
   * @param leave reports that the engine failed, where nobody has yet
   * @returns false when the client must get an error
   */
  #resume(kind: FailureKind, leave?: () => void): boolean {
    const next = this.#source.resumeStream?.(kind, leave);
    if (next === undefined) return false;
    if (Buffer.isBuffer(next)) {
      this.#answer.write(next);
      this.#complete();
      return true;
    }
    this.#isResumed = true;
    this.#launch(next);
    return true;
  }

  /**
   * A stream that is complete for HTTP has ended too early.
   *
   * @returns false when the client must get what the engine sent
   */
  #endBroken(): boolean {
    const error = new EspalierError("upstream_cut_short");
    let isLost = false;
    const leave = (): void => {
      isLost = true;
      this.#lose("broken", error);
    };
    if (this.#mayResume && this.#resume("broken", leave)) return true;
    if (this.#isResumed && !isLost) leave();
    if (isLost) this.#close(error);
    return isLost;
  }

  /**
   * Discards an answer to try another engine.
   *
   * @returns false when there is no other engine or no budget: the answer is then used
   */
  #passOver(status: number, rawHeaders: readonly Buffer[]): boolean {
    if (!this.#source.retries.mayCharge()) return false;
    const error = statusError(status);
    this.#lastError = error;
    const answer = { status, retryAfterMs: retryAfterMs(rawHeaders) };
    this.#source.failed({ kind: "status", beforeFirstByte: true, error, ...answer });
    const next = this.#source.retries.charged(() => this.#chooseAgain());
    if (next === undefined) return false;
    this.#parts.attemptMetrics.failed.status.add();
    this.#launch(next);
    return true;
  }

  /**
   * Begins the answer unless it is declined: writes the engine's status and headers.
   *
   * @returns the part of the body to write now, or undefined for none; `hasBegun` tells whether the answer has
   */
  #begin(chunk: Buffer | undefined, ended: boolean): Buffer | undefined {
    const head = this.#answer.beginningWith(chunk);
    if ((head !== undefined || ended) && !this.#isPassed(head, ended)) return undefined;
    const headers = this.#answer.begin(this.#request.method, this.#source);
    if (headers instanceof EspalierError) {
      this.#giveUp("protocol", headers);
      return undefined;
    }
    this.releaseBody();
    this.#source.answering(this.#answer.status, headers);
    if (head !== undefined) this.#source.reader.firstByte();
    return head;
  }

  /** @returns whether the client gets the answer that begins so; if not, more of it is awaited, or it was given up */
  #isPassed(head: Buffer | undefined, ended: boolean): boolean {
    const verdict = this.#source.judge(this.#answer.status, head ?? noBytes, ended || this.#isFinal);
    if (verdict === "pass" || this.#isFinal) return true;
    if (verdict === "decline") {
      this.#giveUp("declined", new EspalierError("no_engine_available"));
      return false;
    }
    if (verdict === "unknown_model") {
      this.#giveUp("unknown_model", new EspalierError("model_not_found", undefined, { param: "model" }));
      return false;
    }
    if (typeof verdict === "object") return !this.#giveUpFaulty(verdict);
    if (head === undefined || ended || head.length >= maxJudgedBytes) return true;
    this.#answer.hold(head);
    return false;
  }

  /** Releases the bodies: nothing is resent once the answer has begun, or once another has the request. */
  releaseBody(): void {
    for (const body of [this.#body, this.#sent]) {
      if (body instanceof PiecedBody || body instanceof StreamedBody) body.release();
    }
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
    const verdict = isRefusal(status) ? this.#source.judgeHead(status, []) : "pass";
    if (verdict === "decline") this.#giveUp("declined", statusError(status));
    if (verdict !== "pass_over") return verdict === "decline";
    if (!this.#passOver(status, [])) return false;
    attempt?.cancel();
    return true;
  }

  /** Cancels the current attempt; others may follow. */
  #giveUp(kind: FailureKind, error: EspalierError): void {
    this.#attempt?.cancel();
    this.#lost(kind, error);
  }

  /** The rest of the body shows that the request is none. The engine has not got all of it. */
  #spoiled(error: EspalierError): void {
    if (this.#done) return;
    this.#attempt?.cancel();
    this.#close(error);
  }

  #clientClosed(): void {
    if (this.#done) return;
    this.#attempt?.cancel();
    if (this.#attempt) this.#parts.attemptMetrics.abandoned.add();
    this.#finish({ kind: "client_closed" });
  }

  /** Ends with an error in whichever way is still possible. */
  #close(error: EspalierError): void {
    if (!this.#answer.hasBegun) {
      this.#fail(error);
      return;
    }
    this.#answer.cut(this.#request.family, error);
    this.#finish({ kind: "cut", error });
  }

  #fail(error: EspalierError): void {
    this.#finish({ kind: "failed", error: this.#source.retries.verdict(error) });
  }

  #finish(outcome: ExchangeOutcome): void {
    if (this.#done) return;
    this.#done = true;
    this.#request.upload?.close();
    this.#parts.attemptMetrics.responseBytes(this.#answer.bytes);
    this.#source.ended(outcome);
  }
}

const statusError = (status: number): EspalierError =>
  new EspalierError("no_engine_available", `The engine answered with status ${status}.`);
