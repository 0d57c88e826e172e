import type { EngineEventBatch } from "@espalier/prefix-index";

/**
 * How reliable the facts of a feed are. `live`: everything since the engine started. `partial`: current, with known holes.
 * `replaying`: catching up. `stale`: not known to be current. `off`: nothing comes.
 */
export type FeedState = "off" | "stale" | "replaying" | "partial" | "live";

/** Why a feed is in its state. */
export type FeedReason =
  /** live: no hole since sequence 0. */
  | "complete"
  /** live: the engine's history was asked for, and is empty. */
  | "nothing-published"
  /** partial: connected, nothing came yet, and there is no replay to ask for more. */
  | "nothing-received"
  /** partial: the first message seen was not the engine's first. */
  | "joined-late"
  /** partial: the engine does not keep its history that far back. */
  | "history-truncated"
  /** partial: messages were lost and could not be had again. */
  | "gap"
  /** partial: the replay that should have filled a hole failed. */
  | "replay-failed"
  /** partial: a message could not be used. */
  | "message-refused"
  /** replaying: connected for the first time, or again; filling a gap; after a restart; after too much waited. */
  | "first-connection"
  | "reconnected"
  | "filling-gap"
  | "new-life"
  | "overflow"
  /** stale: no connection yet; connection lost; connected again, but whether messages were missed is not known. */
  | "connecting"
  | "socket-lost"
  | "unverified"
  /** stale: messages come faster than they are read. */
  | "behind"
  /** off. */
  | "no-endpoint"
  | "endpoint-unusable"
  | "not-started"
  | "stopped";

/** Why a new epoch of an engine began, so that all known of the last one is void. */
export type NewEpochReason =
  /** A number went back, or the engine does not know a number that it had sent. */
  | "restarted"
  /** The latest number came again with another payload. */
  | "payload-changed"
  /** After a lost connection, nothing could show that it is still the same process. */
  | "unverified";

/** Takes what a feed reads, synchronously and in order. */
export interface FeedSink {
  /**
   * The events of one message. Within an epoch numbers ascend; one that is left out is a hole, and the state says so.
   *
   * @param batch reused for the next message
   * @param checksum CRC-32 of the payload: with number and timestamp it identifies the message in all epochs
   */
  batch(batch: EngineEventBatch, sequence: number, checksum: number): void;
  /** The engine is another process now: all its blocks are gone. Not called for the first epoch of a feed. */
  newEpoch(reason: NewEpochReason): void;
  /** Called on every change of either. */
  state(state: FeedState, reason: FeedReason): void;
}
