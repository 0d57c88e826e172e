/**
 * The CRDT that makes N routers agree on what every engine has cached: journals of facts and placements with one writer
 * each, who reads which engine's events, and the fold that keeps every router's radix tree equal to the journals. Load,
 * usage and notes are shared beside it. `@espalier/shared-tree/events` reads engines' event sockets.
 */

export { type BatchMark, epochId } from "./facts/engine-epoch.ts";
export { createTargetSlots, type TargetSlots } from "./facts/target-slots.ts";
export type { FeedRole } from "./feeds/decide-role.ts";
export type { FeedQuality } from "./feeds/feed-claim.ts";
export {
  createLocalHost,
  createLocalOutput,
  type EventReading,
  type FeedHost,
  type FeedOutput,
  type FeedStatus,
  type FeedTarget,
  type HostedFeed,
} from "./feeds/feed-host.ts";
export type { FeedReader } from "./feeds/feed-reader.ts";
export { createFeedReaderMeters } from "./feeds/feed-writer.ts";
export { Ownership } from "./feeds/ownership.ts";
export { loadFrameLayout } from "./load/load-frame.ts";
export {
  idleGauge,
  isIdle,
  type LoadGauge,
  pickGauge,
} from "./load/load-gauge.ts";
export type { LoadPlane } from "./load/load-plane.ts";
export { LoadSums, noSharedLoad, type SharedLoad } from "./load/load-sums.ts";
export { noteFrameLayout } from "./notes/note-frame.ts";
export { type Note, type NoteChannel, NotePlane } from "./notes/note-plane.ts";
export type { Bindings } from "./placements/bindings.ts";

export type { Registry } from "./registry/registry.ts";
export { createReplica, type Replica } from "./replica/replica.ts";

export { createSharedTier, createTargetIndices, type PlacementWriter, type SharedTier } from "./shared-tier.ts";
export { usageFrameLayout } from "./usage/usage-frame.ts";
export { UsagePlane } from "./usage/usage-plane.ts";
