import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders, IncomingMessage, OutgoingHttpHeaders, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type ApiFamily, endpoints } from "@espalier/api";
import { asEspalierError, EspalierError, systemAfterPoll } from "@espalier/core";
import type { FastifyHttpOptions, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import fastify from "fastify";
import { httpsOptions, readTls, type TlsMaterial } from "../lifecycle/certificates.ts";
import { type Readiness, registerProbes } from "../lifecycle/readiness.ts";
import { headFault, originForm } from "../lifecycle/request-head.ts";
import { registerRealtimeRoute, watchUpgrades } from "../realtime/realtime-route.ts";
import { releaseBody, reserveDeclared, reservePieces } from "../request/body-budget.ts";
import { fromFastifyError, replyWithError } from "../request/error-reply.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import { readRequestId } from "../request/request-ids.ts";
import { beginTrace, type RequestTrace } from "../request/request-trace.ts";
import type { RouterContext } from "../router-context.ts";
import { closing, countRefusal } from "../serving/answer-request.ts";
import { createAcceptFirst } from "./accept-first.ts";
import {
  allowHalfClose,
  answerClientError,
  type ClientError,
  createOpenAnswers,
  linger,
  type OpenAnswers,
} from "./client-connections.ts";
import { registerForwardRoutes, registerInferenceRoutes, registerModelRoutes } from "./inference-routes.ts";
import { readBody } from "./read-body.ts";
import { registerSessionEnds } from "./session-ends.ts";
import { registerStoredResponseRoutes } from "./stored-responses.ts";
import { registerUploadRoutes } from "./upload-routes.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** API family whose error shape the route uses. */
    readonly family?: ApiFamily;
    /** Names the route in metrics; the default is its URL. */
    readonly endpointId?: PlannedRequest["endpointId"];
    /** Accepts a body of any content type. */
    readonly anyBody?: boolean;
  }

  interface FastifyRequest {
    /** Name of the request's API key; undefined when none is required. */
    apiKeyName: string | undefined;
    /** Undefined for a request that is not recorded. */
    trace: RequestTrace | undefined;
    /** Whether it is one of those in flight. */
    isCounted: boolean;
    /** Whether it came by the listener for RL frameworks. */
    isRollout: boolean;
  }
}

/** Longer bodies of requests that nobody serves are not read. */
const maxUnservedBytes = 65_536;

/** What one listener of the data plane has of its own. */
export interface Front {
  readonly tls: TlsMaterial | undefined;
  /** Accepted of a request in place of `api-keys`; undefined for these. */
  readonly keysFor?: (request: IncomingMessage) => readonly ApiKey[] | undefined;
  /** Whether it is that for RL frameworks. */
  readonly isForRollouts?: boolean;
  /** Registers routes beside those of the data plane, and guards them. Their requests are counted, and their bodies are bytes. */
  readonly register?: (app: FastifyInstance) => void;
}

