/** A deterministic model of one LLM engine: batching, prefill, decode, KV blocks, eviction, events. */
export type {
  CacheFlavour,
  Engine,
  EngineHash,
  EngineObserver,
  EngineParameters,
  EngineRequest,
  EngineStats,
  FinishReason,
  KvEvent,
  RequestReport,
} from "./types.ts";
