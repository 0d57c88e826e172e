import { maxAdapters } from "../engine/adapter-registry.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, sendJson } from "../http/exchange.ts";
import { type JsonObject, optionalString, required } from "./body-fields.ts";

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
 * `POST /unload_lora_adapter` of SGLang: requests for the adapter that come from now on are refused; the answer comes
 * when those that came before have ended.
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
