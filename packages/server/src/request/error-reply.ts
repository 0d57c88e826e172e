import { type ApiFamily, type ErrorResponse, errorResponse } from "@espalier/api";
import { asEspalierError, EspalierError, type Logger } from "@espalier/core";
import type { FastifyError } from "fastify";
import type { ClientResponse } from "./response-sink.ts";

/**
 * Writes an error in its API family's shape. Does nothing when the answer has begun.
 *
 * @param endWhen calls its argument when the answer may end; immediately by default
 */
export function replyWithError(
  response: ClientResponse,
  family: ApiFamily,
  error: EspalierError,
  requestId: string,
  extraHeaders: readonly string[] = [],
  endWhen: (end: () => void) => void = (end) => end(),
): void {
  reply(response, errorResponse(family, error, requestId), requestId, extraHeaders, endWhen);
}

/** Writes an answer of the router's own. Does nothing when another one has begun. */
export function reply(
  response: ClientResponse,
  { status, headers, body }: ErrorResponse,
  requestId: string,
  extraHeaders: readonly string[] = [],
  endWhen: (end: () => void) => void = (end) => end(),
): void {
  if (response.headersSent || response.destroyed) return;
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

/** Maps fastify's errors to the catalogue. Anything unforeseen is logged and becomes `internal_error`. */
export function fromFastifyError(error: FastifyError, logger: Logger, requestId: string): EspalierError {
  if (error instanceof EspalierError) return error;
  switch (error.code) {
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new EspalierError("body_too_large");
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return new EspalierError("unsupported_media_type");
    case "FST_ERR_CTP_INVALID_CONTENT_LENGTH":
      return new EspalierError("bad_request", "The body does not match Content-Length.");
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
      logger.error("unexpected error", { requestId, error });
      return asEspalierError(error);
  }
}
