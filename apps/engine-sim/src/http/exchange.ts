import type { IncomingMessage, ServerResponse } from "node:http";
import type { CacheFlavour } from "@espalier/engine-model";
import type { Fault } from "../faults.ts";

/** One HTTP request and its answer. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The path without the query. */
  readonly path: string;
  readonly receivedWallMs: number;
  /** The caller's `X-Request-Id`, or one made here. */
  readonly requestId: string;
  /** The fault that hits it. */
  readonly fault: Fault | undefined;
}

export const jsonType = "application/json";
export const textType = "text/plain; charset=utf-8";

/** Answers with a whole body. */
export function send(
  { response }: Pick<Exchange, "response">,
  status: number,
  contentType: string,
  body: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, {
    "content-type": contentType,
    "content-length": Buffer.byteLength(body),
    ...headers,
  });
  response.end(body);
}

export function sendJson(exchange: Pick<Exchange, "response">, status: number, body: unknown): void {
  send(exchange, status, jsonType, JSON.stringify(body));
}

/** An error answer, independent of the flavour and the API. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  /** The field at fault. */
  readonly param: string | undefined;

  constructor(status: number, message: string, param?: string) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

/** What is no ApiError is a fault of the engine. */
export const asApiError = (error: unknown): ApiError =>
  error instanceof ApiError ? error : new ApiError(500, String(error));

export const missingField = (param: string): ApiError =>
  new ApiError(400, `[{'type': 'missing', 'loc': ('body', '${param}'), 'msg': 'Field required'}]`, param);

export const wrongField = (param: string, expectation: string): ApiError =>
  new ApiError(400, `[{'loc': ('body', '${param}'), 'msg': 'Input should be ${expectation}'}]`, param);

const types: Readonly<Record<number, string>> = {
  400: "BadRequestError",
  404: "NotFoundError",
  405: "Method Not Allowed",
  413: "Request Entity Too Large",
  429: "Too Many Requests",
  500: "InternalServerError",
  503: "Service Unavailable",
};

interface ErrorFacts {
  readonly status: number;
  readonly message: string;
  readonly param?: string | null | undefined;
}

/**
 * The body of an error as vLLM 0.32 (nested) or SGLang 0.5 (flat) write it, or as Anthropic does on its own path.
 * `code` repeats the HTTP status.
 */
export function errorBody(flavour: CacheFlavour, path: string, { status, message, param = null }: ErrorFacts): string {
  const type = types[status] ?? "Error";
  if (path.startsWith("/v1/messages")) return JSON.stringify({ type: "error", error: { type, message } });
  if (flavour === "sglang") return JSON.stringify({ object: "error", message, type, param, code: status });
  return JSON.stringify({ error: { message, type, param, code: status } });
}

/** Largest request body. */
const maxBodyBytes = 32 * 1024 * 1024;

/**
 * Reads the body as text.
 *
 * @throws ApiError 413 when it is longer than `maxBodyBytes`; Error when the client disconnects
 */
export function readBody(request: IncomingMessage): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let sizeBytes = 0;
    request.on("data", (chunk: Buffer) => {
      sizeBytes += chunk.length;
      if (sizeBytes <= maxBodyBytes) chunks.push(chunk);
    });
    request.on("end", () => {
      if (sizeBytes > maxBodyBytes) reject(new ApiError(413, `The body exceeds ${maxBodyBytes} bytes.`));
      else
        resolve(chunks.length === 1 ? (chunks[0] as Buffer).toString("utf8") : Buffer.concat(chunks).toString("utf8"));
    });
    request.on("close", () => reject(new Error("the client disconnected")));
  });
}

/** Headers whose values are not logged. */
const secretHeaders = new Set(["authorization", "x-api-key", "cookie", "proxy-authorization"]);
/** Characters of a header's value in the log; the rest is cut. */
const maxHeaderValueLength = 256;

/** An exchange as the log keeps it. */
export function describeExchange({ path, requestId, receivedWallMs, request, response, fault }: Exchange) {
  return {
    ...{ path, requestId, receivedWallMs, headers: headersForLog(request) },
    status: response.headersSent ? response.statusCode : 0,
    ...(fault && { fault: fault.kind }),
  };
}

/** The headers of a request for the log: names, values cut to 256 characters, secrets as "present". */
function headersForLog({ headers }: IncomingMessage): Record<string, string> {
  const logged: Record<string, string> = {};
  for (const name in headers) {
    logged[name] = secretHeaders.has(name) ? "present" : String(headers[name]).slice(0, maxHeaderValueLength);
  }
  return logged;
}
