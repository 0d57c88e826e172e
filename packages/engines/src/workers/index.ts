/**
 * The router's one source of truth on engines: which exist, which answer, what they serve, how loaded they are, what
 * their own metrics say, and whether recent requests to them failed.
 */

export type { Permit } from "./breaker.ts";
export { describeEngine, engineDescription } from "./describe-engine.ts";
export { findSlowEngines, keptTimes } from "./engine-pace.ts";
export {
  areAsleep,
  type EngineRecord,
  engineKindOf,
  isEngineAsleep,
  rankNumber,
  type Target,
  type TargetExclusion,
  targetExclusions,
} from "./engine-record.ts";
export { type EngineDialect, type EngineSignals, type SignalValues, unreportedRequests } from "./engine-signals.ts";
export { engineTroubles } from "./engine-trouble.ts";
export { createFleet, type Fleet, type FleetChange, type FleetDeps, type FleetSharing, maxEngines } from "./fleet.ts";
export { defaultFleetOptions, type FleetOptionsInput } from "./fleet-options.ts";
export {
  type AdapterReading,
  type MetricsReading,
  maxAdapterNames,
  type RankReading,
  readMetricsPage,
} from "./metrics-page.ts";
export { type ModelEntry, maxModelNameLength, maxModelsPerEngine } from "./served-models.ts";
export {
  assumedAdapterSlots,
  createTargetAdapters,
  maxLoadedAdapters,
  type OwnedTargetAdapters,
  type TargetAdapters,
} from "./target-adapters.ts";
export {
  ActiveBlocks,
  type ActivePrompt,
  type ActiveShare,
  createTargetLoad,
  type LoadTicket,
  maxActiveBlocks,
  type TargetLoad,
} from "./target-load.ts";
