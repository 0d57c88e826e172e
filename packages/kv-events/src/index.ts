/**
 * KV events, by which engines tell what they cache: reading them from real sockets in every dialect, with gaps, restarts
 * and replay, and publishing them as engines do.
 */
export type { DecodeReport } from "./codec/decode-report.ts";
export { type EncodeOptions, encodeEventMessage } from "./codec/encode-events.ts";
export { createEventDecoder, type EventDecoder } from "./codec/event-decoder.ts";
export { type EventDialect, eventDialects } from "./codec/event-dialect.ts";
export type { RemovedEvent, StoredEvent, WireEvent, WireHash } from "./codec/wire-event.ts";
export {
  type EventSource,
  endpointsOfRank,
  readSglangEventSources,
  readVllmEventSources,
} from "./feed/event-sources.ts";
export type { EventTransport } from "./feed/event-transport.ts";
export { registerFeedMetrics } from "./feed/feed-meters.ts";
export type { FeedSink } from "./feed/feed-sink.ts";
export type { FeedReason, FeedState, NewLifeReason } from "./feed/feed-state.ts";
export { createKvFeed, type FeedEndpoints, type KvFeed, type KvFeedDescription } from "./feed/kv-feed.ts";
export { readReplayAnswer } from "./feed/replay-frames.ts";
export { createReplayGate, type ReplayGate } from "./feed/replay-gate.ts";
export { createSharedBinds } from "./feed/shared-binds.ts";
export { createWorkSlices, type WorkSlices } from "./feed/work-slices.ts";
export { createZmqTransport } from "./feed/zmq-transport.ts";
export { createKvEventPublisher, type Delivery, type KvEventPublisher } from "./publish/kv-event-publisher.ts";
export type { KvEventPublisherOptions } from "./publish/publisher-options.ts";
