import {
  type ApiFamily,
  type Endpoint,
  endpoints,
  findSession,
  nameOfSource,
  parseStoredResponsePath,
} from "@espalier/api";
import { asEspalierError, EspalierError } from "@espalier/core";
import { sessionScope } from "@espalier/routing";
import { endpointOf } from "../admin/explain-request.ts";
import { admitHead } from "../data-plane/data-plane-app.ts";
import { planInference, readForwarded } from "../data-plane/inference-routes.ts";
import { BodyPieces } from "../data-plane/read-body.ts";
import { planStoredResponse } from "../data-plane/stored-responses.ts";
import {
  destinationKey,
  type GatewayStream,
  type RequestHead,
  type StreamEnd,
  type StreamOwner,
} from "../grpc/index.ts";
import { releaseBody, reservePiece } from "../request/body-budget.ts";
import { replyWithError } from "../request/error-reply.ts";
import type { ClientRequest, PlannedRequest } from "../request/planned-request.ts";
import { readRequestId } from "../request/request-ids.ts";
import { beginTrace } from "../request/request-trace.ts";
import type { RouterContext } from "../router-context.ts";
import { resolvePool } from "../routing/resolve-pool.ts";
import { readServiceClass } from "../routing/service-class.ts";
import { bytesPerToken, countRefusal, engineHead, planForward, withheldHeaders } from "../serving/answer-request.ts";
import { type CarrierParts, GatewayCarrier, isAllowed, withoutDecodeFirst } from "./gateway-carrier.ts";
import { GatewayResponse } from "./gateway-response.ts";
import type { UnseenAnswers } from "./unseen-answers.ts";

/** Shared by all requests of gateways. */
export interface GatewayParts extends CarrierParts {
  readonly context: RouterContext;
  /** Requests that gateways wait for. */
  readonly waiting: Set<GatewayRequest>;
  readonly unseen: UnseenAnswers;
  readonly answerWithinMs: number;
  readonly receiveWithinMs: number;
  readonly maxBodyBytes: number;
}

/** Headers by which clients steer a picker (llm-d and its predecessor). Engines do not get them. */
const controlHeaders: ReadonlySet<string> = new Set([
  ...["inference-objective", "inference-fairness-id", "model-name-rewrite"].flatMap((name) => [
    `x-llm-d-${name}`,
    `x-gateway-${name}`,
  ]),
  ...["slo-ttft-ms", "slo-tpot-ms"].flatMap((name) => [`x-llm-d-${name}`, `x-${name}`]),
]);
/** Headers that name the model where the body is not shown. */
const modelHeaders = ["x-espalier-model", "x-gateway-model-name"];
const credentials = ["authorization", "x-api-key"];

/** Why a request was refused, in llm-d's words. */
const droppedReasons: Readonly<Record<string, string>> = {
  queue_full: "rejected-saturated",
  overloaded: "rejected-saturated",
  out_of_descriptors: "rejected-saturated",
  deadline_missed: "rejected-ttl-expired",
  no_engine_available: "rejected-no-endpoints",
  engines_asleep: "rejected-no-endpoints",
};
const droppedHeader = "x-llm-d-request-dropped-reason";

/** One HTTP request of a gateway: what a request of fastify is to the proxy. */
export class GatewayRequest implements ClientRequest, StreamOwner {
  method = "";
  url = "/";
  id = "";
  headers: Record<string, string> = {};
  body: unknown = undefined;
  apiKeyName: string | undefined;
  trace: ClientRequest["trace"];
  reservedBytes = 0;
  readonly protocol = "http";
  routeOptions: ClientRequest["routeOptions"] = {};
  raw: ClientRequest["raw"] = { rawHeaders: [], socket: {} };
  modelName: string | undefined;
  isAnswerSeen = true;
  readonly #parts: GatewayParts;
  readonly #stream: GatewayStream;
  readonly #response: GatewayResponse;
  #head: RequestHead | undefined;
  #endpoint: Endpoint | undefined;
  #pieces: BodyPieces | undefined;
  #carrier: GatewayCarrier | undefined;
  /** When the gateway must have its answer, on the monotonic clock. */
  #dueMs = Number.POSITIVE_INFINITY;
  #isCounted = false;
  #refusedWith: EspalierError | undefined;

