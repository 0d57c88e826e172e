/**
 * KV events, by which engines announce what they cache. Feeds read them from real sockets in every dialect, and handle
 * gaps, restarts and replay. A publisher sends them as engines do.
 */

export {
  type EventDialect,
  encodeEventMessage,
  eventDialects,
  type StoredEvent,
  type WireEvent,
} from "./codec/encode-events.ts";
export { createEventDecoder, type EventDecoder } from "./codec/event-decoder.ts";
export { readReplayAnswer } from "./codec/replay-frames.ts";
export {
  type EventSource,
  endpointsOfRank,
  readSglangEventSources,
  readVllmEventSources,
} from "./feed/event-sources.ts";
export type { EventTransport } from "./feed/event-transport.ts";
export { registerFeedMetrics } from "./feed/feed-record.ts";
export type { FeedReason, FeedSink, FeedState } from "./feed/feed-state.ts";
export { createKvFeed, type FeedEndpoints, type KvFeed, type KvFeedDescription } from "./feed/kv-feed.ts";
export { createReplayGate, type ReplayGate } from "./feed/replay-run.ts";
export { createSharedBinds } from "./feed/shared-binds.ts";
export { createWorkSlices, type WorkSlices } from "./feed/work-slices.ts";
export { createZmqTransport, subscriberFiles } from "./feed/zmq-transport.ts";
export { createKvEventPublisher, type Delivery, type KvEventPublisher } from "./publish/kv-event-publisher.ts";
