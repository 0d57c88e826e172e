import { asEspalierError, EspalierError, type Logger } from "@espalier/common";
import { errorStreamFrame } from "@espalier/openai";
import { Attempt, type AttemptOwner } from "./attempt.ts";
import type { Deadlines } from "./deadlines.ts";
import type { Exchange, ExchangeOutcome, Upstream } from "./exchange.ts";
import { type AttemptFailure, type FailureKind, isFreeToRetry } from "./failure.ts";
import { answerHeaders, dropHeader, requestHeaders, withUpstreamHeaders } from "./headers.ts";
import type { ProxyMetrics } from "./metrics.ts";
import type { ProxyOptions } from "./options.ts";
import { ResponseSink } from "./response-sink.ts";
import type { RetryBudget } from "./retry-budget.ts";
import type { UpstreamPools } from "./upstream-pools.ts";

/** What every exchange shares. */
export interface ForwardContext {
  readonly options: ProxyOptions;
  /** The options' statuses and 429. */
  readonly retryStatuses: ReadonlySet<number>;
  readonly pools: UpstreamPools;
  readonly budget: RetryBudget;
  readonly deadlines: Deadlines;
  readonly metrics: ProxyMetrics;
  readonly logger: Logger;
}

/**
 * One exchange from the first attempt to its outcome. The engine's headers are kept back until the first byte of its
 * body: engines send headers when they accept a request, long before the prompt is processed, and until a byte has
 * gone out another engine can take over.
 */