  constructor(parts: GatewayParts, stream: GatewayStream) {
    this.#parts = parts;
    this.#stream = stream;
    this.#response = new GatewayResponse(stream, () => this.#refusalHeaders());
  }

  head(head: RequestHead): void {
    const { context, waiting, receiveWithinMs } = this.#parts;
    const { headers, rawHeaders } = head;
    this.#head = head;
    this.method = head.method;
    this.url = head.path;
    this.headers = headers;
    this.raw = { rawHeaders, socket: {} };
    this.isAnswerSeen = head.showsAnswer;
    this.modelName = headers["x-llm-d-model-name-rewrite"] ?? headers["x-gateway-model-name-rewrite"];
    this.id = readRequestId(headers["x-request-id"], context.random, context.live.current.trustTransferFields);
    this.#endpoint = head.method === "POST" ? endpointAt(head.path) : undefined;
    const endpointId = this.#endpoint?.id ?? "forwarded";
    this.routeOptions = { url: this.#endpoint?.path, config: { endpointId } };
    this.#dueMs = context.clock.nowMs() + receiveWithinMs;
    waiting.add(this);
    context.metrics.inFlight(++context.inFlight.count);
    this.#isCounted = true;
    this.#attempt(() => {
      this.apiKeyName = admitHead(context, {
        headers,
        method: head.method,
        apiKeyName: undefined,
        routeOptions: { config: { anyBody: true } },
      });
      if (Number(headers["content-length"] ?? 0) > this.#parts.maxBodyBytes) throw new EspalierError("body_too_large");
      if (context.tracer.isOn) this.trace = beginTrace(context, this);
    });
  }

