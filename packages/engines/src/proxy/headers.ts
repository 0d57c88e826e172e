import type { Upstream } from "./side-request.ts";

/** Headers that belong to one connection (RFC 9110 section 7.6.1), besides those that start with `proxy-`. */
const hopByHop = ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"] as const;

/** Request headers that undici writes, that the router replaces, or that engines must not see. */
const droppedFromRequest = new Set<string>([
  ...hopByHop,
  "host",
  "content-length",
  "expect",
  "x-request-id",
  // Without it engines answer uncompressed, so that the router can read streams and append to them.
  "accept-encoding",
]);
const droppedFromResponse = new Set<string>(hopByHop);
/** Transfer codings that change nothing but the framing; `identity` is a former one. */
const plainCodings = new Set(["", "chunked", "identity"]);
const credentials = new Set(["authorization", "x-api-key"]);

/** Sources of the headers for engines. */
interface HeaderSource {
  /** The client's, flat, as `rawHeaders` of node:http gives them. */
  readonly headers: readonly string[];
  /** Names, in lower case, of further ones that engines must not get. */
  readonly withheld: ReadonlySet<string>;
  /**
   * Flat pairs that the caller adds, names in lower case. They replace the client's headers of the same names, and the client
   * cannot remove them by naming them in `connection`.
   */
  readonly ownHeaders: readonly string[];
  /** Lets the client's `authorization` and `x-api-key` through to the engine. */
  readonly forwardAuthorization: boolean;
  readonly requestId: string;
}

/**
 * The headers for engines: the client's without hop-by-hop and reserved ones, plus the caller's own and the request id.
 *
 * @returns flat name and value pairs
 */
export function requestHeaders({
  headers: source,
  withheld,
  ownHeaders,
  forwardAuthorization,
  requestId,
}: HeaderSource): readonly string[] {
  // Long enough at once: an array that grows by pairs is copied several times.
  const kept = new Array<string>(source.length + ownHeaders.length + 2);
  let count = 0;
  let connection: string | undefined;
  for (let i = 0; i + 1 < source.length; i += 2) {
    const name = source[i]!;
    const lower = name.toLowerCase();
    if (lower === "connection")
      connection = connection === undefined ? source[i + 1] : `${connection},${source[i + 1]}`;
    if (droppedFromRequest.has(lower) || withheld.has(lower) || isReserved(lower)) continue;
    if (!forwardAuthorization && credentials.has(lower)) continue;
    if (isNamed(ownHeaders, lower)) continue;
    kept[count++] = name;
    kept[count++] = source[i + 1]!;
  }
  kept.length = count;
  if (connection !== undefined) dropListed(kept, connection);
  for (const text of ownHeaders) kept.push(text);
  kept.push("x-request-id", requestId);
  return kept;
}

/** Whether flat pairs have a header of this name. @param lowerName in lower case */
export function isNamed(pairs: readonly string[], lowerName: string): boolean {
  for (let i = 0; i < pairs.length; i += 2) {
    if (pairs[i]!.length === lowerName.length && pairs[i]!.toLowerCase() === lowerName) return true;
  }
  return false;
}

/** Adds the upstream's own headers, which replace those of the same name. */
export function withUpstreamHeaders(
  base: readonly string[],
  { headers: added }: Pick<Upstream, "headers">,
): readonly string[] {
  if (added.length === 0) return base;
  const replaced = new Set<string>();
  for (let i = 0; i < added.length; i += 2) replaced.add(added[i]!.toLowerCase());
  const merged: string[] = [];
  for (let i = 0; i < base.length; i += 2) {
    if (!replaced.has(base[i]!.toLowerCase())) merged.push(base[i]!, base[i + 1]!);
  }
  return merged.concat(added);
}

/** Names and values for which the headers of an answer have space: those that its receiver adds. */
const spareTexts = 16;

/** Headers of an engine's answer that are forwarded to the client. */
interface AnswerHeaders {
  /** Flat name and value pairs. */
  readonly pairs: string[];
  readonly contentType: string;
  /** Whether the body is compressed, so that plain text cannot be added to it. */
  readonly encoded: boolean;
}

/** @param raw name and value bytes, alternating, in order of arrival */
export function answerHeaders(raw: readonly Buffer[]): AnswerHeaders {
  const pairs = new Array<string>(raw.length + spareTexts);
  let count = 0;
  let contentType = "";
  let encoded = false;
  let connection: string | undefined;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]!.toString("latin1");
    const lower = name.toLowerCase();
    const value = raw[i + 1]!.toString("latin1");
    if (lower === "connection") connection = value;
    if (droppedFromResponse.has(lower) || isReserved(lower)) continue;
    if (lower === "content-type") contentType = value;
    else if (lower === "content-encoding") encoded = value !== "identity";
    pairs[count++] = name;
    pairs[count++] = value;
  }
  pairs.length = count;
  if (connection !== undefined) dropListed(pairs, connection);
  return { pairs, contentType, encoded };
}

/**
 * Whether an answer has a transfer coding that undici does not undo: it takes away the chunks and leaves, say, gzip, of which nobody
 * behind could know.
 *
 * @param raw name and value bytes, alternating
 */
export function isCoded(raw: readonly Buffer[]): boolean {
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if (raw[i]!.length !== 17 || raw[i]!.toString("latin1").toLowerCase() !== "transfer-encoding") continue;
    const codings = raw[i + 1]!.toString("latin1").toLowerCase().split(",");
    if (codings.some((coding) => !plainCodings.has(coding.trim()))) return true;
  }
  return false;
}

/** Removes all pairs of a name in place. @param lowerName in lower case */
export function dropHeader(pairs: string[], lowerName: string): void {
  for (let i = pairs.length - 2; i >= 0; i -= 2) {
    if (pairs[i]!.length === lowerName.length && pairs[i]!.toLowerCase() === lowerName) pairs.splice(i, 2);
  }
}

function isReserved(lower: string): boolean {
  return lower.startsWith("x-espalier-") || lower.startsWith("proxy-");
}

/** Removes the pairs that a `connection` value lists, in place and in one pass: a client can list thousands. */
function dropListed(pairs: string[], connection: string): void {
  const tokens = tokensOf(connection);
  if (tokens.length === 0) return;
  const listed = new Set(tokens);
  let end = 0;
  for (let i = 0; i < pairs.length; i += 2) {
    if (listed.has(pairs[i]!.toLowerCase())) continue;
    pairs[end++] = pairs[i]!;
    pairs[end++] = pairs[i + 1]!;
  }
  pairs.length = end;
}

const noTokens: readonly string[] = [];

/** The header names in a `connection` value; usually there are none. */
function tokensOf(connection: string): readonly string[] {
  const lower = connection.toLowerCase();
  if (lower === "keep-alive" || lower === "close") return noTokens;
  return lower.split(",").map((token) => token.trim());
}

/**
 * Reads Retry-After in seconds. Dates, which engines do not send, are ignored.
 *
 * @param headers names and values, alternating
 * @returns milliseconds; undefined without a usable value
 */
export function retryAfterMs(headers: readonly (string | Buffer)[]): number | undefined {
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i]!.length !== 11 || String(headers[i]!).toLowerCase() !== "retry-after") continue;
    const text = String(headers[i + 1]!).trim();
    return /^\d{1,9}$/.test(text) ? 1_000 * Number(text) : undefined;
  }
  return undefined;
}
