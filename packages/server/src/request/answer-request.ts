import type { ApiFamily } from "@espalier/api";
import { asEspalierError, EspalierError } from "@espalier/core";
import { withoutTransferHeaders } from "@espalier/routing";
import type { FastifyReply, FastifyRequest } from "fastify";
import { replyWithError } from "../data-plane/error-reply.ts";
import { releaseBody } from "../data-plane/read-body.ts";
import { callerTraceparent, readTraceparent } from "../data-plane/request-ids.ts";
import { Diversion } from "../overflow/overflow-run.ts";
import type { RouterContext } from "../router-context.ts";
import type { ClientRequest, PlannedRequest } from "./planned-request.ts";
import { requestOutcome } from "./request-outcome.ts";
import { RequestRun } from "./request-run.ts";
import { endRefused } from "./request-trace.ts";

/** In English, current models' tokenizers average about four bytes per token. */
export const bytesPerToken = 4;

/**
 * Answers one request: plans it, sends it to an engine, and writes the error when there is no answer. Fastify does not
 * write the response.
 */
export function answer(
  context: RouterContext,
  request: FastifyRequest,
  reply: FastifyReply,
  family: ApiFamily,
  plan: () => PlannedRequest | Promise<PlannedRequest>,
): void {
  reply.hijack();
  const response = reply.raw;
  request.trace?.accepted();
  if (response.destroyed) {
    countRefusal(context, request, new EspalierError("client_closed"));
    return;
  }
  const answerError = (error: EspalierError, attempted: readonly string[] = []): void =>
    replyWithError(response, family, error, request.id, [...attempted, ...closing(context)]);
  const run = (planned: PlannedRequest): void => {
    const start = (diversion?: Diversion): void =>
      new RequestRun(context, planned, response, answerError, diversion).start();
    start(planned.overflow && new Diversion(context, planned, response, () => start()));
  };
  const refuse = (thrown: unknown): void => {
    const error = asEspalierError(thrown);
    if (error.code === "internal_error")
      context.logger.error("request failed", { requestId: request.id, error: thrown });
    countRefusal(context, request, error);
    answerError(error);
  };
  try {
    const waiting = context.hooks?.request?.(request);
    const planning = waiting ? waiting.then(plan) : plan();
    if (planning instanceof Promise) planning.then(run).catch(refuse);
    else run(planning);
  } catch (thrown) {
    refuse(thrown);
  }
}

/** During a drain, asks clients to close the connection and reconnect elsewhere. */
export function closing({ drain }: RouterContext): readonly string[] {
  return drain.started ? ["connection", "close"] : [];
}

/** Counts a request that was refused before any attempt. */
export function countRefusal(context: RouterContext, request: ClientRequest, error: EspalierError): void {
  endRefused(context, request, error);
  const { config, url = "" } = request.routeOptions;
  const refused = { outcome: { kind: "failed", error }, error, fault: undefined, firstByteMs: Number.NaN } as const;
  const [outcome, { status }] = [requestOutcome(refused), error.kind];
  context.metrics.finished({
    endpoint: config?.endpointId ?? url,
    model: "",
    status,
    outcome,
    durationS: 0,
    firstByteS: Number.NaN,
    promptTokens: undefined,
    completionTokens: undefined,
    cachedTokens: undefined,
  });
  context.hooks?.answered?.({
    requestId: request.id,
    model: "",
    status,
    outcome,
    error: error.code,
    engine: undefined,
    attempts: 0,
    durationMs: 0,
    promptTokens: undefined,
    cachedTokens: undefined,
    completionTokens: undefined,
  });
}

/** The common part of plans for requests that are forwarded unchanged. */
export function planForward(
  context: RouterContext,
  request: ClientRequest,
): Omit<PlannedRequest, "endpointId" | "pool" | "targets" | "onlyEngine"> {
  const body = Buffer.isBuffer(request.body) ? [request.body] : [];
  return {
    trace: request.trace,
    family: "openai",
    method: request.method,
    path: request.url,
    headers: clientHeaders(context, request),
    ownHeaders: ownHeaders(context, request),
    body,
    release: () => releaseBody(context, request),
    requestId: request.id,
    features: {
      promptTokens: Math.ceil((body[0]?.length ?? 0) / bytesPerToken),
      expectedOutputTokens: 0,
      sessionKey: undefined,
      prefixKey: undefined,
    },
    prompt: undefined,
    stripUsage: false,
    storesResponse: false,
    acceptedMs: context.clock.nowMs(),
    answerDueMs: context.clock.nowMs() + (context.live.settings.answerMs ?? Number.POSITIVE_INFINITY),
  };
}

/** The client's headers, except those that this router must not forward. */
export function clientHeaders({ live }: RouterContext, { raw, headers }: ClientRequest): readonly string[] {
  const trusted = live.settings.trustTransferFields ? raw.rawHeaders : withoutTransferHeaders(raw.rawHeaders);
  // `tracestate` belongs to a trace that the router does not continue.
  const isLost = headers.tracestate !== undefined && callerTraceparent(headers.traceparent) === undefined;
  const traced = isLost ? withoutHeader(trusted, "tracestate") : trusted;
  // With an origin, engines would add CORS headers of their own.
  const isOfPage = headers.origin !== undefined && live.settings.corsOrigins.length > 0;
  return isOfPage ? withoutHeader(traced, "origin") : traced;
}

function withoutHeader(pairs: readonly string[], lowerName: string): readonly string[] {
  return pairs.filter((_, at) => pairs[at - (at % 2)]!.toLowerCase() !== lowerName);
}

/** Headers that the router adds for the engine, as flat pairs: the trace context and the client's address. */
export function ownHeaders({ random }: RouterContext, { headers, raw, trace }: ClientRequest): readonly string[] {
  const forwarded = headers["x-forwarded-for"];
  const client = raw.socket.remoteAddress ?? "unknown";
  return [
    "traceparent",
    trace?.traceparent ?? readTraceparent(headers.traceparent, random),
    "x-forwarded-for",
    forwarded === undefined ? client : `${forwarded}, ${client}`,
  ];
}
