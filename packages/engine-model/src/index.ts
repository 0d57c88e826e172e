/** A deterministic model of one LLM engine: batching, prefill, decode, KV blocks, eviction, events. */
export { createEngine, type EngineOptions } from "./create-engine.ts";
export { maxHeldRequests } from "./engine-loop.ts";
export { type EnginePreset, enginePresets, type PresetName, presetNames } from "./presets.ts";
export type {
  CacheFlavour,
  Engine,
  EngineHash,
  EngineObserver,
  EngineParameters,
  EngineRequest,
  EngineStats,
  FinishReason,
  FreeOrder,
  KvEvent,
  RequestReport,
} from "./types.ts";
