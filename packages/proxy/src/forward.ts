import { asEspalierError, EspalierError } from "@espalier/common";
import { errorStreamFrame } from "@espalier/openai";
import { AnswerHead } from "./answer-head.ts";
import { Attempt, type AttemptOwner } from "./attempt.ts";
import { AttemptRecord } from "./attempt-record.ts";
import { beginReply } from "./begin-reply.ts";
import type { Exchange, ExchangeOutcome, Upstream } from "./exchange.ts";
import { type FailureKind, isFreeToRetry } from "./failure.ts";
import type { ForwardContext } from "./forward-context.ts";
import { requestHeaders, withUpstreamHeaders } from "./headers.ts";
import { ResponseSink } from "./response-sink.ts";
import { retryAfterMs } from "./retry-after.ts";
import { PiecedBody, type WireBody, wireBody } from "./wire-body.ts";

type Choice = ReturnType<Exchange["next"]>;

/**
 * One exchange from the first attempt to its outcome. The engine's headers are kept back until the first byte of its
 * body: engines send headers when they accept a request, long before the prompt is processed, and until a byte has
 * gone out another engine can take over.
 */
export class Forwarding implements AttemptOwner {
  readonly #context: ForwardContext;
  readonly #exchange: Exchange;
  readonly #sink: ResponseSink;
  readonly #record: AttemptRecord;
  readonly #settled: (outcome: ExchangeOutcome) => void;
  #baseHeaders: readonly string[] = [];
  /** Of the exchange, and what goes to the engine of the present attempt. */
  #body: WireBody = null;
  #sent: WireBody = null;
  #head: AnswerHead;
  #attempt: Attempt | undefined;
  #upstream: Upstream | undefined;
  /** Of the present attempt's answer; 0 before its headers. */
  #status = 0;
  #rawHeaders: readonly Buffer[] = [];
  #committed = false;
  /** Whether the body is an event stream to which a frame of our own can be added. */
  #eventStream = false;
  #draining = false;
  #done = false;

  /** @param settled called once, with the outcome */
  constructor(context: ForwardContext, exchange: Exchange, settled: (outcome: ExchangeOutcome) => void) {
    this.#context = context;
    this.#exchange = exchange;
    this.#settled = settled;
    this.#sink = new ResponseSink(exchange.response);
    this.#head = new AnswerHead(exchange);
    this.#record = new AttemptRecord(context, exchange);
  }

