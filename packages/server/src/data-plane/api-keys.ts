import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { EspalierError } from "@espalier/common";

export interface ApiKey {
  readonly name: string;
  /** SHA-256 of the key: 32 bytes. */
  readonly sha256: Buffer;
}

/**
 * Checks the key of a request: `authorization: Bearer`, or `x-api-key` as Anthropic's clients send it.
 *
 * Digests of equal length are compared in constant time and every known key is looked at, so that the time taken
 * tells nothing of which key, or which part of one, was nearly right.
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
