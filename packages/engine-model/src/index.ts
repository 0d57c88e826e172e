/** A deterministic model of one LLM engine: batching, prefill, decode, KV blocks, eviction, events. */

export type { BlockEngine, BlockEngineObserver, BlockReport, BlockRequest } from "./block-engine.ts";
export { type BlockChanges, type BlockEngineOptions, blockChange, createBlockEngine } from "./block-engine.ts";
export { maxEngineRequests } from "./engine-loop.ts";
export type { CancelPull, KvHold, PullReceiver, RemoteSource, TokenRange } from "./kv-pull.ts";
export { type EnginePreset, enginePresets, type PresetName, presetNames } from "./presets.ts";
export {
  createPullSource,
  defaultMaxQueued,
  defaultMaxTransfers,
  type PullLimits,
  type PullSource,
  type PullStats,
} from "./pull-source.ts";
export { createSharedLink, type LinkRates, type SharedLink } from "./shared-link.ts";
export { type StepTimes, slowedSteps } from "./step-timing.ts";
export { createEngine, type EngineOptions } from "./token-engine.ts";
export type {
  AdapterUse,
  CacheFlavour,
  CpuMedium,
  CpuWrites,
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
export { maxCpuBlocks } from "./validation.ts";
