import { type EspalierError, errorCatalogue } from "@espalier/core";
import type { ApiFamily } from "./endpoints.ts";

export interface ErrorResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** When a client may retry after 429 or 503, unless the error says otherwise. */
const defaultRetryAfterSeconds = 1;

/** Anthropic's names for errors by HTTP status; other 4xx are invalid requests, other 5xx are `api_error`. */
const anthropicTypes: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
  504: "timeout_error",
};

/**
 * An error as an answer in the shape that the API's clients expect. SGLang's own API has OpenAI's shape.
 *
 * @param requestId included where the shape has a place for it (Anthropic)
 */
export function errorResponse(family: ApiFamily, error: EspalierError, requestId?: string): ErrorResponse {
  const status = statusOf(error);
  const headers: Record<string, string> = { "content-type": "application/json" };
  const retryAfter = retryAfterSeconds(error, status);
  if (retryAfter !== undefined) headers["retry-after"] = String(retryAfter);
  return { status, headers, body: JSON.stringify(errorObject(family, error, requestId)) };
}

/**
 * What SGLang answers to a request that was aborted in its queue, so that clients do not send it again.
 *
 * @param isStreamed whether it asked for a stream
 */
export function abortedResponse({ message }: EspalierError, id: string, isStreamed: boolean): ErrorResponse {
  const finishReason = { type: "abort", message, status_code: null, err_type: null };
  const counts = { prompt_tokens: 0, completion_tokens: 0, cached_tokens: 0 };
  const metaInfo = { id, finish_reason: finishReason, ...counts, output_token_logprobs: [] };
  const body = JSON.stringify({ text: "", output_ids: [], meta_info: metaInfo });
  const written = isStreamed
    ? { type: "text/event-stream; charset=utf-8", body: `data: ${body}\n\ndata: [DONE]\n\n` }
    : { type: "application/json", body };
  return { status: 200, headers: { "content-type": written.type }, body: written.body };
}

/**
 * An error as one event for a stream that has begun. No `[DONE]` follows, so that no client takes the answer for
 * complete. If the stream was cut inside an event, send a blank line first.
 */
export function errorStreamFrame(family: ApiFamily, error: EspalierError): string {
  const data = JSON.stringify(errorObject(family, error, undefined));
  return family === "anthropic" ? `event: error\ndata: ${data}\n\n` : `data: ${data}\n\n`;
}

function errorObject(family: ApiFamily, error: EspalierError, requestId: string | undefined): object {
  if (family === "anthropic") {
    return {
      type: "error",
      error: { type: anthropicType(statusOf(error)), message: error.message },
      ...(requestId === undefined ? {} : { request_id: requestId }),
    };
  }
  return {
    error: { message: error.message, type: error.kind.type, param: error.param ?? null, code: error.code },
  };
}

/** Errors of the router's own setup have no status; one that arrives here is a defect. */
function statusOf(error: EspalierError): number {
  return error.kind.status || errorCatalogue.internal_error.status;
}

function anthropicType(status: number): string {
  return anthropicTypes[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
}

/** Whole seconds, rounded up: a client that retries too early is refused again. */
function retryAfterSeconds(error: EspalierError, status: number): number | undefined {
  if (error.retryAfterSeconds !== undefined) return Math.max(0, Math.ceil(error.retryAfterSeconds));
  return error.kind.retryable && (status === 429 || status === 503) ? defaultRetryAfterSeconds : undefined;
}
