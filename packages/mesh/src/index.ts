/**
 * The mesh between routers: authenticated links, membership, ownership of engines' event feeds, and the exchange of
 * what a replica shares, over direct links or through Redis.
 */
export { type Backend, type MemberDescription, memberDescription } from "./exchange/backend.ts";

export { type LinkSecurity, refusedPeer } from "./link/links.ts";
export { type ProbeResult, probePeer } from "./link/probe.ts";
export { createMesh, type Mesh, type MeshOptions } from "./mesh.ts";
export type { FeedRole } from "./ownership/decide-role.ts";
export { joinedBackend, Ownership } from "./ownership/ownership.ts";
export { createRedisBackend } from "./redis/redis-backend.ts";
export type { FoundSeeds } from "./seeds/seeds.ts";
export type { MutualTls } from "./transport/ws-transport.ts";
export { createWsTransport } from "./transport/ws-transport.ts";

export { createYWebsocketEndpoint } from "./y-websocket/y-websocket-endpoint.ts";
