/** The `type` field of the OpenAI error object. */
type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "permission_error"
  | "not_found_error"
  | "rate_limit_error"
  | "server_error";

export interface ErrorKind {
  /** HTTP status of the answer; 0 for errors that never reach a client. */
  readonly status: number;
  readonly type: ErrorType;
  /** Whether the same request may succeed if the client sends it again. */
  readonly retryable: boolean;
  /** The general cause. */
  readonly meaning: string;
  /** What the reader should do next, in one line. */
  readonly action: string;
}

const request = (status: number, meaning: string, action: string): ErrorKind => ({
  status,
  type: status === 404 ? "not_found_error" : "invalid_request_error",
  retryable: false,
  meaning,
  action,
});

const upstream = (status: number, meaning: string, action: string): ErrorKind => ({
  status,
  type: "server_error",
  retryable: true,
  meaning,
  action,
});

const setup = (meaning: string, action: string): ErrorKind => ({
  status: 0,
  type: "invalid_request_error",
  retryable: false,
  meaning,
  action,
});

/** Every error that Espalier raises on purpose, by its stable code. `docs/ERRORS.md` is generated from it. */
export const errorCatalogue = {
  invalid_json: request(400, "The body is not valid JSON.", "Send one JSON object; the message gives the position."),
  invalid_utf8: request(400, "The body is not valid UTF-8.", "Encode the body as UTF-8."),
  invalid_body: request(
    400,
    "The body is JSON but not an object, or an ambiguous form.",
    "Send one JSON object, or a form as browsers write it.",
  ),
  duplicate_key: request(400, "A key appears twice in the request object.", "Send each key once."),
  forbidden_key: request(400, "The body has a key that could alter an object's prototype.", "Remove the named key."),
  reserved_field: request(
    400,
    "A field names the location of KV blocks or a rank, which only the router may set.",
    "Remove the named field, or set `trust-transfer-fields`.",
  ),
  nesting_too_deep: request(400, "The body nests deeper than the limit.", "Flatten the body."),
  missing_field: request(400, "A required field is absent.", "Add the named field."),
  invalid_type: request(400, "A field has the wrong type.", "Correct the named field."),
  invalid_value: request(400, "A field has a value outside its range.", "Correct the named field."),
  invalid_header: request(400, "A request header has an unusable value.", "Correct the named header."),
  bad_request: request(400, "The request is not valid HTTP.", "Send a well-formed HTTP/1.1 request."),
  expectation_failed: request(417, "The header Expect has an unknown value.", "Send `Expect: 100-continue` or none."),
  request_timeout: request(408, "The request did not arrive in time.", "Send the whole request without pausing."),
  body_too_large: request(
    413,
    "The body is larger than the limit.",
    "Shorten the prompt or raise limits.max-body-bytes.",
  ),
  uri_too_long: request(414, "The request path is too long.", "Shorten the path."),
  headers_too_large: request(431, "The request headers are larger than the limit.", "Send fewer or shorter headers."),
  unsupported_media_type: request(415, "The content type is not supported.", "Send `application/json`."),
  unsupported_encoding: request(415, "The content encoding is not supported.", "Send the body uncompressed."),
  method_not_allowed: request(405, "The path exists, but not for this method.", "Use the method in the Allow header."),
  upgrade_required: request(
    426,
    "The path is served over WebSocket only.",
    "Connect with a WebSocket client; the router's Node must be 24.9 or newer.",
  ),
  path_not_found: request(404, "The path is not served.", "Check the path, or list it under forward-paths."),
  adapter_not_served: request(
    400,
    "The engines serve this LoRA adapter on other paths only.",
    "Use a path with adapter support. SGLang: chats, completions, embeddings, /v1/messages and /generate.",
  ),
  model_not_found: request(404, "No engine serves this model.", "Use one of the models of GET /v1/models."),
  response_not_found: request(404, "No engine stores this response.", "Send the whole conversation again."),
  decision_not_found: request(
    404,
    "No router has a decision for this request id.",
    "Use `x-request-id` of an answer. Each router keeps its latest 16,384 decisions until it exits.",
  ),
  engine_not_allowed: {
    ...request(403, "The engine's host may not be added.", "Add its address, network or name to `rollouts.allow`."),
    type: "permission_error",
  },
  engine_not_named: request(
    400,
    "The call differs per engine, and names none.",
    "Name one in the header `x-espalier-engine`, by id or URL, and send the call once per engine.",
  ),
  engine_not_found: request(404, "No engine has this id.", "List the engines with GET /admin/engines."),
  engine_exists: request(
    409,
    "An engine with this id or URL exists already.",
    "Remove it first, or choose another id.",
  ),
  missing_api_key: {
    ...request(401, "The request carries no API key.", "Send Authorization: Bearer <key>."),
    type: "authentication_error",
  },
  invalid_api_key: {
    ...request(401, "The API key is not known.", "Use a key that the router's configuration lists."),
    type: "authentication_error",
  },
  cross_origin_request: {
    ...request(
      403,
      "A page of another site sent the request.",
      "Call the admin API from its own pages or outside a browser; behind a proxy, set `admin.advertise` to the browser's URL. For `/v1/realtime`, add the page to `cors.origins`.",
    ),
    type: "permission_error",
  },
  auth_failed: upstream(
    503,
    "The `auth` hook of the embedding program failed or timed out.",
    "Retry; the router's log has the reason.",
  ),
  client_closed: { ...request(499, "The client disconnected before the answer.", "Nothing to do."), retryable: true },
  request_aborted: request(
    499,
    "The client's `/abort_request` ended it while the router had it.",
    "Nothing to do. On `/generate` it is an answer with the finish reason `abort`.",
  ),
  overloaded: {
    ...upstream(429, "The router is at its limit of concurrent requests.", "Retry after the time in Retry-After."),
    type: "rate_limit_error",
  },
  queue_full: {
    ...upstream(429, "The queue is full.", "Retry after Retry-After, or with a higher priority."),
    type: "rate_limit_error",
  },
  deadline_missed: {
    ...upstream(
      429,
      "The request would miss its deadline.",
      "Retry after Retry-After, or with a later x-espalier-deadline-ms.",
    ),
    type: "rate_limit_error",
  },
  no_engine_available: upstream(503, "No engine of the pool is available.", "Retry after Retry-After."),
  engines_asleep: upstream(
    503,
    "All engines of the pool are asleep or down.",
    "Wake one (vLLM: `POST /wake_up`), then retry.",
  ),
  too_many_connections: upstream(
    503,
    "The router is at its limit of client connections.",
    "Retry on a new connection after the time in Retry-After.",
  ),
  out_of_descriptors: upstream(
    503,
    "The router has reached its process limit of open connections.",
    "Retry after the time in Retry-After; raise `ulimit -n` of the router.",
  ),
  draining: upstream(503, "This router is shutting down.", "Retry on another router."),
  upstream_connect_failed: upstream(502, "The engine could not be reached.", "Retry; check the engine's address."),
  upstream_reset: upstream(502, "The engine closed the connection before an answer.", "Retry."),
  request_breaks_engines: {
    ...upstream(
      502,
      "Two engines closed the connection during this request.",
      "Check the engines' logs before a retry.",
    ),
    retryable: false,
  },
  upstream_timeout: upstream(
    504,
    "The engine did not answer in time.",
    "Retry, or raise `timeouts.first-byte` or `timeouts.idle`.",
  ),
  upstream_protocol_error: upstream(
    502,
    "The engine's answer is not valid HTTP.",
    "Check that the address is an engine's HTTP API.",
  ),
  upstream_cut_short: upstream(502, "The engine closed the connection during its answer.", "Send the request again."),
  internal_error: upstream(500, "Internal error of the router.", "Report the request id and the log."),
  config_invalid: setup("The configuration is not valid.", "Fix the named setting; see docs/CONFIGURATION.md."),
  plugin_invalid: setup("A plugin module is invalid.", "Fix the named module; see docs/guides/extend.md."),
  config_unreadable: setup("The configuration file cannot be read.", "Check the path and its permissions."),
  discovery_failed: setup(
    "A discovery source fails; its last list of engines stays in use.",
    "Check the named source: name server, API server, or permissions of the service account.",
  ),
  listen_failed: setup("The router cannot listen on the address.", "Free the port or choose another one."),
  mesh_update_refused: setup(
    "A peer sent a document update without write permission.",
    "The link was closed; check the versions of all routers and who has the mesh secret.",
  ),
  mesh_frame_invalid: setup(
    "A peer sent a malformed frame.",
    "The link was closed; check the versions of all routers.",
  ),
  mesh_insecure: setup(
    "The mesh listens on a network address without a secret or mutual TLS.",
    "Set mesh.secret or mesh.tls, or listen on 127.0.0.1.",
  ),
  mesh_rejected: setup(
    "A handshake between this router and a peer was refused.",
    "Set the named setting to the same value on all routers of the cluster.",
  ),
  redis_unusable: setup("The Redis server is unusable.", "Check mesh.redis-url and the server."),
  trace_unreadable: setup("The trace cannot be read.", "Check the path, its permissions, and the file."),
  trace_invalid: setup("A line of the trace is invalid.", "Fix the named line."),
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof errorCatalogue;

/** The text of `docs/ERRORS.md`, made from the catalogue so that the two cannot differ. */
export function renderErrorDocs(): string {
  const entries = Object.entries(errorCatalogue);
  const answered = entries.filter(([, kind]) => kind.status !== 0);
  const local = entries.filter(([, kind]) => kind.status === 0);
  return [
    "# Errors",
    "",
    "Generated from the error catalogue by `npm run docs`. Every error of the router itself has a stable code.",
    "Errors of an engine pass through unchanged.",
    "",
    "## Answers to clients",
    "",
    'The body is `{"error": {"message", "type", "param", "code"}}`; on `/v1/messages` it has Anthropic\'s shape. A retryable',
    "429 or 503 carries `Retry-After`. After the first byte, an error is the last stream frame",
    '`data: {"error": ...}` without `[DONE]`.',
    "",
    "| code | status | type | retryable | meaning | what to do |",
    "|---|---|---|---|---|---|",
    ...answered.map(
      ([code, kind]) =>
        `| \`${code}\` | ${kind.status} | \`${kind.type}\` | ${kind.retryable ? "yes" : "no"} | ${kind.meaning} | ${kind.action} |`,
    ),
    "",
    "## Errors of the command",
    "",
    "The command prints these on standard error and exits with 1, or with 2 for a usage error.",
    "",
    "| code | meaning | what to do |",
    "|---|---|---|",
    ...local.map(([code, kind]) => `| \`${code}\` | ${kind.meaning} | ${kind.action} |`),
    "",
  ].join("\n");
}

export interface ErrorDetails {
  /** The field, header or configuration path at fault. */
  readonly param?: string;
  /** When the client may try again, in seconds. */
  readonly retryAfterSeconds?: number;
  /** What the reader should do next, where the catalogue's advice is for somebody else. */
  readonly action?: string;
  readonly cause?: unknown;
}

/** The only error that Espalier throws on purpose. Its code is stable; its message describes this occurrence. */
export class EspalierError extends Error {
  override readonly name = "EspalierError";
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  /** What the reader should do next, in one line. */
  readonly action: string;

  constructor(code: ErrorCode, message?: string, details: ErrorDetails = {}) {
    super(message ?? errorCatalogue[code].meaning, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.param = details.param;
    this.retryAfterSeconds = details.retryAfterSeconds;
    this.action = details.action ?? errorCatalogue[code].action;
  }

  get kind(): ErrorKind {
    return errorCatalogue[this.code];
  }
}

/** Wraps an unexpected error, so that every error on its way to a client has a code. */
export function asEspalierError(thrown: unknown): EspalierError {
  if (thrown instanceof EspalierError) return thrown;
  return new EspalierError("internal_error", errorCatalogue.internal_error.meaning, { cause: thrown });
}
