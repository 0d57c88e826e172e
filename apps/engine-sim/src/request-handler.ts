import type { IncomingMessage, ServerResponse } from "node:http";
import { isJsonObject, type JsonObject } from "@espalier/core";
import { hasErrorEvents } from "./behaviours.ts";
import { injectedStatus } from "./faults.ts";
import { keepSource, quoteLongIntegers } from "./http/body-fields.ts";
import {
  ApiError,
  asApiError,
  describeExchange,
  type Exchange,
  errorBody,
  jsonType,
  readBody,
  send,
} from "./http/exchange.ts";
import { routeFor } from "./routes.ts";
import type { EngineContext } from "./serving/engine-context.ts";
import type { Handler, Method, Route } from "./serving/route.ts";

interface RequestHandlerOptions {
  readonly context: EngineContext;
  /** The expected `Authorization: Bearer`, if any. */
  readonly apiKey: string | undefined;
}

/** Answers all requests to one simulated engine, with the active faults. */
export function createRequestHandler({ context, apiKey }: RequestHandlerOptions) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const path = (request.url ?? "/").split("?", 1)[0] as string;
    const route = routeFor(path, context.flavour);
    const isAdmin = path.startsWith("/sim/");
    const requestId = request.headers["x-request-id"];
    const exchange: Exchange = {
      request,
      response,
      path,
      receivedWallMs: context.clock.wallMs(),
      requestId: typeof requestId === "string" && requestId !== "" ? requestId : context.newId(),
      fault: isAdmin ? undefined : context.faults.take(path, route?.isModelRequest ?? false),
    };
    response.setHeader("x-request-id", exchange.requestId);
    const answer = (): void => {
      answerRequest(context, exchange, route, apiKey).catch((error: unknown) =>
        refuse(context, exchange, route, error),
      );
    };
    if (!breakBeforeHeaders(context, exchange, answer)) answer();
  };
}

/** Sizes of `garbage-body` (more than a router reads of an answer that it discards) and `huge-body`. */
const garbageBytes = 1024 * 1024;
const hugeBytes = 32 * 1024 * 1024;

/**
 * Applies a fault that happens before the headers.
 *
 * @param answer called later by a fault that only delays
 * @returns whether the fault has handled the request
 */
function breakBeforeHeaders(context: EngineContext, exchange: Exchange, answer: () => void): boolean {
  const { request, response, fault } = exchange;
  const fail = (status: number): void => {
    const headers = status === 429 || status === 503 ? { "retry-after": "1" } : {};
    const body = errorBody(context.flavour, exchange.path, { status, message: `injected fault: ${fault?.kind}` });
    send(exchange, status, jsonType, body, headers);
    request.resume();
  };
  switch (fault?.kind) {
    case "refuse":
    case "reset-before-headers":
      request.socket.resetAndDestroy();
      break;
    case "hang-before-headers":
      request.resume();
      break;
    case "garbage":
      request.socket.end("\u0000\u0001 this is not HTTP \r\n\r\n");
      break;
    case "garbage-body":
      request.resume();
      sendGarbage(response, { status: fault.status, contentType: jsonType, sizeBytes: garbageBytes });
      break;
    case "huge-body":
      request.resume();
      sendGarbage(response, { status: 200, contentType: "text/event-stream", sizeBytes: hugeBytes });
      break;
    case "status":
    case "sick":
      if (hasErrorEvents(context.behaviours)) return false;
      fail(injectedStatus(fault) ?? 500);
      break;
    case "slow":
      if (fault.afterTokens !== undefined) return false;
      response.on("close", context.scheduler.after(fault.delayMs ?? 0, answer));
      return true;
    default:
      return false;
  }
  response.on("close", () => logWithoutReports(context, exchange, "faulted"));
  return true;
}

async function answerRequest(
  context: EngineContext,
  exchange: Exchange,
  route: Route | undefined,
  apiKey: string | undefined,
): Promise<void> {
  const { request, response } = exchange;
  if (!route) throw new ApiError(404, "Not Found");
  const method = request.method as Method;
  const handler: Handler | undefined = Object.hasOwn(route.methods, method) ? route.methods[method] : undefined;
  if (!handler) {
    response.setHeader("allow", Object.keys(route.methods).join(", "));
    throw new ApiError(405, "Method Not Allowed");
  }
  if (route.isGuarded && apiKey !== undefined && request.headers.authorization !== `Bearer ${apiKey}`) {
    throw new ApiError(401, "Unauthorized");
  }
  const body = method === "POST" ? parseBody(await readBody(request), route) : {};
  const status = injectedStatus(exchange.fault);
  if (status !== undefined && body.stream !== true)
    throw new ApiError(status, `injected fault: ${exchange.fault?.kind}`);
  await handler(context, exchange, body);
}

function parseBody(text: string, { isModelRequest }: Route): JsonObject {
  if (text === "" && !isModelRequest) return {};
  let body: unknown;
  try {
    body = JSON.parse(quoteLongIntegers(text));
  } catch (error) {
    throw new ApiError(400, `[{'type': 'json_invalid', 'loc': ('body',), 'msg': 'JSON decode error: ${error}'}]`);
  }
  if (!isJsonObject(body)) throw new ApiError(400, "[{'loc': ('body',), 'msg': 'Input should be an object'}]");
  keepSource(body, text);
  return body;
}

/** Answers with an error, unless the client has disconnected or the answer has begun. */
function refuse(context: EngineContext, exchange: Exchange, route: Route | undefined, error: unknown): void {
  const { response, path, request } = exchange;
  if (response.headersSent || response.destroyed || request.socket.destroyed) {
    response.destroy();
    return;
  }
  const { status, message, param } = asApiError(error);
  // vLLM and SGLang check the key before their error format applies.
  const body =
    status === 401 ? '{"error":"Unauthorized"}' : errorBody(context.flavour, path, { status, message, param });
  // The unread rest of a body would be parsed as the next request.
  send(exchange, status, jsonType, body, request.complete ? {} : { connection: "close" });
  if (route?.isModelRequest) logWithoutReports(context, exchange, "rejected");
}

function logWithoutReports(context: EngineContext, exchange: Exchange, outcome: "faulted" | "rejected"): void {
  context.log.add({ ...describeExchange(exchange), outcome, reports: [] });
}

interface Garbage {
  readonly status: number;
  readonly contentType: string;
  readonly sizeBytes: number;
}

const pieceBytes = 64 * 1024;
/** Neither text nor JSON, and without a line end. */
const piece = Buffer.alloc(pieceBytes, Buffer.from([0x7b, 0x22, 0xff, 0x00, 0xc3, 0x28]));

/** Answers with garbage, as fast as the client reads. */
function sendGarbage(response: ServerResponse, { status, contentType, sizeBytes }: Garbage): void {
  let leftBytes = sizeBytes;
  const pump = (): void => {
    while (leftBytes > 0 && !response.destroyed) {
      const some = piece.subarray(0, Math.min(leftBytes, pieceBytes));
      leftBytes -= some.length;
      if (!response.write(some)) return;
    }
    response.end();
  };
  response.writeHead(status, { "content-type": contentType });
  response.on("drain", pump);
  pump();
}
