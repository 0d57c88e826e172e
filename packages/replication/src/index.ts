/**
 * What routers share, as pure data structures: journals of facts and placements, load gauges, the registry, and the
 * fold that keeps the prefix index equal to the journals. Nothing here opens a socket.
 */

export type {
  ApplyOutcome,
  DocumentState,
  DocumentUpdate,
  ReplicatedDocuments,
} from "./documents/replicated-documents.ts";
export { DocumentFullError } from "./documents/replicated-documents.ts";

export { type BatchMark, epochId } from "./facts/engine-epoch.ts";
export { createTargetSlots, type TargetSlots } from "./facts/target-slots.ts";
export { type FeedClaim, type FeedQuality, holdsAgainst, type PostedClaim } from "./feeds/feed-claim.ts";
export type { FeedReader } from "./feeds/feed-reader.ts";
export { createFeedReaderMeters } from "./feeds/feed-writer.ts";
export type { PlaneOptions } from "./leased/leased-plane.ts";
export type { LoadExchange, PlaneExchange } from "./leased/plane-exchange.ts";
export type { LoadGauge } from "./load/load-frame.ts";
export type { LoadPlane } from "./load/load-plane.ts";
export type { SharedLoad } from "./load/load-sums.ts";
export { type Note, type NoteChannel, NotePlane } from "./notes/note-plane.ts";
export { checkEpoch, maxEpoch, type Origin, originKey } from "./origin.ts";
export { createOverviewDocument, type OverviewDocument } from "./overview/overview-document.ts";
export type { Bindings } from "./placements/bindings.ts";
export type { PlacementLog } from "./placements/placement-log.ts";
export type { Registry } from "./registry/registry.ts";
export type { Replica } from "./replica/replica.ts";
export { createReplica } from "./replica/replica.ts";
export type { FoldStatement, Member, ReplicaPorts, SnapshotRequest, SnapshotSink } from "./replica-ports.ts";
export { UsagePlane } from "./usage/usage-plane.ts";
