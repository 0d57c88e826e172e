import type { HttpResponse } from "@espalier/common";
import { type EngineRecord, engineKindOf } from "@espalier/workers";

type Answer = Pick<HttpResponse, "status" | "body">;

/** How a kind of engine is told to load and unload LoRA adapters, and to use one. */
export interface AdapterCalls {
  readonly loadPath: string;
  readonly unloadPath: string;
  /** Keys that a request for an adapter has besides the model's name, as JSON text. */
  fields(adapter: string): Readonly<Record<string, string>>;
  /** Whether an answer to a load says that the adapter is there: another router may have been first. */
  isThere(answer: Answer): boolean;
  /** Whether it says that another adapter has to be unloaded first. */
  isFull(answer: Answer): boolean;
  /** Whether an answer to an unload says that the adapter is gone. */
  isGone(answer: Answer): boolean;
  /** Whether the beginning of an answer to a request says that its adapter is not loaded. */
  isMissing(answer: Answer): boolean;
}

/** vLLM 0.32, `entrypoints/openai/models/serving.py`, with `VLLM_ALLOW_RUNTIME_LORA_UPDATING`. It knows no bound. */
const vllmCalls: AdapterCalls = {
  loadPath: "/v1/load_lora_adapter",
  unloadPath: "/v1/unload_lora_adapter",
  fields: () => ({}),
  isThere: ({ status, body }) => status === 200 || (status === 400 && body.includes("already been loaded")),
  isFull: () => false,
  isGone: ({ status, body }) => status === 200 || (status === 404 && body.includes("cannot be found")),
  isMissing: ({ status, body }) => status === 404 && body.includes("does not exist"),
};

/**
 * SGLang 0.5 with `--enable-lora`: `managers/tokenizer_control_mixin.py`, `lora/lora_manager.py`, `lora/lora_registry.py`.
 * It knows an adapter by `lora_path`, which is its name once it is loaded (`_resolve_lora_path` of
 * `entrypoints/openai/serving_base.py`); a model's name that it does not know stands for the model itself. Releases up to
 * 0.5.1 refuse an adapter beyond `--max-loaded-loras`; later ones unload another one themselves.
 */
const sglangCalls: AdapterCalls = {
  loadPath: "/load_lora_adapter",
  unloadPath: "/unload_lora_adapter",
  fields: (adapter) => ({ lora_path: JSON.stringify(adapter) }),
  isThere: ({ status, body }) => status === 200 || (status === 400 && /already (loaded|exists)/.test(body)),
  isFull: ({ status, body }) => status === 400 && body.includes("Maximum number of loaded LoRA adapters"),
  isGone: ({ status, body }) => status === 200 || (status === 400 && body.includes("does not exist")),
  // A stream may have begun with 200 before the adapter is looked up.
  isMissing: ({ status, body }) =>
    (status === 400 || body.startsWith('data: {"error"')) && body.includes("LoRA adapters are not loaded"),
};

/**
 * The calls that an engine knows: SGLang's where its list of models or its metrics are SGLang's, else vLLM's, which others
 * imitate.
 */
export function adapterCallsOf(engine: Pick<EngineRecord, "models" | "targets">): AdapterCalls {
  return engineKindOf(engine) === "sglang" ? sglangCalls : vllmCalls;
}
