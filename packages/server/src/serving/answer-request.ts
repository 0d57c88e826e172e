import { type ApiFamily, abortedResponse } from "@espalier/api";
import { asEspalierError, EspalierError } from "@espalier/core";
import { requestHeaders } from "@espalier/engines";
import { Retries, transferHeaderNames } from "@espalier/routing";
import type { FastifyReply, FastifyRequest } from "fastify";
import { releaseBody } from "../request/body-budget.ts";
import { reply as replyWith, replyWithError } from "../request/error-reply.ts";
import { type Carrier, Exchange } from "../request/exchange.ts";
import { goodputOfRefusal } from "../request/goodput.ts";
import type { ClientRequest, PlannedRequest, PoolSettings } from "../request/planned-request.ts";
import { callerTraceparent, newTraceparent } from "../request/request-ids.ts";
import { type HookAnswer, requestOutcome } from "../request/request-outcome.ts";
import { endRefused } from "../request/request-trace.ts";
import type { ClientResponse } from "../request/response-sink.ts";
import type { RouterContext } from "../router-context.ts";
import { Diversion } from "./overflow-source.ts";
import { PoolSource } from "./pool-source.ts";

/** In English, current models' tokenizers average about four bytes per token. */
export const bytesPerToken = 4;

/** What carries a request and its answer; by default HTTP on both sides. */
interface AnswerWire {
  readonly response: ClientResponse;
  readonly carrier?: Carrier;
}

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
  { response, carrier }: AnswerWire = { response: reply.raw },
): void {
  reply.hijack();
  request.trace?.accepted();
  if (response.destroyed) {
    countRefusal(context, request, new EspalierError("client_closed"));
    return;
  }
  let isStreamed = false;
  const answerError = (error: EspalierError, attempted: readonly string[] = []): void => {
    const headers = [...attempted, ...closing(context)];
    if (family === "sglang" && error.code === "request_aborted")
      replyWith(response, abortedResponse(error, request.id, isStreamed), request.id, headers);
    else replyWithError(response, family, error, request.id, headers);
  };
  const run = (planned: PlannedRequest): void => {
    const exchange = carrier ? { ...context.exchange, carrier } : context.exchange;
    isStreamed = planned.isStreamed === true;
    planned.step = context.programs.begin(planned);
    const start = (diversion?: Diversion): void => {
      const retries = new Retries(exchange.retryBudget, exchange.retryMeters);
      const source = new PoolSource(context, planned, { answerError, retries, diversion });
      new Exchange(exchange, planned, response, source).start();
    };
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
  const answer: HookAnswer = {
    ...{ requestId: request.id, model: "", status, outcome, error: error.code, engine: undefined, attempts: 0 },
    ...{ durationMs: 0, promptTokens: undefined, cachedTokens: undefined, completionTokens: undefined },
  };
  const goodput = goodputOfRefusal(config?.endpointId, outcome);
  context.metrics.finished(config?.endpointId ?? url, answer, Number.NaN, goodput);
  context.hooks?.answered?.(answer);
}

/** The common part of plans for requests that are forwarded unchanged. */
export function planForward(
  context: RouterContext,
  request: ClientRequest,
): Omit<PlannedRequest, "endpointId" | "pool" | "targets" | "onlyEngine" | keyof EngineHead> {
  const body = Buffer.isBuffer(request.body) ? [request.body] : [];
  return {
    trace: request.trace,
    family: "openai",
    method: request.method,
    path: request.url,
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
    answerDueMs: context.clock.nowMs() + (context.live.current.timeouts.answerMs ?? Number.POSITIVE_INFINITY),
  };
}

/** Every choice of what is withheld from engines, so that no request makes a set. */
const withheldSets = Array.from(
  { length: 8 },
  (_, choice): ReadonlySet<string> =>
    new Set([
      ...(choice & 1 ? transferHeaderNames : []),
      ...(choice & 2 ? ["tracestate"] : []),
      ...(choice & 4 ? ["origin"] : []),
    ]),
);

/** Names, in lower case, of the client's headers that this router must not forward. */
export function withheldHeaders(
  { live }: RouterContext,
  { headers }: Pick<ClientRequest, "headers">,
): ReadonlySet<string> {
  const isUntrusted = !live.current.trustTransferFields;
  // `tracestate` belongs to a trace that the router does not continue.
  const isLost = headers.tracestate !== undefined && callerTraceparent(headers.traceparent) === undefined;
  // With an origin, engines would add CORS headers of their own.
  const isOfPage = headers.origin !== undefined && live.current.cors.origins.length > 0;
  return withheldSets[(isUntrusted ? 1 : 0) + (isLost ? 2 : 0) + (isOfPage ? 4 : 0)]!;
}

type EngineHead = Pick<PlannedRequest, "headers" | "ownTraceparent">;

/** The headers for a pool's engines: the client's, the trace context, and the client's address. */
export function engineHead(
  context: RouterContext,
  request: ClientRequest,
  { forwardAuthorization }: Pick<PoolSettings, "forwardAuthorization">,
): EngineHead {
  const { headers, raw, trace, id: requestId } = request;
  const callers = callerTraceparent(headers.traceparent);
  const traceparent = trace?.traceparent ?? callers ?? newTraceparent(context.random);
  const forwarded = headers["x-forwarded-for"];
  const client = raw.socket.remoteAddress ?? "unknown";
  const address = forwarded === undefined ? client : `${forwarded}, ${client}`;
  const ownHeaders = ["traceparent", traceparent, "x-forwarded-for", address];
  const withheld = withheldHeaders(context, request);
  return {
    headers: requestHeaders({ headers: raw.rawHeaders, withheld, ownHeaders, forwardAuthorization, requestId }),
    ownTraceparent: callers === undefined ? traceparent : undefined,
  };
}
