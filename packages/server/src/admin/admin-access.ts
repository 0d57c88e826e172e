import type { IncomingMessage } from "node:http";
import { EspalierError, isLoopback } from "@espalier/common";
import type { FastifyInstance } from "fastify";

interface WhoMayReadOptions {
  /** Origins of the other routers' pages. */
  readonly origins: () => readonly string[];
  /** Whether the listener requires no key. */
  readonly isOpen: boolean;
}

/** Decides which pages of a browser may talk to the admin listener. */
export interface WhoMayRead {
  /** Whether the Host header names this listener, which rules out DNS rebinding. */
  isMeant(host: string | undefined): boolean;
  /** Whether the origin is another router's page. */
  isPeer(origin: string): boolean;
  /** Whether a WebSocket may be opened. Browsers let any page try; other programs send no origin. */
  allowsUpgrade(request: Pick<IncomingMessage, "headers">): boolean;
}

export function createWhoMayRead({ origins, isOpen }: WhoMayReadOptions): WhoMayRead {
  const isMeant = (host: string | undefined): boolean =>
    !isOpen || host === undefined || isLoopback(hostOf(host) ?? "");
  const isPeer = (origin: string): boolean => origins().some((peer) => oneName(peer) === oneName(origin));
  return {
    isMeant,
    isPeer,
    allowsUpgrade({ headers: { host, origin } }) {
      if (!isMeant(host)) return false;
      return origin === undefined || isSame(origin, host) || isPeer(origin);
    },
  };
}

/** Paths that pages of other routers may read. */
export const readablePaths = ["/admin/dashboard", "/admin/history", "/admin/prefixes", "/admin/decisions"] as const;
/** How long browsers cache a preflight, in seconds. */
const preflightSeconds = 600;

/**
 * Lets pages of other routers read the few endpoints that the dashboard uses. A listener without a key refuses Host headers
 * that could come from DNS rebinding.
 */
export function guardOrigins(app: FastifyInstance, who: WhoMayRead): void {
  app.addHook("onRequest", async ({ headers, method, url }, reply) => {
    const path = url.split("?", 1)[0];
    if (!readablePaths.some((readable) => readable === path)) return undefined;
    if (!who.isMeant(headers.host)) throw notMeant();
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

/** The refusal of a request that may come by DNS rebinding. */
export function notMeant(): EspalierError {
  return new EspalierError(
    "invalid_header",
    "Without admin.key, the admin listener must be called by a loopback address.",
    {
      param: "host",
    },
  );
}

/** Browsers send preflights without a key. */
export function registerPreflights(app: FastifyInstance): void {
  for (const path of readablePaths) {
    app.options(path, () => {
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
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, "") : undefined;
}

/** Whether the origin is on the loopback interface. */
export function isLocalOrigin(origin: string): boolean {
  return isLoopback(hostOf(origin) ?? "");
}