/** The application that clients talk to. @param front that of `listen` by default */
export function createDataPlaneApp(
  context: RouterContext,
  readiness: () => Readiness,
  front: Front = { tls: context.live.current.listen.tls && readTls(context.live.current.listen.tls) },
): FastifyInstance {
  const { limits } = context.live.current;
  const openAnswers = createOpenAnswers();
  const app = createFastify(context, openAnswers, front.tls);
  openAnswers.watch(app, (request) => leave(context, request));
  const acceptFirst = createAcceptFirst(context.clock, systemAfterPoll);
  acceptFirst.watch(app.server);
  answerExpectations(app, context);
  watchUpgrades(app.server);
  app.addHook("preClose", (done) => {
    context.realtime.dropAll();
    done();
  });
  if (!front.tls) allowHalfClose(app.server, openAnswers, context.scheduler);
  app.decorateRequest("apiKeyName", undefined);
  app.decorateRequest("trace", undefined);
  app.decorateRequest("reservedBytes", 0);
  app.decorateRequest("isCounted", false);
  app.decorateRequest("isRollout", front.isForRollouts === true);
  app.removeAllContentTypeParsers();
  // JSON is registered by name too: for any other type fastify searches its parsers on each request.
  for (const type of ["application/json", "*"]) {
    app.addContentTypeParser(type, (request, payload, done) =>
      readBody(payload, { maxBytes: limits.maxBodyBytes, onPiece: reservePieces(context, request) }, done),
    );
  }
  app.setErrorHandler((error, request, reply) => {
    reply.hijack();
    refuse(
      context,
      request,
      reply,
      fromFastifyError(error as Parameters<typeof fromFastifyError>[0], context.logger, request.id),
    );
  });
  // Answers that bypass fastify set these headers themselves.
  app.addHook("onRequest", (request, reply, done) => {
    reply.header("x-request-id", request.id);
    if (context.drain.started || context.connections.isRejected(request.raw.socket))
      reply.header("connection", "close");
    if (applyCors(context, app, request, reply)) return;
    done(headFault(request.raw, reply.raw));
  });
  registerProbes(app, readiness);
  const { register } = front;
  if (register) {
    app.register(async (own) => {
      own.addHook("onRequest", (request, _reply, done) => {
        count(context, request);
        done();
      });
      register(own);
    });
  }
  app.register(async (served) => {
    served.addHook("onRequest", (request, reply, done) => {
      const { checkIdentity } = context;
      if (!checkIdentity) {
        enter(context, front, request, reply, done);
        return;
      }
      checkIdentity(request)
        .then((name) => {
          request.apiKeyName = name;
          enter(context, front, request, reply, done);
        })
        .catch((thrown) => done(asEspalierError(thrown)));
    });
    // Counted and checked, so that a drain knows of it and a refusal is at once.
    served.addHook("onRequest", (_request, _reply, done) => acceptFirst.pass(done));
    served.addHook("preParsing", (request, reply, _, done) => {
      const { expect, "content-length": length = 0, "transfer-encoding": coding } = request.headers;
      // A short body on its way is read, so that its connection goes on.
      if (request.is404 && (expect !== undefined || coding !== undefined || Number(length) > maxUnservedBytes)) {
        notFound(context, app, request, reply);
        return;
      }
      if (expect !== undefined && Number(length) <= limits.maxBodyBytes) reply.raw.writeContinue();
      done();
    });
    registerModelRoutes(served, context);
    registerSessionEnds(served, context, front.isForRollouts === true);
    registerInferenceRoutes(served, context);
    registerStoredResponseRoutes(served, context);
    registerRealtimeRoute(served, context);
    registerUploadRoutes(served, context);
    registerForwardRoutes(served, context);
    served.setNotFoundHandler((request, reply) => notFound(context, app, request, reply));
  });
  return app;
}

/**
 * Sets the CORS headers of an answer to a page in a browser. Engines get no `origin`, since their own CORS headers
 * would replace these.
 *
 * @returns whether the request was a preflight, which is then answered
 */
function applyCors(
  context: RouterContext,
  app: FastifyInstance,
  request: FastifyRequest,
  reply: FastifyReply,
): boolean {
  const { origins } = context.live.current.cors;
  if (origins.length === 0) return false;
  // Also of an answer to no page: a cache may show it to one.
  if (!origins.includes("*")) reply.raw.setHeader("vary", "origin");
  const headers = corsHeaders(origins, request.headers.origin);
  if (!headers) return false;
  for (const [name, value] of Object.entries(headers)) reply.raw.setHeader(name, value);
  const methods = isPreflight(request) ? allowedMethods(app, pathOf(request)) : [];
  if (methods.length === 0) return false;
  reply.hijack();
  answerPreflight(reply.raw, request, methods);
  return true;
}

/**
 * By default Node answers `100 Continue` before the request is checked. Here the check comes first, so that clients do
 * not send bodies that are refused.
 */
function answerExpectations(app: FastifyInstance, context: RouterContext): void {
  app.server.on("checkContinue", (request, response) => app.server.emit("request", request, response));
  app.server.on("checkExpectation", (request, response) => {
    const id = readRequestId(request.headers["x-request-id"], context.random);
    replyWithError(response, "openai", new EspalierError("expectation_failed"), id, ["connection", "close"]);
  });
}

/** Longest path segment that can be a parameter: the id of a stored response. */
const maxParamLength = 256;

