import { type IncomingHttpHeaders, type IncomingMessage, type Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { findSession, RealtimeFrames } from "@espalier/api";
import { EspalierError } from "@espalier/core";
import { dropHeader } from "@espalier/engines";
import { sessionScope } from "@espalier/routing";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { originForm } from "../lifecycle/request-head.ts";
import type { ClientRequest, PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { resolvePool } from "../routing/resolve-pool.ts";
import { tenantOf } from "../routing/service-class.ts";
import { answer, engineHead, planForward } from "../serving/answer-request.ts";
import { ClientSocket } from "./client-socket.ts";

const realtimePath = "/v1/realtime";

interface Upgrade {
  readonly socket: Socket;
  readonly head: Buffer;
}

/** Requests whose connection waits to be upgraded. */
const upgrades = new WeakMap<IncomingMessage, Upgrade>();

/** From Node 24.9. Without it, a listener for upgrades would break every client that offers one to HTTP/2, as Java's does. */
interface UpgradeChoice {
  shouldUpgradeCallback?: (request: IncomingMessage) => boolean;
}

/** Passes requests for a WebSocket at the realtime path to the application; all others stay requests over HTTP. */
export function watchUpgrades(server: Server & UpgradeChoice): void {
  if (server.shouldUpgradeCallback === undefined) return;
  server.shouldUpgradeCallback = (request) =>
    request.method === "GET" &&
    request.headers.upgrade?.toLowerCase() === "websocket" &&
    /^\/v1\/realtime\/?(?:\?|$)/.test(originForm(request));
  server.on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) => {
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    socket.on("error", () => socket.destroy());
    // What is refused is an answer over HTTP.
    response.on("finish", () => socket.destroySoon());
    response.assignSocket(socket);
    upgrades.set(request, { socket, head });
    server.emit("request", request, response);
  });
}

/** Registers vLLM's realtime API, over WebSocket. */
export function registerRealtimeRoute(app: FastifyInstance, context: RouterContext): void {
  app.route({
    method: "GET",
    url: realtimePath,
    exposeHeadRoute: false,
    config: { family: "openai", endpointId: "realtime" },
    handler: (request, reply) => serve(context, request, reply),
  });
}

function serve(context: RouterContext, request: FastifyRequest, reply: FastifyReply): void {
  const { headers, raw, id: requestId } = request;
  const upgrade = upgrades.get(raw);
  if (!upgrade) throw new EspalierError("upgrade_required");
  if (!mayOpen(headers, context.live.current.cors.origins)) throw new EspalierError("cross_origin_request");
  const { scheduler, proxy, realtime } = context;
  const frames = new RealtimeFrames();
  const key = headers["sec-websocket-key"];
  if (key === undefined || headers["sec-websocket-version"] !== "13") {
    throw new EspalierError("bad_request", "The handshake of WebSocket 13 has a key and its version.");
  }
  const socket = new ClientSocket({ ...upgrade, response: reply.raw, requestId, frames, scheduler });
  realtime.add(socket);
  answer(context, request, reply, "openai", () => planRealtime(context, request, { socket, frames, key }), {
    response: socket,
    carrier: {
      attempt(owner, attempted) {
        socket.engineUrl = attempted.upstream.url;
        return proxy.upgrade(owner, attempted, socket);
      },
    },
  });
}

/** Browsers let every page open a WebSocket and read from it. Programs that are no browsers send no origin. */
function mayOpen({ origin, host }: IncomingHttpHeaders, origins: readonly string[]): boolean {
  if (origin === undefined || origins.includes("*") || origins.includes(origin)) return true;
  return URL.canParse(origin) && new URL(origin).host === host;
}

interface RealtimeClient {
  readonly socket: ClientSocket;
  readonly frames: RealtimeFrames;
  /** The client's `sec-websocket-key`. */
  readonly key: string;
}

/** The model is that of the query, or of `x-espalier-model`, or the only one served; else that of the client's first event. */
function planRealtime(
  context: RouterContext,
  request: ClientRequest,
  client: RealtimeClient,
): PlannedRequest | Promise<PlannedRequest> {
  const { headers, url } = request;
  const query = new URLSearchParams(url.slice(pathLength(url) + 1));
  const header = headers["x-espalier-model"];
  const named = query.get("model") ?? (typeof header === "string" ? header : undefined);
  try {
    return planFor(context, request, client, named);
  } catch (thrown) {
    const isUnnamed = named === undefined && thrown instanceof EspalierError && thrown.code === "missing_field";
    if (!isUnnamed) throw thrown;
  }
  const created = Math.floor(context.clock.wallMs() / 1_000);
  client.socket.accept(client.key, `{"type":"session.created","id":"sess-${request.id}","created":${created}}`);
  return client.socket
    .namedModel(context.live.current.timeouts.requestReceiveMs)
    .then((model) => planFor(context, request, client, model));
}

function planFor(
  context: RouterContext,
  request: ClientRequest,
  { socket, frames }: RealtimeClient,
  named: string | undefined,
): PlannedRequest {
  const passed = planForward(context, request);
  const session = findSession(context.live.current.sessionKey, request.headers, undefined);
  const api = { endpoint: "forwarded", path: realtimePath, written: named } as const;
  const { model, pool, targets, serves } = resolvePool(context, { model: named, sessionKey: session?.key }, api);
  if (named !== undefined && named !== model) socket.model = model;
  const head = engineHead(context, request, pool);
  const headers = [...head.headers];
  // The router reads usage from frames, which an extension would compress.
  dropHeader(headers, "sec-websocket-extensions");
  return {
    ...passed,
    ...{ ...head, headers, endpointId: "realtime", pool, targets, serves, onlyEngine: undefined, frames },
    path: realtimePath + queryWith(request.url, model),
    features: {
      ...passed.features,
      sessionKey: session?.key,
      sessionScope: session && sessionScope(tenantOf(context, request), undefined),
    },
  };
}

const pathLength = (url: string): number => {
  const mark = url.indexOf("?");
  return mark < 0 ? url.length : mark;
};

/** The client's query, with the name that engines know its model by. */
function queryWith(url: string, model: string): string {
  const query = new URLSearchParams(url.slice(pathLength(url) + 1));
  if (query.has("model")) query.set("model", model);
  return query.size > 0 ? `?${query}` : "";
}
