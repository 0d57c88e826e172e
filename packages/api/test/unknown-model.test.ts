import { expect, test } from "vitest";
import { isUnknownModelAnswer } from "../src/index.ts";

const nested = (error: object): string => JSON.stringify({ error });
const flat = (error: object): string => JSON.stringify({ object: "error", ...error });

test.each<[string, number, string, boolean]>([
  [
    "vLLM 0.32",
    404,
    nested({ message: "The model `a` does not exist.", type: "NotFoundError", param: "model", code: 404 }),
    true,
  ],
  ["vLLM before it named the parameter", 404, nested({ message: "...", type: "NotFoundError", param: null }), true],
  ["vLLM's Anthropic API", 404, JSON.stringify({ type: "error", error: { type: "NotFoundError", message: "" } }), true],
  ["Anthropic", 404, JSON.stringify({ type: "error", error: { type: "not_found_error", message: "" } }), true],
  ["OpenAI", 404, nested({ message: "", type: "invalid_request_error", param: null, code: "model_not_found" }), true],
  [
    "SGLang's Responses API",
    404,
    flat({ message: "", type: "invalid_request_error", param: "model", code: 404 }),
    true,
  ],
  [
    "SGLang, for an adapter",
    400,
    flat({
      message: "The following requested LoRA adapters are not loaded: a\nLoaded adapters: .",
      type: "BadRequest",
    }),
    true,
  ],
  ["llama.cpp", 400, nested({ code: 400, message: "model 'a' not found", type: "invalid_request_error" }), true],
  ["a path that the engine lacks", 404, '{"detail":"Not Found"}', false],
  ["a response that is not stored", 404, nested({ message: "", type: "NotFoundError", param: "response_id" }), false],
  ["another field", 400, nested({ message: "", type: "BadRequestError", param: "model" }), false],
  ["a failure", 500, nested({ message: "", type: "NotFoundError", param: "model" }), false],
  ["a prompt in an error", 400, nested({ message: "bad prompt: model 'a' not found", param: "prompt" }), false],
  ["half a body", 404, '{"error":{"param":"model"', false],
  ["a list", 404, "[]", false],
  ["nothing", 404, "null", false],
])("an unknown model, by %s", (_, status, body, expected) => {
  expect(isUnknownModelAnswer(status, body)).toBe(expected);
});
