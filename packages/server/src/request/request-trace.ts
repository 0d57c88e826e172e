import type { RequestView } from "@espalier/api";
import type { Clock, EspalierError, Span, SpanAttributes } from "@espalier/core";
import { rankNumber, type Target } from "@espalier/engines";
import type { Selection } from "@espalier/routing";
import type { RouterContext } from "../router-context.ts";
import type { AttemptFailure } from "./answer-source.ts";
import type { ClientRequest, PlannedRequest } from "./planned-request.ts";
import { callerTraceparent } from "./request-ids.ts";
import { outcomeStatus, type RequestEnd, requestOutcome } from "./request-outcome.ts";

/** One call of an engine. */
interface TracedCall {
  readonly method: string;
  readonly target: Target;
  /** Prompt tokens that the engine probably has cached. */
  readonly matchedTokens: number;
}

/**
 * The trace of one recorded request: a span for the whole, and one for each step and each call of an engine. Requests
 * that are not recorded have none.
 */
export class RequestTrace {
  readonly #span: Span;
  readonly #clock: Clock;
  readonly #startMs: number;
  #upstream: Span | undefined;
  #calls = 0;
  #pickingMs = 0;
  #matchedMs: number | undefined;

  /** @param startMs when the request began to arrive */
  constructor(span: Span, clock: Clock, startMs: number) {
    this.#span = span;
    this.#clock = clock;
    this.#startMs = startMs;
  }

  get traceparent(): string {
    return this.#span.traceparent;
  }

  nowMs(): number {
    return this.#clock.nowMs();
  }

  /** The request has arrived completely. */
  accepted(): void {
    this.step("accept", this.#startMs);
  }

  /** Records a step that ends now. */
  step(name: string, startMs: number, attributes?: SpanAttributes): void {
    const start = { name, kind: "internal", startMs } as const;
    this.#span.child(attributes ? { ...start, attributes } : start).end(this.nowMs());
  }

  /** Sets what is known after reading the body. */
  describe(name: string, attributes: SpanAttributes): void {
    this.#span.rename(name);
    this.#span.set(attributes);
  }

  /** An engine is about to be chosen. */
  picking(): void {
    this.#pickingMs = this.nowMs();
    this.#matchedMs = undefined;
  }

  /** The prefix lookup is done. */
  readonly onMatched = (): void => {
    this.#matchedMs = this.nowMs();
  };

  picked(policy: string, selection: Selection<Target> | undefined): void {
    if (this.#matchedMs !== undefined) {
      const start = { name: "match", kind: "internal", startMs: this.#pickingMs } as const;
      this.#span.child(start).end(this.#matchedMs);
    }
    this.step("pick", this.#matchedMs ?? this.#pickingMs, {
      "espalier.policy": policy,
      "espalier.reason": selection?.reason ?? "no_engine",
      "espalier.engine": selection?.target.engine.id,
      "espalier.cache_hit_tokens": selection?.matchedTokens,
    });
  }

  /** Begins the span of an attempt. @returns its `traceparent` */
  asking(call: TracedCall): string {
    this.#endUpstream();
    this.#upstream = this.clientSpan("upstream", call);
    return this.#upstream.traceparent;
  }

  /** A client span for a call of an engine; the caller ends it. */
  clientSpan(name: string, { method, target, matchedTokens }: TracedCall): Span {
    const { hostname, port, protocol } = new URL(target.engine.url);
    return this.#span.child({
      name,
      kind: "client",
      startMs: this.nowMs(),
      attributes: {
        "http.request.method": method,
        "http.request.resend_count": name === "upstream" && this.#calls++ > 0 ? this.#calls - 1 : undefined,
        "server.address": hostname,
        "server.port": Number(port || (protocol === "https:" ? 443 : 80)),
        "espalier.engine": target.engine.id,
        "espalier.rank": target.engine.targets.length > 1 ? rankNumber(target) : undefined,
        "espalier.cache_hit_tokens": matchedTokens,
      },
    });
  }

  /** The attempt is being sent. */
  sent(): void {
    this.#upstream?.event("sent", this.nowMs());
  }

  attemptFailed({ kind, status, beforeFirstByte }: AttemptFailure): void {
    this.#upstream?.set({ "http.response.status_code": status, "espalier.before_first_byte": beforeFirstByte });
    this.#endUpstream(kind);
  }

  answered(status: number): void {
    this.#upstream?.set({ "http.response.status_code": status });
  }

  firstByte(): void {
    const nowMs = this.nowMs();
    this.#upstream?.event("first_byte", nowMs);
    this.#span.event("first_byte", nowMs);
  }

  /** Ends the trace. @param errorType what the router or an engine did wrong */
  end(attributes: SpanAttributes, errorType: string | undefined): void {
    this.#endUpstream(errorType);
    this.#span.set(attributes);
    this.#span.end(this.nowMs(), errorType);
  }

  #endUpstream(errorType?: string): void {
    this.#upstream?.end(this.nowMs(), errorType);
    this.#upstream = undefined;
  }
}

/** Begins the trace of a request when its headers have arrived. @returns undefined when it is not recorded */
export function beginTrace({ tracer, clock }: RouterContext, request: ClientRequest): RequestTrace | undefined {
  const traceparent = callerTraceparent(request.headers.traceparent);
  if (!tracer.samples(traceparent)) return undefined;
  const { tracestate } = request.headers;
  const parent = traceparent === undefined ? undefined : { traceparent, tracestate: joined(tracestate) };
  const startMs = clock.nowMs();
  const name = operationOf(request.routeOptions.config?.endpointId);
  const span = tracer.begin(parent, { name, kind: "server", startMs, attributes: requestAttributes(request) });
  return new RequestTrace(span, clock, startMs);
}