  start(): void {
    const { response, path } = this.#exchange;
    if (response.destroyed) {
      this.#clientClosed();
      return;
    }
    if (!path.startsWith("/")) {
      this.#fail(new EspalierError("bad_request", "The path has no leading slash."));
      return;
    }
    response.once("close", () => this.#clientClosed());
    this.#context.budget.earn();
    try {
      this.#baseHeaders = requestHeaders(this.#exchange);
      this.#body = wireBody(this.#exchange.body);
      this.#launch(this.#choose());
    } catch (thrown) {
      this.#crash(thrown);
    }
  }

  answered(status: number, rawHeaders: readonly Buffer[]): boolean {
    try {
      if (this.#context.retryStatuses.has(status) && this.#passOver(status, rawHeaders)) return false;
    } catch (thrown) {
      this.#crash(thrown);
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
      this.#crash(thrown);
      return false;
    }
    if (!this.#draining) {
      this.#draining = true;
      this.#exchange.response.once("drain", () => {
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
      this.#context.metrics.answered.add();
      this.#finish({ kind: "completed", status: this.#status, bytes: this.#sink.bytes });
    } catch (thrown) {
      this.#crash(thrown);
    }
  }

  failed(kind: FailureKind, error: EspalierError): void {
    try {
      this.#record.lose(this.#upstream!, { kind, beforeFirstByte: !this.#committed, error });
      if (this.#committed) this.#close(error);
      else if (isFreeToRetry(kind)) this.#launch(this.#chooseFree());
      else if (!this.#record.mayResend(kind, this.#status > 0) || !this.#chargedRetry()) this.#fail(error);
    } catch (thrown) {
      this.#crash(thrown);
    }
  }

  refused(error: EspalierError): void {
    this.#context.metrics.abandoned.add();
    this.#close(error);
  }

  /** A response that waits behind another one on its connection does not tell that it is closed. */
  stalled(): void {
    this.#sink.destroy();
    this.#clientClosed();
  }

  /** Starts attempts until one is under way, or the caller needs time to choose. */
  #launch(first: Choice): void {
    let choice = first;
    while (choice) {
      if (choice instanceof Promise) {
        this.#attempt = undefined;
        const launch = (upstream: Upstream | undefined) => this.#launch(this.#record.untried(upstream));
        choice.then((upstream) => !this.#done && launch(upstream)).catch((thrown) => this.#crash(thrown));
        return;
      }
      if (this.#try(choice)) return;
      choice = this.#chooseFree();
    }
    this.#fail(this.#record.failures.at(-1)?.error ?? new EspalierError("no_engine_available"));
  }

  /** @returns whether the attempt is under way; if not, its failure was reported */
  #try(upstream: Upstream): boolean {
    const { pools, deadlines, options } = this.#context;
    const { method, path, deadlineMs, observer } = this.#exchange;
    this.#upstream = upstream;
    this.#status = 0;
    this.#head = new AnswerHead(this.#exchange);
    const withdraw = (): void => {
      if (this.#done || this.#committed || this.#record.hasFailed(upstream)) return;
      this.#giveUp("withdrawn", new EspalierError("upstream_reset"));
    };
    observer.attemptStarted?.(upstream, this.#record.begin(), withdraw);
    try {
      const pool = pools.of(upstream.url);
      const headers = withUpstreamHeaders(this.#baseHeaders, upstream);
      this.#sent = upstream.body ? wireBody(upstream.body) : this.#body;
      const request = { method, path: pool.pathPrefix + path, headers, body: this.#sent };
      const terms = { deadlineMs: deadlineMs ?? Number.POSITIVE_INFINITY, copies: this.#record.copies };
      this.#attempt = new Attempt(this, pool, request, deadlines, options, terms);
    } catch (thrown) {
      this.#record.lose(upstream, { kind: "connect", beforeFirstByte: true, error: asEspalierError(thrown) });
      return false;
    }
    if (this.#attempt.start()) return true;
    const error = new EspalierError("overloaded", "The engine's queue is full.");
    this.#record.lose(upstream, { kind: "overloaded", beforeFirstByte: true, error });
    return false;
  }

  /** The engine to try next, or undefined when nobody is left who has not been tried. */
  #choose(): Choice {
    const choice = this.#exchange.next(this.#record.failures);
    return choice instanceof Promise ? choice : this.#record.untried(choice);
  }

  #chooseFree(): Choice {
    const choice = this.#choose();
    if (choice) this.#context.metrics.freeRetries.add();
    return choice;
  }

  /** Leaves an answer for another engine's. @returns false when there is no other, or no budget: then it stands */
  #passOver(status: number, rawHeaders: readonly Buffer[]): boolean {
    if (!this.#record.mayCharge()) return false;
    const error = new EspalierError("no_engine_available", `The engine answered with status ${status}.`);
    const answer = { status, retryAfterMs: retryAfterMs(rawHeaders) };
    this.#record.report({ upstream: this.#upstream!, kind: "status", beforeFirstByte: true, error, ...answer });
    if (!this.#chargedRetry()) return false;
    this.#context.metrics.failed.status.add();
    return true;
  }

  /** Spends the charged retry, if there is an engine left to spend it on. @returns whether it did */
  #chargedRetry(): boolean {
    const upstream = this.#choose();
    if (!upstream) return false;
    this.#record.charge();
    this.#launch(upstream);
    return true;
  }

  /**
   * The answer begins, unless the caller declines it: writes the engine's status and headers.
   *
   * @returns what of the body is due, or undefined when there is nothing; `#committed` says whether it has begun
   */
  #begin(chunk: Buffer | undefined, ended: boolean): Buffer | undefined {
    const upstream = this.#upstream!;
    const judged = this.#head.take(upstream, this.#status, chunk, ended);
    if (judged === "more") return undefined;
    if (judged === "decline") {
      this.#giveUp("declined", new EspalierError("no_engine_available"));
      return undefined;
    }
    const { observer } = this.#exchange;
    let reply: ReturnType<typeof beginReply>;
    try {
      reply = beginReply(this.#exchange, upstream, this.#sink, { status: this.#status, rawHeaders: this.#rawHeaders });
    } catch (thrown) {
      if (!(thrown instanceof EspalierError)) throw thrown;
      this.#giveUp("protocol", thrown);
      return undefined;
    }
    this.#committed = true;
    this.#letGoOfBody(upstream);
    this.#eventStream = reply.takesFrames;
    observer.responseStarted?.(upstream, this.#status, reply.headers);
    if (judged !== undefined) observer.firstByte?.(upstream);
    return judged;
  }

  /** Nothing is sent again once the answer has begun. */
  #letGoOfBody({ key, url, headers }: Upstream): void {
    for (const body of [this.#body, this.#sent]) if (body instanceof PiecedBody) body.letGo();
    this.#body = null;
    this.#sent = null;
    this.#upstream = { key, url, headers };
  }

  /** Ends an attempt that could go on; others may follow. */
  #giveUp(kind: FailureKind, error: EspalierError): void {
    this.#attempt?.cancel();
    this.failed(kind, error);
  }

  #clientClosed(): void {
    if (this.#done) return;
    this.#attempt?.cancel();
    if (this.#attempt) this.#context.metrics.abandoned.add();
    this.#context.metrics.clientAborts.add();
    this.#finish({ kind: "client_closed" });
  }

  /** Ends with an error in whatever way is still open. */
  #close(error: EspalierError): void {
    if (!this.#committed) {
      this.#fail(error);
      return;
    }
    this.#context.metrics.cutResponses.add();
    if (this.#eventStream) this.#sink.endWithFrame(errorStreamFrame(this.#exchange.family, error));
    else this.#sink.destroy();
    this.#finish({ kind: "cut", error });
  }

  #fail(error: EspalierError): void {
    this.#finish({ kind: "failed", error: this.#record.verdict(error), failures: this.#record.failures });
  }

  /** A callback of the caller threw, or the code has a defect. Nothing of it may reach undici. */
  #crash(thrown: unknown): void {
    if (this.#done) return;
    this.#context.logger.error("an exchange failed through a defect", { requestId: this.#exchange.requestId, thrown });
    this.#attempt?.cancel();
    this.#close(asEspalierError(thrown));
  }

  #finish(outcome: ExchangeOutcome): void {
    if (this.#done) return;
    this.#done = true;
    this.#context.metrics.responseBytes.add(this.#sink.bytes);
    this.#settled(outcome);
  }
}
