import type { EngineEventBatch } from "@espalier/prefix-index";

/**
 * How reliable the facts of a feed are. `live`: everything since the engine started. `partial`: current, with known
 * holes. `replaying`: catching up. `stale`: possibly outdated. `off`: receives nothing.
 */
export type FeedState = "off" | "stale" | "replaying" | "partial" | "live";

/** Why a feed is in its state. */
export type FeedReason =
  /** live: no hole since sequence 0. */
  | "complete"
  /** live: the engine was asked for its history, which is empty. */
  | "nothing-published"
  /** partial: connected, but nothing arrived yet and there is no replay. */
  | "nothing-received"
  /** partial: the first message seen was not the engine's first. */
  | "joined-late"
  /** partial: the engine's history does not go back far enough. */
  | "history-truncated"
  /** partial: messages were lost and could not be replayed. */
  | "gap"
  /** partial: the replay that should have filled a hole failed. */
  | "replay-failed"
  /** partial: a message was refused. */
  | "message-refused"
  /** partial: all messages came, but blocks in them follow others that the engine never announced. */
  | "unknown-parents"
  /** replaying: after the first connection or a new one, for a gap, after a restart, or after a queue overflow. */
  | "first-connection"
  | "reconnected"
  | "filling-gap"
  | "new-epoch"
  | "overflow"
  /** stale: no connection yet; connection lost; or reconnected, without knowing whether messages were lost. */
  | "connecting"
  | "socket-lost"
  | "unverified"
  /** stale: messages arrive faster than they are read. */
  | "behind"
  /** off. */
  | "no-endpoint"
  | "endpoint-unusable"
  /** off: as many targets are followed as may be. */
  | "over-limit"
  | "not-started"
  | "stopped";

/** Why a new epoch of an engine began, which voids everything known of the last one. */
export type NewEpochReason =
  /** A number went back, or the engine does not know a number that it sent earlier. */
  | "restarted"
  /** The latest number was sent again with another payload. */
  | "payload-changed"
  /** After a lost connection, nothing proved that it is still the same process. */
  | "unverified";

/** Receives what a feed reads, synchronously and in order. */
export interface FeedSink {
  /**
   * The events of one message. Numbers ascend within an epoch; a skipped number is a hole, which the state reports.
   *
   * @param batch reused for the next message
   * @param checksum CRC-32 of the payload: with number and timestamp it identifies the message across all epochs
   */
  batch(batch: EngineEventBatch, sequence: number, checksum: number): void;
  /** The engine is a new process: all its blocks are gone. Not called for the first epoch of a feed. */
  newEpoch(reason: NewEpochReason): void;
  /** Called when either changes. */
  state(state: FeedState, reason: FeedReason): void;
  /** The lag of each live message whose time is known, in milliseconds; see `LagTracker`. */
  lag?(lagMs: number): void;
}
