/**
 * What engines hold, by content: chain hashes of token blocks, the index from them to targets, and the ledger that
 * turns an engine's event stream into changes of that index. Pure and synchronous.
 */
export { type EngineEventBatch, type EventDetail, eventKind } from "./engine-events.ts";
export type { ExportLimits, FactsChunk, FactsGroup } from "./export-targets.ts";
export {
  type BlockHasher,
  type ByteRun,
  type ContentRun,
  createBlockHasher,
  type TextRun,
  type TokenRun,
} from "./hash/block-hasher.ts";
export type { KernelName } from "./hash/hash-kernel.ts";
export {
  type ChainRoot,
  type ChainRootParts,
  chainRoot,
  createTextHasher,
  type Hash64,
  hashOf,
  type TextHasher,
} from "./hash/text-hasher.ts";
export { AttachHints, type AttachHintsOptions, type ChainPath } from "./ledger/attach-hints.ts";
export { type BlockDigests, createHasherDigests } from "./ledger/block-digests.ts";
export { FeedLedger, type FeedLedgerOptions, type LedgerStats } from "./ledger/feed-ledger.ts";
export type { LedgerReport } from "./ledger/ledger-report.ts";
export type { LedgerSink } from "./ledger/ledger-sink.ts";
export { createPrefixIndex, type PrefixIndex, type PrefixIndexOptions } from "./prefix-index.ts";
export { createPrefixMatches, type PrefixMatches } from "./prefix-matches.ts";
export { type Tier, type TierName, tier, tierNames } from "./tiers.ts";
