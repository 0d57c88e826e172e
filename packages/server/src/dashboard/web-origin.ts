import { isLoopback } from "@espalier/common";

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
