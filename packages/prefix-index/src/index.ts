/**
 * What engines hold, by content: the radix tree from chain hashes of token blocks to targets, and the ledger that
 * turns an engine's event stream into changes of that index. Pure and synchronous.
 */
export { attention, type EngineEventBatch, type EventDetail, eventKind } from "./engine-events.ts";
export type { ExportLimits, FactsChunk, FactsGroup } from "./export-targets.ts";
export { AttachHints, type AttachHintsOptions, type ChainPath } from "./ledger/attach-hints.ts";
export { FeedLedger, type FeedLedgerOptions, type LedgerStats } from "./ledger/feed-ledger.ts";
export type { LedgerReport } from "./ledger/ledger-report.ts";
export type { LedgerSink } from "./ledger/ledger-sink.ts";
export { PoolKeys, type PoolKeysFault } from "./ledger/pool-keys.ts";
export { createPrefixIndex, type PrefixIndex, type PrefixIndexOptions } from "./prefix-index.ts";
export { createPrefixMatches, type PrefixMatches } from "./prefix-matches.ts";
export { type FactKind, factKinds, resumePoint, type Tier, type TierName, tier, tierNames } from "./tiers.ts";
