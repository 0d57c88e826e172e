/** A small request for control traffic (health, metrics, discovery): bounded in time and size, never a user's request. */
export interface HttpRequest {
  readonly url: string;
  readonly method?: "GET" | "POST" | "PATCH" | "DELETE";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** From the call to the last byte of the answer. */
  readonly timeoutMs: number;
  /** A longer answer is an error. */
  readonly maxBytes: number;
}

export interface HttpResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/**
 * Sends one control request.
 *
 * @throws EspalierError `upstream_connect_failed`, `upstream_timeout` or `upstream_protocol_error`
 */
export type HttpClient = (request: HttpRequest) => Promise<HttpResponse>;
