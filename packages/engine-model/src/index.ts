/** A deterministic model of one LLM engine: batching, prefill, decode, KV blocks, eviction, events. */

export type { BlockEngine, BlockReport, BlockRequest } from "./block-engine.ts";
export { type BlockChanges, blockChange, createBlockEngine } from "./block-engine.ts";
export { maxEngineRequests } from "./engine-loop.ts";
export { createKvPool, type KvPool, type KvPoolSettings } from "./kv-pool.ts";
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
export { createSharedLink, type LinkRates } from "./shared-link.ts";
export { slowedSteps } from "./step-timing.ts";
export { blockHashes, createEngine } from "./token-engine.ts";
export type {
  AdapterUse,
  CacheFlavour,
  CpuWrites,
  Engine,
  EngineObserver,
  EngineParameters,
  EngineRequest,
  EngineStats,
  ImportedPrompt,
  KvEvent,
  MediaRange,
  RequestReport,
} from "./types.ts";
export { maxCpuBlocks } from "./validation.ts";
