import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { EspalierError, isLoopback, plainHost } from "@espalier/core";
import type { FastifyInstance } from "fastify";
import { bare, error } from "../lifecycle/answer-schemas.ts";
import { isProbe } from "../lifecycle/readiness.ts";

interface WhoMayReadOptions {
  /** Origins of the other routers' pages. */
  readonly origins: () => readonly string[];
  /** This listener's own origin, if browsers reach it under another one than their Host header says. */
  readonly advertised?: string | undefined;
  /** Whether the listener requires no key. */
  readonly isOpen: boolean;
}

type RequestHead = Pick<IncomingMessage, "headers"> & { readonly method?: string | undefined };

/** Decides which requests the admin listener takes, before any key is checked. */
export interface WhoMayRead {
  /**
   * Why a request is refused: its Host header could come from DNS rebinding, or a page of another site sent it. Programs that
   * are no browsers send neither `origin` nor `sec-fetch-site`. Browsers let any page open a WebSocket, so upgrades are checked alike.
   */
  refusal(request: RequestHead): EspalierError | undefined;
  /** Whether the origin is another router's page. */
  isPeer(origin: string): boolean;
}

export function createWhoMayRead({ origins, advertised, isOpen }: WhoMayReadOptions): WhoMayRead {
  const isOwn = (origin: string, host: string | undefined): boolean =>
    isSame(origin, host) || (advertised !== undefined && oneName(advertised) === oneName(origin));
  const isPeer = (origin: string): boolean => origins().some((peer) => oneName(peer) === oneName(origin));

  return {
    isPeer,
    refusal({ method, headers }) {
      const { host, origin, "sec-fetch-site": site, "sec-fetch-mode": mode } = headers;
      const isChange = method !== "GET" && method !== "HEAD" && method !== "OPTIONS";
      if (isOpen && host !== undefined && !isUnboundHost(hostOf(host) ?? "", isChange)) return hostRefused();
      // A preflight only asks; a link only shows what it leads to.
      if (method === "OPTIONS" || (!isChange && mode === "navigate")) return undefined;
      if (site === "same-origin" || site === "none") return undefined;
      if (origin === undefined) return site === undefined ? undefined : new EspalierError("cross_origin_request");
      if (isOwn(origin, host) || (!isChange && isPeer(origin))) return undefined;
      return new EspalierError("cross_origin_request");
    },
  };
}

/**
 * Whether a host cannot come from DNS rebinding: an address is no name that could be rebound. Changes need a loopback
 * address even so, as the listener has one.
 */
function isUnboundHost(host: string, isChange: boolean): boolean {
  return isLoopback(host) || (!isChange && isIP(host) !== 0);
}

/** Paths that pages of other routers may read. */
const readablePaths = [
  "/admin/dashboard",
  "/admin/history",
  "/admin/prefixes",
  "/admin/programs",
  "/admin/decisions",
] as const;
/** How long browsers cache a preflight, in seconds. */
const preflightSeconds = 600;

/**
 * Guards a whole application, also paths that do not exist. Only probes are answered to anyone. Pages of other routers may read
 * the few endpoints that the dashboard uses.
 */
export function guardAdmin(app: FastifyInstance, who: WhoMayRead): void {
  app.addHook("onRequest", async ({ raw, headers, method, routeOptions: { url: route } }, reply) => {
    if (isProbe(route)) return undefined;
    const refusal = who.refusal(raw);
    if (refusal) throw refusal;
    if (!readablePaths.some((readable) => readable === route)) return undefined;
    reply.header("vary", "origin");
    const { origin } = headers;
    if (origin === undefined || !who.isPeer(origin)) return undefined;
    reply.header("access-control-allow-origin", origin);
    if (method !== "OPTIONS") return undefined;
    reply.headers({
      "access-control-allow-methods": "GET",
      "access-control-allow-headers": "authorization",
      "access-control-max-age": preflightSeconds,
    });
    return reply.code(204).send();
  });
}

function hostRefused(): EspalierError {
  return new EspalierError(
    "invalid_header",
    "Without admin.key, the Host header must name a loopback address; set admin.key to allow other hosts.",
    { param: "host" },
  );
}

/** Browsers send preflights without a key. */
export function registerPreflights(app: FastifyInstance): void {
  for (const path of readablePaths) {
    const name = path.slice("/admin/".length);
    const schema = {
      operationId: `preflight${name[0]?.toUpperCase()}${name.slice(1)}`,
      summary: "CORS preflight of another router's dashboard.",
      ...{ security: [], tags: ["dashboard"] },
      response: { 204: bare("Origin allowed: a router of the mesh."), 404: error("Origin rejected.") },
    };
    app.options(path, { schema }, () => {
      throw new EspalierError("path_not_found");
    });
  }
}

/** Treats `localhost` and loopback addresses as one name. */
function oneName(origin: string): string {
  if (!isLocalOrigin(origin)) return origin;
  const { protocol, port } = new URL(origin);
  return `${protocol}//localhost:${port}`;
}

function isSame(origin: string, host: string | undefined): boolean {
  if (host === undefined || !URL.canParse(origin)) return false;
  return new URL(origin).host === host.toLowerCase() && hostOf(origin) !== undefined;
}

/** Longest origin, in characters. */
export const maxOriginLength = 256;

/** Origins that are safe to write into a header. */
const plainOrigin = /^https?:\/\/(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::\d{1,5})?$/;

/**
 * The origin of a URL as browsers write it.
 *
 * @returns undefined for text that is no http or https URL, or has more than scheme, host and port
 */
export function readOrigin(text: string): string | undefined {
  if (text.length > maxOriginLength || !URL.canParse(text)) return undefined;
  const { origin, pathname, search, hash, username, password } = new URL(text);
  if (pathname !== "/" || search || hash || username || password) return undefined;
  return plainOrigin.test(origin) ? origin : undefined;
}

/** The host of a `Host` header or an origin, without port and brackets; undefined when it is neither. */
export function hostOf(text: string): string | undefined {
  const url = text.includes("://") ? text : `http://${text}`;
  return URL.canParse(url) ? plainHost(new URL(url).hostname) : undefined;
}

/** Whether the origin is on the loopback interface. */
export function isLocalOrigin(origin: string): boolean {
  return isLoopback(hostOf(origin) ?? "");
}
