/**
 * What engines hold, by content: chain hashes of token blocks, the index from them to targets, and the ledger that
 * turns an engine's own event stream into changes of that index. Pure and synchronous.
 */
export { type EngineEventBatch, type EventDetail, eventKind } from "./engine-events.ts";
export { type Tier, type TierName, tier, tierNames } from "./tiers.ts";
