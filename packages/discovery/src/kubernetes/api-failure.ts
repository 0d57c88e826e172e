const meanings: Readonly<Record<number, string>> = {
  401: "the token is not accepted",
  403: "the service account may not do this",
  404: "there is nothing of this kind",
  410: "the version has expired",
  429: "too many requests",
};
const maxMessageLength = 300;

/** What the API server, or the way to it, did not do. */
export class ApiFailure extends Error {
  /** HTTP status; 0 when there was no answer. */
  readonly status: number;
  /** When to try again at the earliest, in milliseconds; 0 when it was not said. */
  readonly retryAfterMs: number;

  constructor(message: string, status = 0, retryAfterMs = 0, options: ErrorOptions = {}) {
    super(message.slice(0, maxMessageLength), options);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

/** @param said what the answer's `Status` object says, if it has one */
export function failureOfStatus(
  status: number,
  headers: Readonly<Record<string, string>>,
  said: string | undefined,
): ApiFailure {
  const meaning = meanings[status];
  const message = `status ${status}${meaning === undefined ? "" : `, ${meaning}`}${said === undefined ? "" : `: ${said}`}`;
  const seconds = Number(headers["retry-after"] ?? 0);
  return new ApiFailure(message, status, Number.isFinite(seconds) && seconds > 0 ? seconds * 1_000 : 0);
}

export function asApiFailure(thrown: unknown): ApiFailure {
  if (thrown instanceof ApiFailure) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ApiFailure(message, 0, 0, { cause: thrown });
}
