import type { SpanAttributes } from "@espalier/common";
import type { FastifyRequest } from "fastify";
import { callerTraceparent } from "../data-plane/request-ids.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import { RequestTrace } from "./request-trace.ts";
import { operationOf } from "./span-names.ts";

/** Begins the trace of a request whose headers have come. @returns undefined when it is not recorded */
export function beginTrace({ tracer, clock }: RouterContext, request: FastifyRequest): RequestTrace | undefined {
  const traceparent = callerTraceparent(request.headers.traceparent);
  if (!tracer.samples(traceparent)) return undefined;
  const { tracestate } = request.headers;
  const parent = traceparent === undefined ? undefined : { traceparent, tracestate: joined(tracestate) };
  const startMs = clock.nowMs();
  const name = operationOf(request.routeOptions.config.endpointId);
  const span = tracer.begin(parent, { name, kind: "server", startMs, attributes: requestAttributes(request) });
  return new RequestTrace(span, clock, startMs);
}

/** What the head of a request tells, without what may name a person or hold a key. */
export function requestAttributes({ method, url, routeOptions, raw, protocol, id }: FastifyRequest): SpanAttributes {
  return {
    "gen_ai.operation.name": operationOf(routeOptions.config.endpointId),
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
