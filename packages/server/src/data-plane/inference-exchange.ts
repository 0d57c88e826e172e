import type { ServerResponse } from "node:http";
import { EspalierError } from "@espalier/common";
import type { ApiFamily, Endpoint } from "@espalier/openai";
import type {
  AttemptFailure,
  BodyFilter,
  Exchange,
  ExchangeObserver,
  ExchangeOutcome,
  Upstream,
} from "@espalier/proxy";
import type { Placement, RoutedRequest, Selection } from "@espalier/routing";
import type { LoadTicket, Permit, Target } from "@espalier/workers";
import type { PoolSettings } from "../routing/pools.ts";
import { type AnswerWatch, watchAnswer } from "./answer-watch.ts";
import type { RouterContext } from "./router-context.ts";

/** Everything that is known of one request before an engine is chosen. */
export interface PlannedRequest
  extends Pick<Exchange, "family" | "method" | "path" | "headers" | "body" | "requestId">,
    RoutedRequest {
  readonly ownHeaders: readonly string[];
  /** Names the route in metrics. */
  readonly endpointId: Endpoint["id"] | "stored_response" | "forwarded";
  readonly pool: PoolSettings;
  readonly targets: readonly Target[];
  readonly onlyEngine: string | undefined;
  /** Whether the router asked for the usage event of a stream and must take it out again. */
  readonly stripUsage: boolean;
  /** Whether the answer's id names a response that the engine keeps. */
  readonly storesResponse: boolean;
  /** When the request was complete, on the clock's monotonic axis. */
  readonly acceptedMs: number;
}

/**
 * One request on its way: chooses the engine of each attempt, charges and releases its load, feeds the circuit
 * breaker, and reads the answer's usage as it passes.
 */
export class InferenceExchange implements Exchange, ExchangeObserver {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly string[];
  readonly ownHeaders: readonly string[];
  readonly body: readonly Buffer[];
  readonly requestId: string;
  readonly family: ApiFamily;
  readonly forwardAuthorization: boolean;
  readonly response: ServerResponse;
  readonly observer: ExchangeObserver = this;

  readonly #context: RouterContext;
  readonly #plan: PlannedRequest;
  readonly #tried = new Set<string>();
  #selection: Selection<Target> | undefined;
  #placement: Placement | undefined;
  #ticket: LoadTicket | undefined;
  #permit: Permit | undefined;
  #watch: AnswerWatch | undefined;
  #attempts = 0;
  #dispatchedMs = Number.NaN;
  #firstByteMs = Number.NaN;

  constructor(context: RouterContext, plan: PlannedRequest, response: ServerResponse) {
    this.#context = context;
    this.#plan = plan;
    this.method = plan.method;
    this.path = plan.path;
    this.headers = plan.headers;
    this.ownHeaders = plan.ownHeaders;
    this.body = plan.body;
    this.requestId = plan.requestId;
    this.family = plan.family;
    this.forwardAuthorization = plan.pool.forwardAuthorization;
    this.response = response;
  }

