import { type ErrorCode, type ErrorKind, errorCatalogue } from "./error-catalogue.ts";

export interface ErrorDetails {
  /** The field, header or configuration path at fault. */
  readonly param?: string;
  /** When the client may try again, in seconds. */
  readonly retryAfterSeconds?: number;
  readonly cause?: unknown;
}

/** The one error that Espalier throws on purpose. Its code is stable; its message says what is wrong this time. */
export class EspalierError extends Error {
  override readonly name = "EspalierError";
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, message?: string, details: ErrorDetails = {}) {
    super(message ?? errorCatalogue[code].meaning, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.param = details.param;
    this.retryAfterSeconds = details.retryAfterSeconds;
  }

  get kind(): ErrorKind {
    return errorCatalogue[this.code];
  }
}

/** Wraps what was thrown by accident, so that every error on its way to a client has a code. */
export function asEspalierError(thrown: unknown): EspalierError {
  if (thrown instanceof EspalierError) return thrown;
  return new EspalierError("internal_error", errorCatalogue.internal_error.meaning, { cause: thrown });
}
