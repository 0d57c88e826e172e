/**
 * How a router decides: what it knows and guesses of engines' caches, what it has sent them, what other routers have,
 * and the choice of a target. The router and the simulator of fleets run this same code.
 */

export type { CopyRents } from "./copies/copy-rents.ts";
export { createSharedRents, quietRents, type SharedRents } from "./copies/shared-rents.ts";
export { expectedOutputTokens } from "./expected-output.ts";
export { type ExplainedSelection, explainingPolicy, explainSelection, quietTraffic } from "./explain-selection.ts";
export {
  createLocalHost,
  type EventReading,
  type FeedHost,
  type FeedTarget,
  type HostedFeed,
} from "./feeds/feed-host.ts";
export type { BatchOutcome, FeedCondition, FeedOutput } from "./feeds/feed-output.ts";
export type { FeedStatus } from "./feeds/feed-status.ts";
export { createLocalOutput } from "./feeds/local-output.ts";
export { ColdPrompt, type ColdPromptParts } from "./memory/cold-prompt.ts";
export { MemoryWatch } from "./memory/memory-watch.ts";
export { createFleetRoles, type FleetRoles, type ModelRoles } from "./pairs/fleet-roles.ts";
export {
  type ChosenAlone,
  type ChosenPair,
  type PairedRequest,
  PairPlanner,
  type PairPlannerOptions,
  type PairTarget,
  servesAlone,
  type TriedTargets,
  takesSide,
} from "./pairs/pair-planner.ts";
export { type Leg, type PairCarrier, PairRun, type PairStep, type PrefillOutcome } from "./pairs/pair-run.ts";
export { createSplitMetrics, type SplitMetrics, type SplitReason } from "./pairs/split-metrics.ts";
export { createPeerTraffic, type PeerTraffic } from "./peer-traffic.ts";
export { type CacheMeters, createCacheMeters } from "./prefix/cache-meters.ts";
export { createLocalPlacements } from "./prefix/local-placements.ts";
export type { KnownPool, PoolReach } from "./prefix/pool-reach.ts";
export type { PlacementEvidence, PoolEvidence, PrefixEvidence } from "./prefix/prefix-evidence.ts";
export {
  createPrefixKnowledge,
  type FeedStanding,
  type KnowledgeOptions,
  maxKnownTargets,
  type Placement,
  type PlacementWriter,
  type PrefixKnowledge,
  type PrefixStore,
} from "./prefix/prefix-knowledge.ts";
export type { PromptBlocks } from "./prefix/prompt-blocks.ts";
export { createRecentPrompts, type RecentPrompts } from "./prefix/recent-prompts.ts";
export { Dispatch } from "./request/dispatch.ts";
export {
  type AnswerEnd,
  type LifecycleParts,
  type PlannedAttempt,
  type RequestCarrier,
  RequestLifecycle,
  type RequestQueue,
} from "./request/request-lifecycle.ts";
export { createRetryMeters, type FailureKind, Retries, type RetryMeters } from "./request/retries.ts";
export {
  createRetryBudget,
  type RetryBudget,
  type RetryBudgetOptions,
} from "./request/retry-budget.ts";
export type { RoutingTarget } from "./routing-target.ts";
export {
  createTargetSelector,
  type Restriction,
  type RoutedRequest,
  type SelectablePool,
  type Selection,
  type TargetSelector,
} from "./select-target.ts";
export { createLocalBindings } from "./sessions/local-bindings.ts";
export {
  type BindingStore,
  createSessionBindings,
  quietSessions,
  type SessionBindings,
} from "./sessions/session-bindings.ts";
export { createLoadPublisher, type LoadPublisher } from "./shared/load-publisher.ts";
export { createSharedTier, type SharedTier, type SharedTierOptions } from "./shared/shared-tier.ts";
export { createTargetIndices } from "./shared/target-indices.ts";
export { createFleetLearning, type FleetLearning } from "./work/fleet-learning.ts";
export { PoolWork, type PromptWork } from "./work/pool-work.ts";
