import { maxAdapters } from "../engine/adapter-registry.ts";
import { ApiError } from "../http/api-error.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, send, textType } from "../http/exchange.ts";
import { type JsonObject, optionalBoolean, optionalString } from "./body-fields.ts";

/**
 * `POST /v1/load_lora_adapter` of vLLM with `VLLM_ALLOW_RUNTIME_LORA_UPDATING` (`entrypoints/openai/models/serving.py`):
 * from then on the adapter is a model. Nothing is read from `lora_path`; the first request loads it into a slot.
 */
export function loadAdapter({ models, adapters }: EngineContext, exchange: Exchange, body: JsonObject): void {
  const name = optionalString(body, "lora_name") ?? "";
  const path = optionalString(body, "lora_path") ?? "";
  if (name === "" || path === "") throw new ApiError(400, "Both 'lora_name' and 'lora_path' must be provided.");
  const isKnown = adapters.names.includes(name);
  if (models.includes(name)) throw new ApiError(400, `'${name}' is the name of the model itself.`);
  if (isKnown && optionalBoolean(body, "load_inplace") !== true) {
    throw new ApiError(400, `The lora adapter '${name}' has already been loaded.`);
  }
  if (!isKnown && !adapters.add(name)) throw new ApiError(400, `There are ${maxAdapters} lora adapters already.`);
  send(exchange, 200, textType, `Success: LoRA adapter '${name}' added successfully.`);
}

/** `POST /v1/unload_lora_adapter` of vLLM: the adapter is a model no more. Requests for it that came before go on. */
export function unloadAdapter({ adapters }: EngineContext, exchange: Exchange, body: JsonObject): void {
  const name = optionalString(body, "lora_name") ?? "";
  if (name === "") throw new ApiError(400, "'lora_name' needs to be provided.");
  if (!adapters.remove(name)) throw new ApiError(404, `The lora adapter '${name}' cannot be found.`);
  send(exchange, 200, textType, `Success: LoRA adapter '${name}' removed successfully.`);
}
