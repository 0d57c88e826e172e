/** Reads engines' KV events from real sockets: finds gaps and restarts, asks for replays, and follows one engine at a time. */

export { type EventSource, endpointsOfRank, readSglangEventSources, readVllmEventSources } from "./event-sources.ts";
export type { EventTransport } from "./event-transport.ts";
export { registerFeedMetrics } from "./feed-record.ts";
export type { FeedReason, FeedSink, FeedState } from "./feed-state.ts";
export { createKvFeed, type FeedEndpoints, type KvFeed, type KvFeedDescription } from "./kv-feed.ts";
export { createReplayGate, type ReplayGate } from "./replay-run.ts";
export { createSharedBinds } from "./shared-binds.ts";
export { createWorkSlices, type WorkSlices } from "./work-slices.ts";
export { createZmqTransport, subscriberFiles } from "./zmq-transport.ts";