  piece(chunk: Buffer): void {
    if (this.#refusedWith) return;
    const { context, maxBodyBytes } = this.#parts;
    this.#pieces ??= new BodyPieces(Number(this.headers["content-length"] ?? 0));
    const wrong =
      this.#pieces.sizeBytes + chunk.length > maxBodyBytes
        ? new EspalierError("body_too_large")
        : reservePiece(context, this, chunk.length);
    if (wrong) this.#refuse(wrong);
    else this.#pieces.add(chunk);
  }

  complete(): void {
    if (this.#refusedWith) return;
    const { context, answerWithinMs } = this.#parts;
    this.#dueMs = context.clock.nowMs() + answerWithinMs;
    this.trace?.accepted();
    if (this.#pieces) this.body = this.#pieces.whole();
    this.#pieces = undefined;
    const received = Buffer.isBuffer(this.body) ? this.body : undefined;
    this.#attempt(() => {
      const waiting = this.#prepare();
      const planning = waiting ? waiting.then(() => this.#plan()) : this.#plan();
      if (planning instanceof Promise) {
        planning.then((plan) => this.#start(plan, received)).catch((thrown) => this.#refuse(asEspalierError(thrown)));
      } else this.#start(planning, received);
    });
  }

  answered(status: number, rawHeaders: readonly Buffer[], served: string | undefined): void {
    this.#carrier?.gatewayAnswered(status, rawHeaders, served);
  }

  received(chunk: Buffer): boolean {
    return this.#carrier?.exchange.received(chunk) ?? true;
  }

  ended(): void {
    // Where the body is not shown, the answer ends with the exchange.
    if (this.isAnswerSeen) this.#carrier?.exchange.ended();
  }

  drained(): void {
    this.#response.drained();
  }

  closed(how: StreamEnd): void {
    const { context, waiting, unseen, meters } = this.#parts;
    waiting.delete(this);
    if (this.#isCounted) context.metrics.inFlight(--context.inFlight.count);
    this.#isCounted = false;
    this.#pieces = undefined;
    releaseBody(context, this);
    if (how !== "unseen" || !this.#carrier) {
      this.#response.closed();
      return;
    }
    meters.unseen();
    this.#carrier.unseen();
    unseen.add(this.#carrier);
  }

  /** Ends the waiting of the gateway if it is over time. */
  expire(nowMs: number): void {
    if (nowMs < this.#dueMs) return;
    const isReceiving = this.#carrier === undefined && this.body === undefined && !this.#stream.isComplete;
    const late = isReceiving
      ? new EspalierError("request_timeout")
      : new EspalierError("deadline_missed", "No engine was chosen within the endpoint picker's `answer-within`.");
    if (this.#carrier) this.#carrier.source.shed(late);
    else this.#refuse(late);
  }

  /** What the program that runs the router does before a request is planned; undefined when it does nothing. */
  #prepare(): Promise<void> | undefined {
    const { checkIdentity, hooks } = this.#parts.context;
    if (!checkIdentity) return hooks?.request?.(this);
    return checkIdentity(this).then((name) => {
      this.apiKeyName = name;
      return hooks?.request?.(this);
    });
  }

  #plan(): PlannedRequest | Promise<PlannedRequest> {
    const { context } = this.#parts;
    const head = this.#head!;
    if (!head.showsBody && this.method === "POST") return planHead(context, this, head);
    if (this.#endpoint) return planInference(context, this.#endpoint, this);
    if (parseStoredResponsePath(this.url)) return planStoredResponse(context, this);
    if (!isJsonObject(this)) return planOther(context, this);
    // The path is unknown, as behind a gateway that writes it anew: the body tells what it is.
    const signs = { named: undefined, headers: this.headers, body: this.body };
    return endpointOf(signs, context.largeBodies)
      .catch((thrown: unknown) => {
        if (asEspalierError(thrown).code === "invalid_value") return undefined;
        throw thrown;
      })
      .then((endpoint) => (endpoint ? planInference(context, endpoint, this) : planOther(context, this)));
  }

  #start(plan: PlannedRequest, received: Buffer | undefined): void {
    if (this.#refusedWith || this.#stream.isOver) {
      plan.release();
      return;
    }
    const head = this.#head!;
    if (plan.split) plan.split = withoutDecodeFirst(plan.split);
    this.#carrier = new GatewayCarrier(
      this.#parts,
      inSubset(plan, head),
      {
        head,
        received,
        stream: this.#stream,
        response: this.#response,
        removeHeaders: this.#removedHeaders(plan),
        routed: () => void this.#parts.waiting.delete(this),
      },
      (error) => this.#answerError(error),
    );
    this.#carrier.exchange.start();
  }

  /** Names of headers that came and that engines must not get. */
  #removedHeaders(plan: PlannedRequest): readonly string[] {
    const removed = new Set<string>();
    const { rawHeaders } = this.raw;
    const withheld = withheldHeaders(this.#parts.context, this);
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const name = rawHeaders[at]!.toLowerCase();
      if (controlHeaders.has(name) || name.startsWith("x-espalier-") || withheld.has(name)) removed.add(name);
    }
    // These keys are the router's, not the engines'.
    if (this.apiKeyName !== undefined && !plan.pool.forwardAuthorization) {
      for (const name of credentials) if (this.headers[name] !== undefined) removed.add(name);
    }
    removed.delete(destinationKey);
    return [...removed];
  }

  #attempt(step: () => void): void {
    if (this.#refusedWith) return;
    try {
      step();
    } catch (thrown) {
      this.#refuse(asEspalierError(thrown));
    }
  }

  /** Refuses a request that was not planned. */
  #refuse(error: EspalierError): void {
    if (this.#refusedWith) return;
    const { context } = this.#parts;
    if (error.code === "internal_error") context.logger.error("request failed", { requestId: this.id, error });
    countRefusal(context, this, error);
    this.#answerError(error);
  }

  #answerError(error: EspalierError): void {
    this.#refusedWith = error;
    const family: ApiFamily = this.#endpoint?.family ?? "openai";
    if (this.#response.headersSent) this.#response.destroy();
    else replyWithError(this.#response, family, error, this.id);
  }

  #refusalHeaders(): readonly string[] {
    const reason = droppedReasons[this.#refusedWith?.code ?? ""];
    return reason === undefined ? [] : [droppedHeader, reason];
  }
}

/** The endpoint of a path. Gateways may put a prefix before the paths of the API. */
function endpointAt(url: string): Endpoint | undefined {
  const path = url.split("?", 1)[0]!.replace(/\/+$/, "");
  const exact = endpoints.find((endpoint) => endpoint.path === path);
  if (exact) return exact;
  let longest: Endpoint | undefined;
  for (const endpoint of endpoints) {
    if (path.endsWith(endpoint.path) && endpoint.path.length > (longest?.path.length ?? 0)) longest = endpoint;
  }
  return longest;
}

/** Plans a request for another path: the body, or a header, may name the model. */
function planOther(context: RouterContext, request: GatewayRequest): PlannedRequest | Promise<PlannedRequest> {
  const passed = planForward(context, request);
  const planFor = (named: string | undefined): PlannedRequest => {
    const found = poolFor(context, request, named, undefined);
    const head = engineHead(context, request, found.pool);
    return { ...passed, ...found, ...head, endpointId: "forwarded", onlyEngine: undefined };
  };
  const model = readForwarded(context, request, passed.body[0], modelInHeaders(request));
  return model instanceof Promise ? model.then(planFor) : planFor(model);
}

/** Plans a request whose body is not shown, by its headers. */
function planHead(context: RouterContext, request: GatewayRequest, { headers }: RequestHead): PlannedRequest {
  const ladder = context.live.current.sessionKey.filter(({ from }) => from === "header");
  const session = findSession(ladder, headers, undefined);
  const sessionKey = session?.key;
  const found = poolFor(context, request, modelInHeaders(request), sessionKey);
  const passed = planForward(context, request);
  const { config } = context.admission;
  const written = { bodyPriority: undefined, apiKey: request.apiKeyName, objectives: context.objectives };
  const service = config.mode === "on" ? readServiceClass(config, headers, written) : undefined;
  const { ttftMs: sloTtftMs, tpotMs: sloTpotMs } = found.pool.objectivesOf(service?.className);
  return {
    ...passed,
    ...found,
    ...engineHead(context, request, found.pool),
    endpointId: endpointAt(request.url)?.id ?? "forwarded",
    onlyEngine: undefined,
    sessionSource: session && nameOfSource(session.source),
    parentKey: session?.parent,
    service,
    features: {
      promptTokens: Math.ceil(Number(headers["content-length"] ?? 0) / bytesPerToken),
      expectedOutputTokens: 0,
      sessionKey,
      sessionScope: sessionKey && sessionScope(service?.tenant ?? request.apiKeyName ?? "", undefined),
      prefixKey: undefined,
      sloTtftMs,
      sloTpotMs,
    },
  };
}

function modelInHeaders(request: GatewayRequest): string | undefined {
  return request.modelName ?? modelHeaders.map((name) => request.headers[name]).find((name) => name !== undefined);
}

/** The engines of a model; of all models if none is named and there are several. */
function poolFor(
  context: RouterContext,
  { url }: GatewayRequest,
  model: string | undefined,
  sessionKey: string | undefined,
): Pick<PlannedRequest, "pool" | "targets" | "serves"> {
  if (model !== undefined || context.fleet.models().length < 2) {
    const { id = "forwarded", path = url.split("?", 1)[0]! } = endpointAt(url) ?? {};
    const { pool, targets, serves } = resolvePool(
      context,
      { model, sessionKey },
      { endpoint: id, path, written: model ?? "" },
    );
    return { pool, targets, serves };
  }
  const targets = context.fleet.engines.flatMap((engine) => engine.targets);
  return { pool: context.pools.settingsFor("*"), targets };
}

/** @throws EspalierError `no_engine_available` when the gateway allows none of them, or none has an address */
function inSubset(plan: PlannedRequest, { subset }: RequestHead): PlannedRequest {
  const targets = plan.targets.filter((target) => isAllowed(target, subset));
  if (targets.length === plan.targets.length) return plan;
  if (targets.length > 0) return { ...plan, targets };
  const why = subset
    ? "No endpoint in the gateway's subset serves this model."
    : "No engine has an IP address as its host, which gateways require.";
  throw new EspalierError("no_engine_available", why);
}

function isJsonObject(request: GatewayRequest): request is GatewayRequest & { body: Buffer } {
  const type = request.headers["content-type"] ?? "";
  return request.method === "POST" && Buffer.isBuffer(request.body) && type.startsWith("application/json");
}
