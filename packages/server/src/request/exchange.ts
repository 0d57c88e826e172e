import { type AnswerFault, type ApiFamily, errorStreamFrame } from "@espalier/api";
import { asEspalierError, EspalierError, type Logger } from "@espalier/core";
import {
  type FailureKind as AttemptFailureKind,
  type AttemptOwner,
  type AttemptRequest,
  answerHeaders,
  dropHeader,
  PiecedBody,
  type RunningAttempt,
  retryAfterMs,
  StreamedBody,
  type Upstream,
  type WireBody,
  wireBody,
} from "@espalier/engines";
import type { FailureKind, Retries } from "@espalier/routing";
import type { AttemptMetrics } from "../data-plane/request-metrics.ts";
import { type BodyFilter, type ClientResponse, ResponseSink } from "./response-sink.ts";

/** One engine as an exchange sees it. */
export interface Engine extends Upstream {
  /** Replaces the request's body for this engine. */
  readonly body?: readonly Buffer[] | undefined;
}

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

export type ExchangeOutcome =
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
function isRefusal(status: number): boolean {
  return status < 500 || status === 503;
}

/** The engine of the next attempt: undefined when none is left, `later` when `proceed` will be called. */
export type NextEngine = Engine | "later" | undefined;

/**
 * What the head of an answer says. `pass_over` asks another engine where the retry budget allows it, `decline` asks
 * one in any case.
 */
export type HeadVerdict = "pass" | "pass_over" | "decline";

/** What a source does with its exchange. */
export type ExchangeControl = Pick<Exchange, "launch" | "proceed" | "refuse" | "withdraw" | "move" | "crash">;

/** Reads the body of an answer in transit. */
interface BodyReader {
  /** See `AttemptOwner`. */
  readonly awaitsContent: boolean;
  /** Whether the stream, which is complete for HTTP, has ended too early. */
  readonly isBroken?: boolean;
  /** The filter that reads or changes the body. */
  filter(status: number, contentType: string): BodyFilter | undefined;
  /** The first byte of the body arrived from the engine. */
  firstByte(): void;
}

/** Where the answer comes from: the engines of a pool, or backends outside the fleet. Chooses and accounts for attempts. */
export interface AnswerSource {
  readonly retries: Retries;
  readonly reader: BodyReader;
  /** The client is there. Calls `launch`, now or later. */
  start(exchange: ExchangeControl): void;
  /** Chooses the engine of the next attempt. Must not choose one that failed. */
  choose(): NextEngine;
  /** The attempt at the chosen engine is being sent. */
  started(): void;
  /**
   * The attempt failed through the engine's fault. Called before another engine is chosen. A failure of kind `status`
   * may still be followed by `answering`: when no engine is left, the client gets that same answer. Not called when
   * the client went away or the request's own deadline passed.
   */
  failed(failure: AttemptFailure): void;
  /** @param headers the engine's, alternating; none for an error with status 200 */
  judgeHead(status: number, headers: readonly Buffer[]): HeadVerdict;
  /** Checks the beginning of a body. At 64 KiB, or at the end of the body, it passes unless declined. */
  judge(status: number, head: Buffer, ended: boolean): Verdict;
  /** Makes an engine's headers, as flat pairs, those of the client's answer, in place. */
  editHeaders(pairs: string[]): void;
  /** Whether a stream of which only the head came may begin anew at another engine. */
  readonly mayBeginAnew?: boolean;
  /**
   * A stream broke after its first byte. Called once at most.
   *
   * @param leave reports the failed attempt, where nobody has yet; called before another engine is chosen
   * @returns the engine that goes on with it, or what is left of it; undefined when the client gets an error
   */
  resumeStream?(kind: FailureKind, leave?: () => void): NextEngine | Buffer;
  /** The client gets this answer, and there are no more attempts. @param headers those of the answer, as flat pairs */
  answering(status: number, headers: readonly string[]): void;
  /** The request is over. Called once. */
  ended(outcome: ExchangeOutcome): void;
}

/** A longer beginning of an answer passes without a final verdict. */
const maxJudgedBytes = 64 * 1024;

const noBytes = Buffer.alloc(0);

/**
 * Gives one client the answer of one of several engines. Makes attempts one at a time until an answer's first byte, and
 * from then on passes that engine's bytes on. Withholds the engine's headers until the first byte of its body: engines
 * send headers when they accept a request, long before the prompt is processed, and another engine can take over until
 * a byte was sent. Its source chooses the engines, and its carrier brings attempts to them.
 */
export class Exchange implements AttemptOwner {
  readonly #parts: ExchangeParts;
  readonly #request: ExchangedRequest;
  readonly #response: ClientResponse;
  readonly #source: AnswerSource;
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
  #isDrainWatched = false;
  /** Whether another engine goes on with the stream. */
  #isResumed = false;
  #done = false;

