/**
 * The router's one source of truth on engines: which exist, which answer, what they serve, how loaded they are, what
 * their own metrics say, and whether recent requests to them failed.
 */
export { ActiveBlocks, type ActivePrompt, type ActiveShare, maxActiveBlocks } from "./active-blocks.ts";
export { type AdapterReading, maxAdapterNames } from "./adapter-reading.ts";
export type { Breaker, BreakerState, Permit } from "./breaker.ts";
export { describeEngine, type EngineDescription, type TargetDescription } from "./describe-engine.ts";
export type { EngineDialect, SignalValues } from "./engine-dialects.ts";
export { engineKindOf } from "./engine-kind.ts";
export type { EngineHealth, EngineRecord, EngineState, Target } from "./engine-record.ts";
export type { EngineSignals } from "./engine-signals.ts";
export { maxEngines } from "./engine-specs.ts";
export { type ApplyReport, createFleet, type Fleet, type FleetChange, type FleetDeps } from "./fleet.ts";
export { defaultFleetOptions, type FleetOptions, type FleetOptionsInput } from "./fleet-options.ts";
export type { FleetSharing } from "./fleet-sharing.ts";
export { type MetricsReading, readMetricsPage } from "./metrics-page.ts";
export type { ManagedAdapter, ModelEntry } from "./model-index.ts";
export { maxModelNameLength, maxModelsPerEngine, type ServedModel } from "./served-models.ts";
export {
  type AdapterState,
  assumedAdapterSlots,
  createTargetAdapters,
  maxLoadedAdapters,
  type OwnedTargetAdapters,
  type TargetAdapters,
} from "./target-adapters.ts";
export { createTargetLoad, type LoadTicket, type RequestSize, type TargetLoad } from "./target-load.ts";
