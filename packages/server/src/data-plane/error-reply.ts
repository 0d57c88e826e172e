import type { ServerResponse } from "node:http";
import { asEspalierError, EspalierError, type Logger, type Random } from "@espalier/common";
import { namesEngines } from "@espalier/disaggregation";
import { type ApiFamily, errorResponse } from "@espalier/openai";
import type { FastifyError } from "fastify";

/**
 * Writes the one shape that a family's errors have. Does nothing when the answer has begun.
 *
 * @param endWhen calls what it is given when the answer may end; at once unless given
 */
export function replyWithError(
  response: ServerResponse,
  family: ApiFamily,
  error: EspalierError,
  requestId: string,
  extraHeaders: readonly string[] = [],
  endWhen: (end: () => void) => void = (end) => end(),
): void {
  if (response.headersSent || response.destroyed) return;
  const { status, headers, body } = errorResponse(family, error, requestId);
  response.writeHead(status, [
    ...Object.entries(headers).flat(),
    "content-length",
    String(Buffer.byteLength(body)),
    "x-request-id",
    requestId,
    ...extraHeaders,
  ]);
  response.write(body);
  endWhen(() => response.end());
}

/** Names what fastify refused in the catalogue's terms. Anything unforeseen is logged and becomes `internal_error`. */
export function fromFastifyError(error: FastifyError, logger: Logger, requestId: string): EspalierError {
  if (error instanceof EspalierError) return error;
  switch (error.code) {
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new EspalierError("body_too_large");
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return new EspalierError("unsupported_media_type");
    case "FST_ERR_CTP_INVALID_CONTENT_LENGTH":
      return new EspalierError("bad_request", "The body is not as long as Content-Length says.");
    case "FST_ERR_CTP_INVALID_JSON_BODY":
    case "FST_ERR_CTP_EMPTY_JSON_BODY":
      return new EspalierError("invalid_json");
    case "FST_ERR_BAD_URL":
      return new EspalierError("bad_request", "The path is not a valid URL.");
    case "FST_ERR_MAX_PARAM_LENGTH":
      return new EspalierError("uri_too_long");
    case "ECONNRESET":
    case "ERR_STREAM_PREMATURE_CLOSE":
      return new EspalierError("client_closed");
    default:
      logger.error("unforeseen error", { requestId, error });
      return asEspalierError(error);
  }
}

const usableId = /^[\x21-\x7e]{1,128}$/;
const usableTraceparent = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$/;

/**
 * The id that ties one request's log lines, headers and engine logs together: the client's when usable, else a new one.
 *
 * @param isTrusted whether the client may name engines in it
 */
export function readRequestId(header: string | string[] | undefined, random: Random, isTrusted = false): string {
  const isUsable = typeof header === "string" && usableId.test(header) && (isTrusted || !namesEngines(header));
  return isUsable ? header : `req-${randomHex(random, 3)}`;
}

/** W3C Trace Context (2021) `traceparent`: the client's when valid, else a new one with the sampled flag off. */
export function readTraceparent(header: string | string[] | undefined, random: Random): string {
  return callerTraceparent(header) ?? `00-${randomHex(random, 4)}-${randomHex(random, 2)}-00`;
}

/** The client's `traceparent`; undefined when there is none that is valid. */
export function callerTraceparent(header: string | string[] | undefined): string | undefined {
  return typeof header === "string" && usableTraceparent.test(header) ? header : undefined;
}

/** Numbers above 2^31 take a slow path in `toString`, which a table of bytes spares. */
const hexOfByte = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** `words` times 8 hexadecimal digits, never all zero. */
function randomHex(random: Random, words: number): string {
  let text = "";
  for (let word = 0; word < words; word++) {
    const drawn = 1 + random.integer(0xffff_ffff);
    text += hexOfByte[drawn >>> 24]! + hexOfByte[(drawn >>> 16) & 0xff]!;
    text += hexOfByte[(drawn >>> 8) & 0xff]! + hexOfByte[drawn & 0xff]!;
  }
  return text;
}
