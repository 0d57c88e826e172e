import type { CacheFlavour } from "@espalier/engine-model";

/** An answer other than success, before it has the shape of a flavour or an API. */
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

interface ErrorFacts {
  readonly status: number;
  readonly message: string;
  readonly param?: string | null | undefined;
}
