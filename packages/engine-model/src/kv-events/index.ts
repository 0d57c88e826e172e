/** KV events as engines send them: the codec of every dialect, and a publisher. */

export {
  type EventDialect,
  encodeEventMessage,
  eventDialects,
  type StoredEvent,
  type WireEvent,
} from "./codec/encode-events.ts";
export { createEventDecoder, type EventDecoder, type RefusalReason } from "./codec/event-decoder.ts";
export { type ListedKeys, maxKeyPrefixes, mooncakeKey, readMooncakeKeys } from "./codec/mooncake-keys.ts";
export { type NumberedMessage, readReplayAnswer, readSequence, writeSequence } from "./codec/replay-frames.ts";
export {
  createKvEventPublisher,
  type Delivery,
  KvEventPublisher,
  type KvEventPublisherOptions,
} from "./publish/kv-event-publisher.ts";
export { zmqContext } from "./zmq-context.ts";
