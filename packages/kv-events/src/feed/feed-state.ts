/**
 * What the facts of a feed are worth. `live`: everything since the engine started. `partial`: current, with known holes.
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

/** Why everything known of an engine is void. */
export type NewLifeReason =
  /** A number went back, or the engine does not know a number that it had sent. */
  | "restarted"
  /** The latest number came again with another payload. */
  | "payload-changed"
  /** After a lost connection, nothing could show that it is still the same process. */
  | "unverified";