function createFastify(
  context: RouterContext,
  openAnswers: OpenAnswers,
  tls: TlsMaterial | undefined,
): FastifyInstance {
  const { random, live } = context;
  const { limits, timeouts } = live.current;
  const http = {
    maxHeaderSize: limits.maxHeaderBytes,
    // `headFault` checks this and reports it.
    requireHostHeader: false,
    connectionsCheckingInterval: 1_000,
    // Fastify sets it on the server too late: Node ignores it then, because its own limit for headers is longer.
    requestTimeout: timeouts.requestReceiveMs,
  };
  const options = {
    logger: false,
    bodyLimit: limits.maxBodyBytes,
    requestTimeout: timeouts.requestReceiveMs,
    keepAliveTimeout: timeouts.keepAliveMs,
    forceCloseConnections: false,
    routerOptions: { ignoreTrailingSlash: true, maxParamLength },
    rewriteUrl: originForm,
    genReqId: ({ headers }: { headers: Record<string, string | string[] | undefined> }) =>
      readRequestId(headers["x-request-id"], random, live.current.trustTransferFields),
    clientErrorHandler: (error: ClientError, socket: Socket) =>
      answerClientError(openAnswers, error, socket, limits.maxHeaderBytes),
    frameworkErrors(error: unknown, request: FastifyRequest, reply: FastifyReply) {
      reply.hijack();
      refuse(context, request, reply, fromFastifyError(error as never, context.logger, request.id));
    },
  };
  const https = tls && { ...http, ...httpsOptions(tls) };
  // Node's HTTPS server implements the whole interface of its HTTP server, but fastify's types distinguish them.
  return fastify({ ...options, ...(https ? { https } : { http }) } as FastifyHttpOptions<Server>);
}

/** Checks a request before its body is read, so that a refusal is cheap, and counts it. */
function enter(
  context: RouterContext,
  { keysFor }: Front,
  request: FastifyRequest,
  reply: FastifyReply,
  done: (error?: EspalierError) => void,
): void {
  try {
    // The client left while its identity was checked: no end of its answer would be seen any more.
    if (reply.raw.destroyed) throw new EspalierError("client_closed");
    if (context.connections.isRejected(request.raw.socket)) throw new EspalierError("too_many_connections");
    request.apiKeyName = admitHead(context, request, keysFor?.(request.raw));
    reserveDeclared(context, request);
  } catch (thrown) {
    done(asEspalierError(thrown));
    return;
  }
  count(context, request);
  // After the checks, so that unauthorised requests cannot fill the span queue.
  if (context.tracer.isOn && request.routeOptions.config.endpointId) request.trace = beginTrace(context, request);
  done();
}

/** Before the body is read, so that incoming bodies are bounded and a drain waits for them. */
function count({ inFlight, metrics }: RouterContext, request: FastifyRequest): void {
  metrics.inFlight(++inFlight.count);
  request.isCounted = true;
}

/** The answer has ended. */
function leave(context: RouterContext, request: FastifyRequest): void {
  if (!request.isCounted) return;
  context.metrics.inFlight(--context.inFlight.count);
  releaseBody(context, request);
}

/**
 * Checks the head of a request: key, limits, and the kind of its body.
 *
 * @param keys those of its listener, in place of `api-keys`
 * @returns the name of its API key; undefined when no keys are configured. With a `checkIdentity`, the name it has
 * @throws EspalierError for a request that is not admitted
 */
export function admitHead(
  context: RouterContext,
  request: Pick<FastifyRequest, "headers" | "method" | "apiKeyName"> & {
    readonly routeOptions: { readonly config?: { readonly anyBody?: boolean } };
  },
  keys?: readonly ApiKey[],
): string | undefined {
  const { inFlight, overload } = context;
  const { apiKeys, limits } = context.live.current;
  const keyName = context.checkIdentity ? request.apiKeyName : authenticate(keys ?? apiKeys, request.headers);
  if (inFlight.count >= context.descriptors.requests) throw new EspalierError("out_of_descriptors");
  if (inFlight.count >= limits.maxConcurrentRequests) throw new EspalierError("overloaded");
  overload.admit();
  const encoding = request.headers["content-encoding"];
  // SGLang's name for it.
  const isCompressed = request.headers["x-body-compressed"] !== undefined;
  if (isCompressed || (encoding !== undefined && encoding !== "identity"))
    throw new EspalierError("unsupported_encoding");
  const type = request.headers["content-type"];
  if (type !== undefined && request.method === "POST" && !request.routeOptions.config?.anyBody && !isJson(type)) {
    throw new EspalierError("unsupported_media_type");
  }
  return keyName;
}

function refuse(context: RouterContext, request: FastifyRequest, reply: FastifyReply, error: EspalierError): void {
  countRefusal(context, request, error);
  // The rest of a refused body is not read, so the connection ends with the answer.
  const isOver = !request.raw.complete || error.code === "too_many_connections";
  const unread = isOver ? ["connection", "close"] : closing(context);
  const isSending = !request.raw.complete && request.headers.expect === undefined;
  const endWhen = isSending ? (end: () => void) => linger(request.raw, context.scheduler, end) : undefined;
  replyWithError(reply.raw, familyOf(request), error, request.id, unread, endWhen);
}

