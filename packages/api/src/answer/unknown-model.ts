import { isJsonObject, parseJson } from "@espalier/core";

/** The error object of an answer: nested as OpenAI's, or the body itself as SGLang's. */
interface WrittenError {
  readonly type?: unknown;
  readonly param?: unknown;
  readonly code?: unknown;
  readonly message?: unknown;
}

/**
 * Whether an engine's answer says that it does not serve the model of a request. Nothing was computed then.
 *
 * vLLM writes 404 with `param: "model"`, earlier releases and its Anthropic API a type of not-found alone
 * (`entrypoints/serve/engine/serving.py`). SGLang serves any name, but not an adapter that is not loaded
 * (`lora/lora_registry.py`), and its Responses API writes 404 with `param: "model"`. llama.cpp's router mode knows a model
 * by its message only. A path that an engine lacks is 404 with `detail` and no error object.
 *
 * @param body the whole body
 */
export function isUnknownModelAnswer(status: number, body: string): boolean {
  if (status !== 404 && status !== 400) return false;
  const error = errorOf(body);
  if (!error) return false;
  const { type, param, code, message } = error;
  if (code === "model_not_found") return true;
  if (status === 404 && (param === "model" || (param == null && isNotFoundType(type)))) return true;
  return typeof message === "string" && unknownModelMessage.test(message);
}

const isNotFoundType = (type: unknown): boolean => type === "NotFoundError" || type === "not_found_error";

const unknownModelMessage = /^(The following requested LoRA adapters are not loaded: |model '[^']*' not found)/;

function errorOf(body: string): WrittenError | undefined {
  const parsed = parseJson(body);
  if (!isJsonObject(parsed)) return undefined;
  if (isJsonObject(parsed.error)) return parsed.error;
  return parsed.object === "error" ? parsed : undefined;
}