  next(): Upstream | undefined {
    const { pool, targets, features, prompt, onlyEngine } = this.#plan;
    const { selector, metrics, prefix } = this.#context;
    const selection = selector.select(pool, targets, this.#plan, { tried: this.#tried, onlyEngine });
    if (!selection) return undefined;
    const { target, reason, matchedTokens } = selection;
    metrics.decided(pool.policy.name, reason);
    this.#tried.add(target.key);
    this.#selection = selection;
    this.#permit = target.engine.breaker.begin();
    const uncachedTokens = Math.max(1, features.promptTokens - matchedTokens);
    this.#ticket = target.load.begin({ ...features, uncachedTokens });
    // Before the request goes out, so that its siblings of one burst find it.
    this.#placement = prompt && prefix.knowledge.place(target, prompt, matchedTokens);
    return { key: target.key, url: target.engine.url, headers: upstreamHeaders(pool, target) };
  }

  attemptStarted(): void {
    this.#attempts++;
    // Time that a failed engine took is not the router's.
    if (this.#attempts === 1) this.#dispatchedMs = this.#context.clock.nowMs();
  }

  attemptFailed(_: Upstream, failure: AttemptFailure): void {
    this.#ticket?.end();
    if (failure.beforeFirstByte) this.#withdraw();
    if (failure.kind === "overloaded" || failure.status === 429) this.#permit?.release();
    else if (failure.beforeFirstByte) this.#permit?.failure(failure.error.code);
    // The permit was settled when the answer began, in good faith; an engine that dies half-way must not look healthy.
    else this.#selection?.target.engine.breaker.begin()?.failure(failure.error.code);
  }

  responseStarted(_: Upstream, status: number): void {
    if (status >= 400) this.#withdraw();
    if (status >= 500) this.#permit?.failure(`status ${status}`);
    else if (status === 429) this.#permit?.release();
    else this.#permit?.success();
  }

  responseHeaders(): readonly string[] {
    const overheadMs = this.#dispatchedMs - this.#plan.acceptedMs;
    const headers = [
      "x-espalier-worker",
      this.#selection?.target.engine.id ?? "",
      "x-espalier-policy",
      this.#plan.pool.policy.name,
      "x-espalier-attempts",
      String(this.#attempts),
      "x-espalier-overhead-ms",
      overheadMs.toFixed(3),
      "x-request-id",
      this.requestId,
    ];
    if (this.#plan.prompt) headers.push("x-espalier-cache-hit-tokens", String(this.#selection?.matchedTokens ?? 0));
    if (this.#context.drain.started) headers.push("connection", "close");
    return headers;
  }

  firstByte(): void {
    this.#firstByteMs = this.#context.clock.nowMs();
    this.#ticket?.firstToken();
    this.#placement?.computed();
  }

  bodyFilter(status: number, contentType: string): BodyFilter | undefined {
    if (status !== 200) return undefined;
    const { stripUsage, storesResponse } = this.#plan;
    const ticket = this.#ticket;
    this.#watch = watchAnswer({
      contentType,
      stripUsage,
      readId: storesResponse,
      onTokens: (count) => ticket?.progress(count),
    });
    return this.#watch;
  }

  /** Takes in how it ended: releases the load, counts, remembers. Returns the error to answer with, if there is one. */
  finish(outcome: ExchangeOutcome): EspalierError | undefined {
    const { clock, metrics, storedResponses } = this.#context;
    const { endpointId, pool, acceptedMs } = this.#plan;
    this.#ticket?.end();
    this.#permit?.release();
    const usage = this.#watch?.usage();
    const responseId = this.#watch?.responseId();
    const target = this.#selection?.target;
    if (responseId !== undefined && target) storedResponses.remember(responseId, target.engine.id);
    this.#placement?.answered(outcome.kind === "completed" ? usage?.cachedTokens : undefined);
    const error = outcome.kind === "failed" ? this.#refusal(outcome.error) : undefined;
    metrics.finished({
      endpoint: endpointId,
      model: pool.model,
      status: statusOf(outcome, error),
      durationS: (clock.nowMs() - acceptedMs) / 1_000,
      firstByteS: (this.#firstByteMs - acceptedMs) / 1_000,
      promptTokens: usage?.promptTokens,
      completionTokens: usage?.completionTokens,
      cachedTokens: usage?.cachedTokens,
    });
    if (!Number.isNaN(this.#dispatchedMs)) metrics.overhead((this.#dispatchedMs - acceptedMs) / 1_000);
    this.#log(outcome);
    return error;
  }

  /** A refused prompt has not been computed, even where the refusal is the answer that the client gets. */
  #withdraw(): void {
    this.#placement?.withdraw();
    this.#placement = undefined;
  }

  /** A stored response cannot be had from another engine than its own: then that is what the client must know. */
  #refusal(error: EspalierError): EspalierError {
    if (this.#plan.onlyEngine === undefined || this.#attempts > 0) return error;
    return new EspalierError("response_not_found", "The engine that holds this response is not available.");
  }

  #log(outcome: ExchangeOutcome): void {
    const { logger } = this.#context;
    const fields = {
      requestId: this.requestId,
      model: this.#plan.pool.model,
      worker: this.#selection?.target.engine.id,
      attempts: this.#attempts,
      outcome: outcome.kind,
    };
    if (outcome.kind === "failed" || outcome.kind === "cut") {
      logger.warn("request failed", { ...fields, code: outcome.error.code });
    } else logger.debug("request", fields);
  }
}

/** A rank of an engine with several is asked for by the header that vLLM and SGLang know. */
function upstreamHeaders({ upstreamHeaders: credentials }: PoolSettings, { engine, rank }: Target): readonly string[] {
  return engine.targets.length === 1 ? credentials : [...credentials, "x-data-parallel-rank", String(rank)];
}

/** Nginx's 499 stands for a client that went away, in metrics only. */
const clientClosedStatus = 499;

function statusOf(outcome: ExchangeOutcome, error: EspalierError | undefined): number {
  if (outcome.kind === "completed") return outcome.status;
  if (outcome.kind === "client_closed") return clientClosedStatus;
  return (error ?? (outcome.kind === "failed" ? outcome.error : undefined))?.kind.status ?? 502;
}