  constructor(parts: ExchangeParts, request: ExchangedRequest, response: ClientResponse, source: AnswerSource) {
    this.#parts = parts;
    this.#request = request;
    this.#response = response;
    this.#sink = new ResponseSink(response);
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

  /** Makes the first attempt. */
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

  /** Has the source choose, and makes the attempt; also when what it waited for is ready. */
  proceed(): void {
    if (this.#done) return;
    try {
      this.#launch(this.#source.choose());
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  /** Ends the request with an error; no further attempts are made. */
  refuse(error: EspalierError): void {
    this.#close(error);
  }

  /**
   * Ends the current attempt as a failure of kind `withdrawn`. Does nothing once a byte of its answer was sent to the
   * client, or when it is over. Must not be called by the source while the exchange calls it.
   */
  withdraw(): void {
    if (this.#done || this.#committed || !this.#attempt || this.#isFinal) return;
    this.#giveUp("withdrawn", new EspalierError("upstream_reset"));
  }

  /**
   * Has another engine go on with the stream, though its engine is well. Must not be called by the source while the
   * exchange calls it.
   *
   * @returns false when it stays where it is
   */
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

  /** The code has a defect. No exception may reach undici. */
  crash(thrown: unknown): void {
    if (this.#done) return;
    this.#parts.logger.error("request failed: defect of the router", { requestId: this.#request.requestId, thrown });
    this.#attempt?.cancel();
    this.#close(asEspalierError(thrown));
  }

  answered(status: number, rawHeaders: readonly Buffer[]): boolean {
    if (this.#committed) return this.#goesOn(status, rawHeaders);
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
    if (!this.#isDrainWatched) {
      this.#isDrainWatched = true;
      this.#response.on("drain", () => this.#attempt?.resume());
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
      if (this.#committed && this.#source.reader.isBroken && this.#endBroken()) return;
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
    this.#sink.destroy();
    this.#clientClosed();
  }

  /** The client has the whole answer. */
  #complete(): void {
    this.#sink.end();
    this.#parts.attemptMetrics.answered.add();
    this.#finish({ kind: "completed", status: this.#status, bytes: this.#sink.bytes });
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
    this.#status = 0;
    this.#judgedHead = undefined;
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
    this.#source.failed({ kind, beforeFirstByte: !this.#committed, error });
    return kind;
  }

  #lost(kind: FailureKind, error: EspalierError): void {
    try {
      this.#lose(kind, error);
      if (this.#mayResume && this.#resume(kind)) return;
      const isBegun = this.#committed && !this.#isResumed;
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
    return this.#status > 0 && (this.#status !== 200 || this.#source.mayBeginAnew !== true);
  }

  /** A gateway's stream has no place for the answer of another engine, nor has one that no event can be added to. */
  get #mayResume(): boolean {
    return this.#committed && !this.#isResumed && this.#takesFrames && !this.#isFinal;
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
      this.#sink.write(next);
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

  /** @returns whether the answer of an engine goes on with the stream */
  #goesOn(status: number, rawHeaders: readonly Buffer[]): boolean {
    const { contentType, encoded } = answerHeaders(rawHeaders);
    this.#status = status;
    if (status === 200 && contentType.startsWith("text/event-stream") && !encoded) return true;
    this.#lost("status", statusError(status));
    return false;
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
   * @returns the part of the body to write now, or undefined for none; `#committed` tells whether the answer has begun
   */
  #begin(chunk: Buffer | undefined, ended: boolean): Buffer | undefined {
    const head = this.#judgedHead ? Buffer.concat([this.#judgedHead, chunk ?? noBytes]) : chunk;
    this.#judgedHead = undefined;
    if ((head !== undefined || ended) && !this.#isPassed(head, ended)) return undefined;
    const headers = this.#writeHead();
    if (headers instanceof EspalierError) {
      this.#giveUp("protocol", headers);
      return undefined;
    }
    this.#committed = true;
    this.releaseBody();
    this.#source.answering(this.#status, headers);
    if (head !== undefined) this.#source.reader.firstByte();
    return head;
  }

  /** @returns whether the client gets the answer that begins so; if not, more of it is awaited, or it was given up */
  #isPassed(head: Buffer | undefined, ended: boolean): boolean {
    const verdict = this.#source.judge(this.#status, head ?? noBytes, ended || this.#isFinal);
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
    this.#judgedHead = Buffer.from(head);
    return false;
  }

  /** @returns the answer's headers, or why they cannot be written: then nothing was written */
  #writeHead(): readonly string[] | EspalierError {
    const { pairs, contentType, encoded } = answerHeaders(this.#rawHeaders);
    const isEvents = contentType.startsWith("text/event-stream");
    const bodiless = this.#request.method === "HEAD" || this.#status === 204 || this.#status === 304;
    // A compressed body cannot be read, and a filter that looks for the end of an event would hold all of it back.
    const filter = bodiless || encoded ? undefined : this.#source.reader.filter(this.#status, contentType);
    // A stream may need an error frame at its end.
    if (filter?.changesLength || isEvents) dropHeader(pairs, "content-length");
    this.#source.editHeaders(pairs);
    try {
      this.#sink.begin(this.#status, pairs, filter);
    } catch (thrown) {
      return new EspalierError("upstream_protocol_error", undefined, { cause: thrown });
    }
    this.#takesFrames = isEvents && !encoded;
    return pairs;
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
    if (!this.#committed) {
      this.#fail(error);
      return;
    }
    if (this.#takesFrames) this.#sink.endWithFrame(errorStreamFrame(this.#request.family, error));
    else this.#sink.destroy();
    this.#finish({ kind: "cut", error });
  }

  #fail(error: EspalierError): void {
    this.#finish({ kind: "failed", error: this.#source.retries.verdict(error) });
  }

  #finish(outcome: ExchangeOutcome): void {
    if (this.#done) return;
    this.#done = true;
    this.#request.upload?.close();
    this.#parts.attemptMetrics.responseBytes(this.#sink.bytes);
    this.#source.ended(outcome);
  }
}

const statusError = (status: number): EspalierError =>
  new EspalierError("no_engine_available", `The engine answered with status ${status}.`);