/** Attributes from the head of a request, without any that may identify a person or contain a key. */
function requestAttributes({ method, url, routeOptions, raw, protocol, id }: ClientRequest): SpanAttributes {
  return {
    "gen_ai.operation.name": operationOf(routeOptions.config?.endpointId),
    "http.request.method": method,
    "http.route": routeOptions.url,
    "url.scheme": protocol,
    "url.path": url.split("?", 1)[0],
    "server.address": raw.socket.localAddress,
    "server.port": raw.socket.localPort,
    "espalier.request_id": id,
  };
}

function joined(header: string | string[] | undefined): string | undefined {
  return Array.isArray(header) ? header.join(",") : header;
}

type Tracing = Pick<RouterContext, "tracer" | "clock">;

/** Ends the trace of a request. A failed request that was not recorded is recorded with what is known at its end. */
export function endTrace(context: Tracing, plan: PlannedRequest, end: RequestEnd): void {
  const errorType = errorTypeOf(end);
  const trace = plan.trace ?? (errorType === undefined ? undefined : keepPlanned(context, plan));
  trace?.end(endAttributes(plan, end), errorType);
}

/** The same for a request refused before it was planned. */
export function endRefused(context: Tracing, request: ClientRequest, { kind, code }: EspalierError): void {
  if (!context.tracer.isOn) return;
  const errorType = kind.status >= 500 ? code : undefined;
  const trace = request.trace ?? (errorType === undefined ? undefined : keepRefused(context, request));
  trace?.end({ "http.response.status_code": kind.status, "espalier.outcome": code }, errorType);
}

/** Client errors and disconnects are not server errors. */
function errorTypeOf(end: RequestEnd): string | undefined {
  const { outcome, error, fault } = end;
  if (outcome.kind === "cut") return outcome.error.code;
  const status = fault?.status ?? outcomeStatus(end);
  return status >= 500 ? (error?.code ?? String(status)) : undefined;
}

function endAttributes({ pool, service }: PlannedRequest, end: RequestEnd): SpanAttributes {
  const { outcome, error, selection, prefillEngine, attempts, queuedMs, usage } = end;
  return {
    "http.response.status_code": outcome.kind === "client_closed" ? undefined : outcomeStatus(end),
    "gen_ai.usage.input_tokens": usage?.promptTokens,
    "gen_ai.usage.output_tokens": usage?.completionTokens,
    "gen_ai.usage.cache_read.input_tokens": usage?.cachedTokens,
    "espalier.outcome": error?.code ?? requestOutcome(end),
    "espalier.policy": pool.policy.name,
    "espalier.class": service?.className,
    "espalier.engine": selection?.target.engine.id,
    "espalier.prefill_engine": prefillEngine,
    "espalier.cache_hit_tokens": selection?.matchedTokens,
    "espalier.attempts": attempts,
    "espalier.queued_ms": queuedMs,
  };
}

function keepPlanned({ tracer, clock }: Tracing, plan: PlannedRequest): RequestTrace | undefined {
  const { ownTraceparent } = plan;
  // The caller decided against recording it.
  if (ownTraceparent === undefined) return undefined;
  const operation = operationOf(plan.endpointId);
  const span = tracer.keep(ownTraceparent, {
    name: `${operation} ${plan.pool.model}`,
    kind: "server",
    startMs: plan.acceptedMs,
    attributes: {
      "gen_ai.operation.name": operation,
      "gen_ai.request.model": plan.pool.model,
      "http.request.method": plan.method,
      "espalier.request_id": plan.requestId,
    },
  });
  return span && new RequestTrace(span, clock, plan.acceptedMs);
}

function keepRefused({ tracer, clock }: Tracing, request: ClientRequest): RequestTrace | undefined {
  if (callerTraceparent(request.headers.traceparent) !== undefined) return undefined;
  const startMs = clock.nowMs();
  const name = operationOf(request.routeOptions.config?.endpointId);
  const span = tracer.keep(undefined, { name, kind: "server", startMs, attributes: requestAttributes(request) });
  return span && new RequestTrace(span, clock, startMs);
}

/**
 * An endpoint's operation in the OpenTelemetry conventions for generative AI; endpoints without one use their own name.
 */
const operations: Partial<Record<PlannedRequest["endpointId"], string>> = {
  messages: "chat",
  responses: "chat",
  completions: "text_completion",
  generate: "text_completion",
};

function operationOf(endpointId: PlannedRequest["endpointId"] | undefined): string {
  return endpointId === undefined ? "request" : (operations[endpointId] ?? endpointId);
}

/**
 * Adds to a trace what a body asks for. Call it when the model is known to be served, since span names must have few
 * values.
 */
export function describeRequest(trace: RequestTrace, view: RequestView, servedModel: string): void {
  const model = view.model ?? servedModel;
  trace.describe(`${operationOf(view.endpoint.id)} ${model}`, {
    "gen_ai.request.model": model,
    "gen_ai.request.max_tokens": view.maxOutputTokens,
    "espalier.model": servedModel,
    "espalier.stream": view.stream,
  });
}
