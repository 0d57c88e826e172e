import { expect, test } from "vitest";
import { asEspalierError, EspalierError, errorCatalogue, renderErrorDocs } from "../src/index.ts";

test("every kind has a usable status, meaning and action", () => {
  for (const [code, kind] of Object.entries(errorCatalogue)) {
    expect(code).toMatch(/^[a-z]+(_[a-z0-9]+)*$/);
    expect(kind.status === 0 || (kind.status >= 400 && kind.status < 600), code).toBe(true);
    expect(kind.meaning, code).toMatch(/^[A-Z].*\.$/);
    expect(kind.action, code).toMatch(/^[A-Z].*\.$/);
  }
});

test("only what may succeed when repeated is retryable", () => {
  const retryable = Object.entries(errorCatalogue).filter(([, kind]) => kind.retryable);
  for (const [code, kind] of retryable) expect([429, 499, 500, 502, 503, 504], code).toContain(kind.status);
  expect(errorCatalogue.invalid_json.retryable).toBe(false);
  expect(errorCatalogue.model_not_found).toMatchObject({ status: 404, type: "not_found_error" });
});

test("an error carries its code, message, parameter and cause", () => {
  const cause = new Error("socket");
  const error = new EspalierError("invalid_type", "model must be a string", { param: "model", cause });
  expect(error).toMatchObject({ code: "invalid_type", message: "model must be a string", param: "model", cause });
  expect(error.kind.status).toBe(400);
  expect(new EspalierError("draining").message).toBe(errorCatalogue.draining.meaning);
});

test("what was thrown by accident becomes an internal error that does not leak its message", () => {
  const accident = new TypeError("cannot read properties of the prompt 'secret'");
  const wrapped = asEspalierError(accident);
  expect(wrapped.code).toBe("internal_error");
  expect(wrapped.message).not.toContain("secret");
  expect(wrapped.cause).toBe(accident);
  const known = new EspalierError("overloaded");
  expect(asEspalierError(known)).toBe(known);
});

test("the document lists every code once", () => {
  const text = renderErrorDocs();
  for (const code of Object.keys(errorCatalogue)) expect(text.split(`| \`${code}\` |`)).toHaveLength(2);
});
