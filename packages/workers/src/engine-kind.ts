import type { EngineRecord } from "./engine-record.ts";

/**
 * What an engine is: SGLang where its list of models or its metrics are SGLang's, else vLLM, which others imitate.
 */
export function engineKindOf({ models, targets }: Pick<EngineRecord, "models" | "targets">): "vllm" | "sglang" {
  const isSglang =
    models?.some(({ ownedBy }) => ownedBy === "sglang") || targets.some(({ signals }) => signals.dialect === "sglang");
  return isSglang ? "sglang" : "vllm";
}
