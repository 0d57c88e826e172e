import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { FastifyRequest } from "fastify";

/** How long browsers remember what a preflight was told, in seconds: the most that any of them takes. */
const maxAgeSeconds = 7_200;

/** What answers say to a page that may read them; nothing where its origin is not listed, or the request is of no page. */
export function corsHeaders(
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

/** Whether a browser asks if it may send a request. */
export const isPreflight = ({ method, headers }: FastifyRequest): boolean =>
  method === "OPTIONS" && headers.origin !== undefined && headers["access-control-request-method"] !== undefined;

/** @param methods that the path is served for */
export function answerPreflight(response: ServerResponse, request: FastifyRequest, methods: readonly string[]): void {
  const asked = request.headers["access-control-request-headers"];
  const headers: OutgoingHttpHeaders = {
    "access-control-allow-methods": methods.join(", "),
    // By name: a `*` would leave out `authorization`.
    ...(asked !== undefined && { "access-control-allow-headers": asked }),
    "access-control-max-age": String(maxAgeSeconds),
    vary: "origin, access-control-request-method, access-control-request-headers",
    "x-request-id": request.id,
  };
  response.writeHead(204, headers).end();
}