/** The error shape of a path's API, also for a wrong method. */
function familyOf(request: FastifyRequest): ApiFamily {
  const known = request.routeOptions.config?.family;
  return known ?? endpoints.find(({ path }) => path === pathOf(request))?.family ?? "openai";
}

function pathOf(request: FastifyRequest): string {
  return request.url.split("?", 1)[0] ?? "";
}

function notFound(context: RouterContext, app: FastifyInstance, request: FastifyRequest, reply: FastifyReply): void {
  reply.hijack();
  const allowed = allowedMethods(app, pathOf(request));
  if (allowed.length > 0) reply.raw.setHeader("allow", allowed.join(", "));
  refuse(context, request, reply, new EspalierError(allowed.length > 0 ? "method_not_allowed" : "path_not_found"));
}

const servedMethods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const;

function allowedMethods(app: FastifyInstance, path: string): readonly string[] {
  return servedMethods.filter((method) => app.findRoute({ method, url: path }) !== null);
}

const charset = /;\s*charset\s*=\s*"?([^\s";]*)/i;
/** ASCII is UTF-8. */
const charsets: ReadonlySet<string> = new Set(["utf-8", "utf8", "us-ascii"]);

/** Whether a body of this type is JSON in UTF-8. */
function isJson(contentType: string): boolean {
  if (contentType === "application/json") return true;
  const type = contentType.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  const named = charset.exec(contentType)?.[1];
  if (named !== undefined && !charsets.has(named.toLowerCase())) return false;
  return type === "application/json" || (type.startsWith("application/") && type.endsWith("+json"));
}

/** How long browsers cache the answer to a preflight, in seconds: the most that any browser accepts. */
const maxAgeSeconds = 7_200;

/** CORS headers for a page's origin; undefined when it is not allowed or the request has none. */
function corsHeaders(
  origins: readonly string[],
  origin: string | undefined,
): Readonly<Record<string, string>> | undefined {
  if (origin === undefined) return undefined;
  const isAny = origins.includes("*");
  if (!isAny && !origins.includes(origin)) return undefined;
  return {
    "access-control-allow-origin": isAny ? "*" : origin,
    "access-control-expose-headers": "*",
    vary: "origin",
  };
}

/** Whether the request is a CORS preflight. */
const isPreflight = ({ method, headers }: FastifyRequest): boolean =>
  method === "OPTIONS" && headers.origin !== undefined && headers["access-control-request-method"] !== undefined;

/** @param methods those that the path accepts */
function answerPreflight(response: ServerResponse, request: FastifyRequest, methods: readonly string[]): void {
  const asked = request.headers["access-control-request-headers"];
  const headers: OutgoingHttpHeaders = {
    "access-control-allow-methods": methods.join(", "),
    // By name: `*` does not cover `authorization`.
    ...(asked !== undefined && { "access-control-allow-headers": asked }),
    "access-control-max-age": String(maxAgeSeconds),
    vary: "origin, access-control-request-method, access-control-request-headers",
    "x-request-id": request.id,
  };
  response.writeHead(204, headers).end();
}

export interface ApiKey {
  readonly name: string;
  /** SHA-256 of the key: 32 bytes. */
  readonly sha256: Buffer;
}

/**
 * Checks the key of a request: `authorization: Bearer`, or `x-api-key` as Anthropic's clients send it.
 *
 * Digests of equal length are compared in constant time, and every key is compared, so that timing does not reveal how
 * close a guess was.
 *
 * @returns the name of the key; undefined when no keys are configured, which leaves the router open
 * @throws EspalierError `missing_api_key` or `invalid_api_key`
 */
export function authenticate(keys: readonly ApiKey[], headers: IncomingHttpHeaders): string | undefined {
  if (keys.length === 0) return undefined;
  const presented = presentedKey(headers);
  if (presented === undefined) throw new EspalierError("missing_api_key");
  const digest = createHash("sha256").update(presented).digest();
  let name: string | undefined;
  for (const key of keys) if (timingSafeEqual(key.sha256, digest)) name = key.name;
  if (name === undefined) throw new EspalierError("invalid_api_key");
  return name;
}

function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const { authorization } = headers;
  if (authorization !== undefined) {
    const separator = authorization.indexOf(" ");
    if (authorization.slice(0, separator).toLowerCase() === "bearer") return authorization.slice(separator + 1).trim();
  }
  const alternative = headers["x-api-key"];
  return typeof alternative === "string" ? alternative : undefined;
}
