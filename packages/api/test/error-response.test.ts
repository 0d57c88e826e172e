import { type ErrorCode, EspalierError, errorCatalogue } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { errorResponse, errorStreamFrame } from "../src/index.ts";

const codes = Object.keys(errorCatalogue) as ErrorCode[];
const bodyOf = (response: { body: string }): unknown => JSON.parse(response.body);

describe.each(["openai", "sglang"] as const)("the %s family", (family) => {
  test("an error object has message, type, param and code", () => {
    const error = new EspalierError("invalid_type", "stream must be a boolean.", { param: "stream" });
    const response = errorResponse(family, error);
    expect(response.status).toBe(400);
    expect(response.headers).toEqual({ "content-type": "application/json" });
    expect(bodyOf(response)).toEqual({
      error: {
        message: "stream must be a boolean.",
        type: "invalid_request_error",
        param: "stream",
        code: "invalid_type",
      },
    });
  });

  test("param is null when no field is at fault, and the request id has no place", () => {
    const response = errorResponse(family, new EspalierError("upstream_reset"), "req-1");
    expect(bodyOf(response)).toEqual({
      error: {
        message: errorCatalogue.upstream_reset.meaning,
        type: "server_error",
        param: null,
        code: "upstream_reset",
      },
    });
  });

  test("a frame in a stream is one data line, and no [DONE] follows", () => {
    const frame = errorStreamFrame(family, new EspalierError("upstream_cut_short", 'It said "stop"\nand went.'));
    expect(frame.startsWith("data: {")).toBe(true);
    expect(frame.endsWith("}\n\n")).toBe(true);
    expect(frame.trimEnd().split("\n")).toHaveLength(1);
    expect(frame).not.toContain("[DONE]");
    expect(JSON.parse(frame.slice("data: ".length))).toEqual({
      error: { message: 'It said "stop"\nand went.', type: "server_error", param: null, code: "upstream_cut_short" },
    });
  });
});

describe("the anthropic family", () => {
  test("an error object has Anthropic's shape, with the request id when there is one", () => {
    const error = new EspalierError("invalid_type", "stream must be a boolean.", { param: "stream" });
    const body = { type: "error", error: { type: "invalid_request_error", message: "stream must be a boolean." } };
    expect(bodyOf(errorResponse("anthropic", error))).toEqual(body);
    expect(bodyOf(errorResponse("anthropic", error, "req-1"))).toEqual({ ...body, request_id: "req-1" });
  });

  test.each<[ErrorCode, number, string]>([
    ["invalid_json", 400, "invalid_request_error"],
    ["missing_api_key", 401, "authentication_error"],
    ["invalid_api_key", 401, "authentication_error"],
    ["model_not_found", 404, "not_found_error"],
    ["method_not_allowed", 405, "invalid_request_error"],
    ["request_timeout", 408, "invalid_request_error"],
    ["body_too_large", 413, "request_too_large"],
    ["overloaded", 429, "rate_limit_error"],
    ["internal_error", 500, "api_error"],
    ["upstream_connect_failed", 502, "api_error"],
    ["no_engine_available", 503, "overloaded_error"],
    ["draining", 503, "overloaded_error"],
    ["upstream_timeout", 504, "timeout_error"],
  ])("%s is %i %s", (code, status, type) => {
    const response = errorResponse("anthropic", new EspalierError(code));
    expect(response.status).toBe(status);
    expect(bodyOf(response)).toMatchObject({ error: { type } });
  });

  test("a frame in a stream is an event named error", () => {
    const frame = errorStreamFrame("anthropic", new EspalierError("upstream_cut_short"));
    const [name, data, ...after] = frame.split("\n");
    expect(name).toBe("event: error");
    expect(data?.startsWith("data: ")).toBe(true);
    expect(JSON.parse(data?.slice("data: ".length) ?? "")).toEqual({
      type: "error",
      error: { type: "api_error", message: errorCatalogue.upstream_cut_short.meaning },
    });
    expect(after).toEqual(["", ""]);
  });
});

test.each(["openai", "anthropic", "sglang"] as const)("%s: every error of the catalogue has an answer", (family) => {
  for (const code of codes) {
    const response = errorResponse(family, new EspalierError(code));
    expect(response.status).toBe(errorCatalogue[code].status || 500);
    expect(bodyOf(response)).toHaveProperty("error.message");
  }
});

test("retry-after stands on retryable 429 and 503, one second unless the error says more", () => {
  const withHeader = codes.filter((code) => errorResponse("openai", new EspalierError(code)).headers["retry-after"]);
  const busy = ["overloaded", "queue_full", "deadline_missed"];
  expect(withHeader).toEqual([
    "auth_failed",
    ...busy,
    "no_engine_available",
    "engines_asleep",
    "too_many_connections",
    "out_of_descriptors",
    "draining",
  ]);
  for (const code of withHeader) {
    expect(errorResponse("openai", new EspalierError(code)).headers["retry-after"]).toBe("1");
  }
});

test.each([
  [0, "0"],
  [0.2, "1"],
  [1, "1"],
  [7.01, "8"],
  [120, "120"],
  [-3, "0"],
])("retry-after of %d seconds is written as %s", (retryAfterSeconds, expected) => {
  const response = errorResponse("anthropic", new EspalierError("overloaded", undefined, { retryAfterSeconds }));
  expect(response.headers["retry-after"]).toBe(expected);
});

test("an error of another kind has the header when it says when to come again", () => {
  const error = new EspalierError("upstream_timeout", undefined, { retryAfterSeconds: 2 });
  expect(errorResponse("openai", error).headers["retry-after"]).toBe("2");
});

test("the cause of an error does not reach the client", () => {
  const error = new EspalierError("internal_error", undefined, { cause: new Error("secret at /etc/passwd") });
  for (const family of ["openai", "anthropic", "sglang"] as const) {
    expect(errorResponse(family, error).body).not.toContain("secret");
    expect(errorStreamFrame(family, error)).not.toContain("secret");
  }
});
