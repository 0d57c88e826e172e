/**
 * The gossip layer of routers: authenticated links, membership, and the exchange of logs and rows that N processes keep in
 * common, over direct links or through Redis. What logs and rows say is opaque here.
 */
export {
  type Backend,
  type BackendDescription,
  type MemberDescription,
  memberDescription,
} from "./exchange/backend.ts";
export { bulkFrameLayouts } from "./exchange/bulk-transfer.ts";
export { documentFrameLayouts } from "./exchange/document-frames.ts";
export { createHybridClock, type HybridClock, stampMs, stampsPerMs } from "./hybrid-clock.ts";
export type { ProcessPorts } from "./link/link.ts";
export { type LinkSecurity, refusedPeer } from "./link/links.ts";
export { type ProbeResult, probePeer } from "./link/probe.ts";
export { membershipFrameLayouts } from "./membership/membership-frames.ts";
export { createMesh, type Mesh, type MeshOptions } from "./mesh.ts";
export { frameOrigin, type Origin, originKey } from "./origin.ts";
export { storedPieceLayout } from "./redis/journal-store.ts";
export { createRedisBackend } from "./redis/redis-backend.ts";
export { probeRedis } from "./redis/redis-session.ts";
export { redisLayouts } from "./redis/redis-transport.ts";
export type { FoldStatement, Member, ReplicaPorts, SnapshotRequest, SnapshotSink } from "./replica-ports.ts";
export {
  type ApplyOutcome,
  DocumentFullError,
  type DocumentState,
  type DocumentUpdate,
  type ReplicatedDocuments,
} from "./replicated-documents.ts";
export { LeasedPlane, type Outcome, type PlaneOptions } from "./rows/leased-plane.ts";
export { type CountedFrame, isLater, PeerRows, PeerTable, type Version } from "./rows/peer-table.ts";
export {
  joinPlanes,
  type LoadExchange,
  type PlaneExchange,
  type RelayFrame,
  readFrame,
  splitIntoFrames,
} from "./rows/plane-exchange.ts";
export type { FoundSeeds } from "./seeds/seeds.ts";
export { callAll, subscribe } from "./subscribe.ts";
export type { MutualTls } from "./transport/ws-transport.ts";
export { createWsTransport } from "./transport/ws-transport.ts";
export { linkFrameLayouts } from "./wire/link-frames.ts";
export { createYWebsocketEndpoint } from "./y-websocket/y-websocket-endpoint.ts";
