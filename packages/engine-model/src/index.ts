/** A deterministic model of one LLM engine: batching, prefill, decode, KV blocks, eviction, events. */
export { type BlockChanges, blockChange } from "./block-changes.ts";
export type { BlockEngine, BlockEngineObserver, BlockReport, BlockRequest } from "./block-types.ts";
export { maxCpuBlocks } from "./check-parameters.ts";
export { type BlockEngineOptions, createBlockEngine } from "./create-block-engine.ts";
export { createEngine, type EngineOptions } from "./create-engine.ts";
export { maxHeldRequests } from "./engine-loop.ts";
export { type EnginePreset, enginePresets, type PresetName, presetNames } from "./presets.ts";
export { type StepTimes, slowedSteps } from "./step-timing.ts";
export type {
  AdapterUse,
  CacheFlavour,
  CpuMedium,
  Engine,
  EngineHash,
  EngineObserver,
  EngineParameters,
  EngineRequest,
  EngineStats,
  FinishReason,
  FreeOrder,
  ImportedPrompt,
  KvEvent,
  RequestReport,
} from "./types.ts";
