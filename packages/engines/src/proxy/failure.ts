import { asEspalierError, type ErrorCode, EspalierError } from "@espalier/core";

/**
 * How an attempt ended that did not bring a whole answer.
 *
 * - `connect`: no connection could be opened. Nothing was sent.
 * - `overloaded`: every connection to the engine is in use and its queue is full. Nothing was sent.
 * - `reset`: the connection ended early. The engine may have had the request.
 * - `timeout`: the engine was silent for too long.
 * - `protocol`: the answer is not valid HTTP.
 */
export type FailureKind = "connect" | "overloaded" | "reset" | "timeout" | "protocol";

/** Shortages of descriptors, buffers, memory or ports of this machine. Another engine would not help. */
const ownShortages: ReadonlySet<string> = new Set(["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EADDRNOTAVAIL"]);

export interface ClassifiedError {
  readonly kind: FailureKind;
  readonly error: EspalierError;
}

/** Progress of an attempt when it failed. */
export type AttemptStage = "unsent" | "sent" | "begun";

/**
 * Turns what undici reports into a failure, or into an error that is no engine's fault: `internal_error` when the request
 * itself could not be sent, `out_of_descriptors` when this process can open no connection to anybody.
 *
 * @param stage `begun` once a byte of the body has come
 * @param ended whether the engine had closed the connection
 */
export function classifyError(thrown: Error, stage: AttemptStage, ended: boolean): ClassifiedError | EspalierError {
  const code = (thrown as NodeJS.ErrnoException).code ?? "";
  if (ownShortages.has(code)) return new EspalierError("out_of_descriptors", undefined, { cause: thrown });
  if (code === "UND_ERR_INVALID_ARG" || code === "UND_ERR_NOT_SUPPORTED") return asEspalierError(thrown);
  if (stage === "unsent") return failure("connect", "upstream_connect_failed", thrown);
  if (isGarbage(thrown, code, ended)) return failure("protocol", "upstream_protocol_error", thrown);
  return failure("reset", stage === "begun" ? "upstream_cut_short" : "upstream_reset", thrown);
}

/**
 * undici reports any parser error in an answer with a length as a length mismatch, and an early end as either; whether the
 * connection had ended tells them apart. It reports an unexpected upgrade as a socket error that begins with "bad".
 */
function isGarbage(thrown: Error, code: string, ended: boolean): boolean {
  if (thrown.name === "HTTPParserError" || code === "UND_ERR_RES_CONTENT_LENGTH_MISMATCH") return !ended;
  return code === "UND_ERR_HEADERS_OVERFLOW" || (code === "UND_ERR_SOCKET" && thrown.message.startsWith("bad "));
}

function failure(kind: FailureKind, code: ErrorCode, cause: Error): ClassifiedError {
  return { kind, error: new EspalierError(code, undefined, { cause }) };
}
