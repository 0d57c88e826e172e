/**
 * The router's one source of truth on engines: which exist, which answer, what they serve, how loaded they are, what
 * their own metrics say, and whether recent requests to them failed.
 */

export type { Breaker, BreakerState, Permit } from "./breaker.ts";
export {
  describeEngine,
  type EngineDescription,
  engineDescription,
  type TargetDescription,
} from "./describe-engine.ts";
export {
  areAsleep,
  type EngineHealth,
  type EngineRecord,
  type EngineState,
  engineKindOf,
  isEngineAsleep,
  rankNumber,
  type Target,
  type TargetExclusion,
  targetExclusions,
} from "./engine-record.ts";
export type { EngineDialect, EngineSignals, SignalValues } from "./engine-signals.ts";
export {
  type ApplyReport,
  createFleet,
  type Fleet,
  type FleetChange,
  type FleetDeps,
  type FleetSharing,
  maxEngines,
} from "./fleet.ts";
export { defaultFleetOptions, type FleetOptions, type FleetOptionsInput } from "./fleet-options.ts";
export {
  type AdapterReading,
  type MetricsReading,
  maxAdapterNames,
  type RankReading,
  readMetricsPage,
} from "./metrics-page.ts";
export {
  type ManagedAdapter,
  type ModelEntry,
  maxModelNameLength,
  maxModelsPerEngine,
  type ServedModel,
} from "./served-models.ts";
export {
  type AdapterState,
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
  type RequestSize,
  type TargetLoad,
} from "./target-load.ts";
