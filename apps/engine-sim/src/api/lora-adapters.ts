import type { JsonObject } from "@espalier/core";
import { maxAdapters } from "../engine/adapters.ts";
import { optionalBoolean, optionalString, required } from "../http/body-fields.ts";
import { ApiError, type Exchange, send, sendJson, textType } from "../http/exchange.ts";
import type { EngineContext } from "../serving/engine-context.ts";

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

/** `POST /v1/unload_lora_adapter` of vLLM: the adapter is no longer a model. Earlier requests for it continue. */
export function unloadAdapter({ adapters }: EngineContext, exchange: Exchange, body: JsonObject): void {
  const name = optionalString(body, "lora_name") ?? "";
  if (name === "") throw new ApiError(400, "'lora_name' needs to be provided.");
  if (!adapters.remove(name)) throw new ApiError(404, `The lora adapter '${name}' cannot be found.`);
  send(exchange, 200, textType, `Success: LoRA adapter '${name}' removed successfully.`);
}

/**
 * `POST /load_lora_adapter` of SGLang 0.5 (`entrypoints/http_server.py`, `managers/tokenizer_control_mixin.py`): from then
 * on requests can name the adapter. Nothing is read from `lora_path`. Releases up to 0.5.1 refuse one that is too many;
 * later ones unload another instead.
 */
export function loadSglangAdapter({ adapters }: EngineContext, exchange: Exchange, body: JsonObject): void {
  const name = required(optionalString(body, "lora_name"), "lora_name");
  const path = required(optionalString(body, "lora_path"), "lora_path");
  if (adapters.names.includes(name)) {
    refuse(exchange, `Failed to load LoRA adapter ${name} because it is already loaded`);
  } else if (!adapters.add(name)) {
    refuse(
      exchange,
      `Cannot load LoRA adapter ${name} at path ${path}. Maximum number of loaded LoRA adapters is ${maxAdapters}. ` +
        "Please unload some LoRA adapters before loading new ones.",
    );
  } else succeed(exchange, adapters.names);
}

/**
 * `POST /unload_lora_adapter` of SGLang: new requests for the adapter are refused; the answer is sent when the
 * earlier ones have ended.
 */
export async function unloadSglangAdapter(
  { adapters, engine }: EngineContext,
  exchange: Exchange,
  body: JsonObject,
): Promise<void> {
  const name = required(optionalString(body, "lora_name"), "lora_name");
  const known = adapters.names.join(", ");
  if (!adapters.remove(name)) {
    refuse(exchange, `LoRA with name ${name} does not exist. Loaded LoRAs: ${known}`);
    return;
  }
  await engine.untilFreeOf(name);
  succeed(exchange, adapters.names);
}

function succeed(exchange: Exchange, names: readonly string[]): void {
  const loaded = Object.fromEntries(names.map((name) => [name, name]));
  sendJson(exchange, 200, { success: true, error_message: "", loaded_adapters: loaded });
}

function refuse(exchange: Exchange, message: string): void {
  sendJson(exchange, 400, { success: false, error_message: message, loaded_adapters: null });
}
