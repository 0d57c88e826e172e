import type { IncomingMessage } from "node:http";
import { EspalierError, isLoopback } from "@espalier/common";
import type { FastifyInstance } from "fastify";

interface WhoMayReadOptions {
  /** Origins of the other routers' pages. */
  readonly origins: () => readonly string[];
  /** Whether the listener asks for no key. */
  readonly isOpen: boolean;
}

/** Decides which pages of a browser may talk to the admin listener. */
export interface WhoMayRead {
  /** Whether the request was meant for this listener, by the name under which it was found. */
  isMeant(host: string | undefined): boolean;
  /** Whether the page is another router's. */
  isPeer(origin: string): boolean;
  /** Whether a websocket may be opened: browsers let every page try. Programs that are no browser send no origin. */
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

/** What pages of other routers may ask for. */
const readablePaths: ReadonlySet<string> = new Set(["/admin/dashboard", "/admin/decisions", "/admin/prefixes"]);
/** Seconds for which browsers remember that they may. */
const preflightSeconds = 600;

/**
 * Lets pages of other routers read the few endpoints that the dashboard asks, and at a listener without a key nobody under
 * a name that somebody else could have led here.
 */
export function guardOrigins(app: FastifyInstance, who: WhoMayRead): void {
  app.addHook("onRequest", async ({ headers, method, url }, reply) => {
    if (!readablePaths.has(url.split("?", 1)[0] ?? "")) return undefined;
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

function notMeant(): EspalierError {
  return new EspalierError(
    "invalid_header",
    "Without admin.key, the admin listener must be called by a loopback address.",
    {
      param: "host",
    },
  );
}

/** Browsers ask, without a key, before they send one to another origin. */
export function registerPreflights(app: FastifyInstance): void {
  for (const path of readablePaths) {
    app.options(path, () => {
      throw new EspalierError("path_not_found");
    });
  }
}

/** People write `localhost` for an address of this machine, or the other way round. */
function oneName(origin: string): string {
  if (!isLocalOrigin(origin)) return origin;
  const { protocol, port } = new URL(origin);
  return `${protocol}//localhost:${port}`;
}

function isSame(origin: string, host: string | undefined): boolean {
  if (host === undefined || !URL.canParse(origin)) return false;
  return new URL(origin).host === host.toLowerCase() && hostOf(origin) !== undefined;
}

/** Characters of an origin at most. */
export const maxOriginLength = 256;

/** What may stand in an origin that is written into a header: nothing with a meaning of its own there. */
const plainOrigin = /^https?:\/\/(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::\d{1,5})?$/;

/**
 * The origin of a URL as browsers write it.
 *
 * @returns undefined for what is no http or https URL, or has more than scheme, host and port
 */
export function readOrigin(text: string): string | undefined {
  if (text.length > maxOriginLength || !URL.canParse(text)) return undefined;
  const { origin, pathname, search, hash, username, password } = new URL(text);
  if (pathname !== "/" || search || hash || username || password) return undefined;
  return plainOrigin.test(origin) ? origin : undefined;
}

/** The host of a `Host` header or an origin, without port and brackets; undefined for what is neither. */
export function hostOf(text: string): string | undefined {
  const url = text.includes("://") ? text : `http://${text}`;
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, "") : undefined;
}

/** Whether only the machine itself is meant, whoever says it. */
export function isLocalOrigin(origin: string): boolean {
  return isLoopback(hostOf(origin) ?? "");
}