export class Forwarding implements AttemptOwner {
  readonly #context: ForwardContext;
  readonly #exchange: Exchange;
  readonly #sink: ResponseSink;
  readonly #settled: (outcome: ExchangeOutcome) => void;
  readonly #failures: AttemptFailure[] = [];
  #baseHeaders: readonly string[] = [];
  #body: Buffer | null = null;
  #attempt: Attempt | undefined;
  #upstream: Upstream | undefined;
  #attempts = 0;
  #charged = false;
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
      this.#body = joinBody(this.#exchange.body);
      this.#launch(this.#choose());
    } catch (thrown) {
      this.#crash(thrown);
    }
  }

  answered(status: number, rawHeaders: readonly Buffer[]): boolean {
    try {
      if (this.#context.retryStatuses.has(status) && this.#passOver(status)) return false;
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
      if (!this.#committed) {
        if (!this.#commit()) return false;
        this.#exchange.observer.firstByte?.(this.#upstream!);
      }
      if (this.#sink.write(chunk)) return true;
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
      if (!this.#committed && !this.#commit()) return;
      this.#sink.end();
      this.#context.metrics.answered.add();
      this.#finish({ kind: "completed", status: this.#status, bytes: this.#sink.bytes });
    } catch (thrown) {
      this.#crash(thrown);
    }
  }

  failed(kind: FailureKind, error: EspalierError): void {
    try {
      this.#lose(kind, error);
      if (this.#committed) this.#close(error);
      else if (isFreeToRetry(kind)) this.#launch(this.#chooseFree());
      else if (kind !== "protocol" || !this.#mayCharge() || !this.#chargedRetry()) this.#fail(error);
    } catch (thrown) {
      this.#crash(thrown);
    }
  }

  refused(error: EspalierError): void {
    this.#context.metrics.abandoned.add();
    this.#close(error);
  }

  stalled(): void {
    this.#sink.destroy();
    this.#clientClosed();
  }

  /** Starts attempts until one is under way. */
  #launch(first: Upstream | undefined): void {
    let upstream = first;
    while (upstream) {
      if (this.#try(upstream)) return;
      upstream = this.#chooseFree();
    }
    this.#fail(this.#failures.at(-1)?.error ?? new EspalierError("no_engine_available"));
  }

  /** @returns whether the attempt is under way; if not, its failure was reported */
  #try(upstream: Upstream): boolean {
    const { pools, deadlines, options } = this.#context;
    const { method, path, deadlineMs, observer } = this.#exchange;
    this.#upstream = upstream;
    observer.attemptStarted?.(upstream, this.#attempts++);
    try {
      const pool = pools.of(upstream.url);
      const headers = withUpstreamHeaders(this.#baseHeaders, upstream);
      const request = { method, path: pool.pathPrefix + path, headers, body: this.#body };
      this.#attempt = new Attempt(this, pool, request, deadlines, options, deadlineMs ?? Number.POSITIVE_INFINITY);
    } catch (thrown) {
      this.#lose("connect", asEspalierError(thrown));
      return false;
    }
    if (this.#attempt.start()) return true;
    this.#lose("overloaded", new EspalierError("overloaded", "The engine's queue is full."));
    return false;
  }

  /** The engine to try next, or undefined when nobody is left who has not been tried. */
  #choose(): Upstream | undefined {
    const upstream = this.#exchange.next(this.#failures);
    if (this.#failures.some((failure) => failure.upstream.key === upstream?.key)) return undefined;
    return upstream;
  }

  #chooseFree(): Upstream | undefined {
    const upstream = this.#choose();
    if (upstream) this.#context.metrics.freeRetries.add();
    return upstream;
  }

  /** Leaves an answer for another engine's. @returns false when there is no other, or no budget: then it stands */
  #passOver(status: number): boolean {
    if (!this.#mayCharge()) return false;
    const error = new EspalierError("no_engine_available", `The engine answered with status ${status}.`);
    this.#report({ ...this.#failure("status", error), status });
    if (!this.#chargedRetry()) return false;
    this.#context.metrics.failed.status.add();
    return true;
  }

  /** Whether the request's one charged retry is left, and the budget has room for it. */
  #mayCharge(): boolean {
    if (this.#charged) return false;
    if (this.#context.budget.allows()) return true;
    this.#context.metrics.budgetExhausted.add();
    return false;
  }

  /** Spends the charged retry, if there is an engine left to spend it on. @returns whether it did */
  #chargedRetry(): boolean {
    const upstream = this.#choose();
    if (!upstream) return false;
    this.#charged = true;
    this.#context.budget.spend();
    this.#context.metrics.chargedRetries.add();
    this.#launch(upstream);
    return true;
  }

  /** Writes the engine's status and headers. @returns false when they cannot be written; another attempt may be on */
  #commit(): boolean {
    const exchange = this.#exchange;
    const upstream = this.#upstream!;
    const status = this.#status;
    const answer = answerHeaders(this.#rawHeaders);
    const isEvents = answer.contentType.startsWith("text/event-stream");
    const bodiless = exchange.method === "HEAD" || status === 204 || status === 304;
    const filter = bodiless ? undefined : exchange.bodyFilter?.(status, answer.contentType);
    // A stream may have to take an error frame at its end.
    if (filter?.changesLength || isEvents) dropHeader(answer.pairs, "content-length");
    const extra = exchange.observer.responseHeaders?.(upstream, status) ?? [];
    for (let i = 0; i < extra.length; i += 2) dropHeader(answer.pairs, extra[i]!);
    try {
      this.#sink.begin(status, answer.pairs.concat(extra), filter);
    } catch (thrown) {
      this.#attempt?.cancel();
      this.failed("protocol", new EspalierError("upstream_protocol_error", undefined, { cause: thrown }));
      return false;
    }
    this.#committed = true;
    this.#eventStream = isEvents && !answer.encoded;
    exchange.observer.responseStarted?.(upstream, status, answer.pairs);
    return true;
  }

  #failure(kind: FailureKind, error: EspalierError): AttemptFailure {
    return { upstream: this.#upstream!, kind, beforeFirstByte: !this.#committed, error };
  }

  #lose(kind: FailureKind, error: EspalierError): void {
    this.#context.metrics.failed[kind].add();
    this.#report(this.#failure(kind, error));
  }

  #report(failure: AttemptFailure): void {
    this.#failures.push(failure);
    this.#exchange.observer.attemptFailed?.(failure.upstream, failure);
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
    this.#finish({ kind: "failed", error, failures: this.#failures });
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

function joinBody(body: readonly Buffer[]): Buffer | null {
  if (body.length <= 1) return body[0] ?? null;
  return Buffer.concat(body);
}
