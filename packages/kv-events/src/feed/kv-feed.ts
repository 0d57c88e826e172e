import type { Clock, Logger, Meter, Scheduler, Startable } from "@espalier/common";
import type { EventDecoder } from "../codec/event-decoder.ts";
import type { EventTransport, SubscriberMode } from "./event-transport.ts";
import { Feed } from "./feed.ts";
import type { FeedLimits } from "./feed-limits.ts";
import type { FeedRecord } from "./feed-record.ts";
import type { FeedSink } from "./feed-sink.ts";
import type { FeedReason, FeedState } from "./feed-state.ts";
import type { ReplayGate } from "./replay-gate.ts";
import type { WorkSlices } from "./work-slices.ts";

/** Where the events of one target are. */
export interface FeedEndpoints {
  readonly endpoint: string;
  readonly mode: SubscriberMode;
  /** Prefix of the topics to hear; in mode `bind` on a shared socket, the topic itself. */
  readonly topic: string;
  /** Where the engine answers with its history, if it does. */
  readonly replayEndpoint: string | undefined;
}

export interface KvFeedOptions {
  /** Key of the target in logs and metrics. */
  readonly key: string;
  /** Undefined when the target publishes no events: the feed is `off` and says so. */
  readonly endpoints: FeedEndpoints | undefined;
  readonly sink: FeedSink;
  /** It keeps nothing between messages, so the feeds of a process may share one. */
  readonly decoder: EventDecoder;
  readonly transport: EventTransport;
  /** Shared by the feeds of a process. */
  readonly slices: WorkSlices;
  /** Shared by the feeds of a process. */
  readonly replayGate: ReplayGate;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger?: Logger;
  readonly meter?: Meter;
  readonly limits?: Partial<FeedLimits>;
}

/** The KV events of one target, read in order. */
export interface KvFeed extends Startable {
  readonly state: FeedState;
  readonly reason: FeedReason;
  /** Plain JSON for the admin API. */
  describe(): KvFeedDescription;
}

export type KvFeedDescription = ReturnType<FeedRecord["describe"]> & {
  readonly endpoint: string | null;
  readonly replayEndpoint: string | null;
  readonly mode: SubscriberMode | null;
  readonly topic: string | null;
  /** The highest number of the present life. */
  readonly lastSequence: number | null;
  readonly pendingMessages: number;
  readonly pendingBytes: number;
};

/**
 * Reads the KV events of one target (an engine's rank) and hands decoded batches to a sink, in order and within a life at
 * most once each. What was missed is fetched from the engine's history, or told as a hole; that the engine was restarted
 * is found out by numbers and checksums.
 *
 * @throws RangeError for limits that are no positive whole numbers
 */
export function createKvFeed(options: KvFeedOptions): KvFeed {
  return new Feed(options);
}
