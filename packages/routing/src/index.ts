/**
 * How a router decides: what it knows and predicts about engines' caches, what it and other routers have sent them, and
 * the choice of a target. The router and the fleet simulator run this same code.
 */

export {
  type Admission,
  type AdmissionExclusion,
  type AdmissionMeters,
  type AdmissionRequest,
  type AdmissionSettings,
  classSpanMs,
  createAdmission,
  createAdmissionMeters,
  defaultAdmissionSettings,
  type EngineOrder,
  type ExplainedAdmission,
  engineOrders,
  enginePlace,
  type FleetUsage,
  noFleetUsage,
  noPeerLoad,
  type PeerLoad,
  type WaitingWork,
} from "./admission/index.ts";
export type { CopyCredits } from "./copy-credits.ts";
export { createSharedCredits, creditNoteLayout, dryRunCredits, type SharedCredits } from "./copy-credits.ts";
export {
  DecisionLog,
  type Excluded,
  exclusions,
  type FactStore,
  keptDecisions,
  type LoggedDecision,
} from "./decision-log.ts";
export {
  findTransferField,
  isSplittable,
  type LegEdits,
  type LegEngine,
  namesEngines,
  type PairLegs,
  prefillCountHoldMs,
  prefillCountSettleMs,
  pullProtocols,
  renderReservedDocs,
  reservedFieldNames,
  reservedWithinNames,
  type SplitThresholdOptions,
  type TransferProtocol,
  transferHeaderNames,
} from "./disaggregation/index.ts";
export { dryRunTraffic, explainingPolicy, explainSelection } from "./explain-selection.ts";
export { createLoadPublisher, gaugeOf, type LoadPublisher } from "./load-publisher.ts";
export { ColdPrompt, type ColdPromptParts } from "./memory/cold-prompt.ts";
export { MemoryWatch } from "./memory/memory-watch.ts";
export { createFleetRoles, roleNoteLayout } from "./pairs/fleet-roles.ts";
export {
  type ChosenAlone,
  type ChosenPair,
  type PairedRequest,
  PairPlanner,
  servesAlone,
  type TriedTargets,
  takesSide,
} from "./pairs/pair-planner.ts";
export { type Leg, PairRun, type PrefillOutcome } from "./pairs/pair-run.ts";
export { createSplitMetrics, type SplitReason } from "./pairs/split-metrics.ts";
export { createPeerTraffic } from "./peer-traffic.ts";
export { type CacheMeters, createCacheMeters } from "./prefix/cache-meters.ts";
export type { PoolEvidence, PrefixEvidence } from "./prefix/prefix-knowledge.ts";
export {
  createLocalPlacements,
  createPrefixKnowledge,
  type KnowledgeOptions,
  maxKnownTargets,
  type Placement,
  type PrefixKnowledge,
  type PrefixStore,
} from "./prefix/prefix-knowledge.ts";
export type { LearnedTarget, PromptBlocks, PromptLearning } from "./prefix/prompt-blocks.ts";
export { createRecentPrompts, type RecentPrompts } from "./prefix/prompt-blocks.ts";
export { isTooFewToLoad, type KnownPool, type PoolReach } from "./prefix/write-match.ts";
export type { ChosenPull } from "./pulls/kv-pull.ts";
export { createLendTrust } from "./pulls/lend-trust.ts";
export { Dispatch } from "./request/dispatch.ts";
export {
  createRetryBudget,
  createRetryMeters,
  type FailureKind,
  noRetryBudget,
  Retries,
  type RetryBudget,
  type RetryBudgetOptions,
  type RetryMeters,
} from "./request/retries.ts";
export { type PlannedAttempt, type RequestCarrier, RequestLifecycle, type RequestQueue } from "./request-lifecycle.ts";
export type { RoutingTarget } from "./routing-target.ts";
export { type DemandedRole, demandNoteLayout, engineRoles } from "./scale/demand-note.ts";
export { FleetDemand, modelDemand } from "./scale/fleet-demand.ts";
export {
  createTargetSelector,
  type Restriction,
  type RoutedRequest,
  type SelectablePool,
  type Selection,
  type TargetSelector,
} from "./select-target.ts";
export {
  type BindingStore,
  createLocalBindings,
  createSessionBindings,
  dryRunSessions,
  type SessionBindings,
  sessionScope,
} from "./session-bindings.ts";
export { expectedOutputTokens } from "./work/answer-pace.ts";
export { createFleetLearning, type FleetLearning } from "./work/fleet-learning.ts";
export { timesNoteLayout } from "./work/learned-note.ts";
export { PoolWork } from "./work/pool-work.ts";
