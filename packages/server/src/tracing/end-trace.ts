import type { EspalierError, SpanAttributes } from "@espalier/common";
import type { Usage } from "@espalier/openai";
import type { Selection } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { FastifyRequest } from "fastify";
import { callerTraceparent } from "../data-plane/request-ids.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import { outcomeStatus, type RelayOutcome } from "../request/relay.ts";
import { requestAttributes } from "./begin-trace.ts";
import { RequestTrace } from "./request-trace.ts";
import { operationOf } from "./span-names.ts";

type Tracing = Pick<RouterContext, "tracer" | "clock">;

/** How a request ended that was planned. */
export interface TracedEnd {
  readonly outcome: RelayOutcome;
  /** What the client got instead of an answer. */
  readonly error: EspalierError | undefined;
  readonly selection: Selection<Target> | undefined;
  readonly prefillWorker: string | undefined;
  readonly attempts: number;
  readonly queuedMs: number | undefined;
  readonly usage: Usage | undefined;
}

/** Ends the trace of a request. One that was not recorded and has failed is kept, as far as its end tells. */
export function endTrace(context: Tracing, plan: PlannedRequest, end: TracedEnd): void {
  const errorType = errorTypeOf(end);
  const trace = plan.trace ?? (errorType === undefined ? undefined : keepPlanned(context, plan));
  trace?.end(endAttributes(plan, end), errorType);
}

/** The same for a request that was refused before it was planned. */
export function endRefused(context: Tracing, request: FastifyRequest, { kind, code }: EspalierError): void {
  if (!context.tracer.isOn) return;
  const errorType = kind.status >= 500 ? code : undefined;
  const trace = request.trace ?? (errorType === undefined ? undefined : keepRefused(context, request));
  trace?.end({ "http.response.status_code": kind.status, "espalier.outcome": code }, errorType);
}

/** A client's own mistakes are no errors of the server, nor is its going away. */
function errorTypeOf({ outcome, error }: TracedEnd): string | undefined {
  if (outcome.kind === "cut") return outcome.error.code;
  const status = outcomeStatus(outcome, error);
  return status >= 500 ? (error?.code ?? String(status)) : undefined;
}

function endAttributes({ pool, service }: PlannedRequest, end: TracedEnd): SpanAttributes {
  const { outcome, error, selection, prefillWorker, attempts, queuedMs, usage } = end;
  return {
    "http.response.status_code": outcome.kind === "client_closed" ? undefined : outcomeStatus(outcome, error),
    "gen_ai.usage.input_tokens": usage?.promptTokens,
    "gen_ai.usage.output_tokens": usage?.completionTokens,
    "gen_ai.usage.cache_read.input_tokens": usage?.cachedTokens,
    "espalier.outcome": error?.code ?? outcome.kind,
    "espalier.policy": pool.policy.name,
    "espalier.class": service?.className,
    "espalier.worker": selection?.target.engine.id,
    "espalier.prefill_worker": prefillWorker,
    "espalier.cache_hit_tokens": selection?.matchedTokens,
    "espalier.attempts": attempts,
    "espalier.queued_ms": queuedMs,
  };
}

function keepPlanned({ tracer, clock }: Tracing, plan: PlannedRequest): RequestTrace | undefined {
  const told = plan.ownHeaders[plan.ownHeaders.indexOf("traceparent") + 1] ?? "";
  // The caller has decided that it is not recorded.
  if (plan.headers.includes(told)) return undefined;
  const operation = operationOf(plan.endpointId);
  const span = tracer.keep(told, {
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

function keepRefused({ tracer, clock }: Tracing, request: FastifyRequest): RequestTrace | undefined {
  if (callerTraceparent(request.headers.traceparent) !== undefined) return undefined;
  const startMs = clock.nowMs();
  const name = operationOf(request.routeOptions.config.endpointId);
  const span = tracer.keep(undefined, { name, kind: "server", startMs, attributes: requestAttributes(request) });
  return span && new RequestTrace(span, clock, startMs);
}
