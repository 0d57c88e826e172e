/** Bounds and periods of the Redis backend. */
export interface RedisLimits {
  /** A router whose lease is not renewed for so long is suspected. */
  readonly leaseMs: number;
  /** Between renewals of the own lease, and between looks at those of others. */
  readonly renewMs: number;
  /** From the end of a lease until the router is taken for dead; with the lease and a look it makes 4 s at most. */
  readonly downAfterLapseMs: number;
  /** From the end of a lease until the router is no member any more. */
  readonly forgetAfterLapseMs: number;
  /** After Redis was away, or was emptied, missing leases mean nothing for so long. */
  readonly graceMs: number;
  /** A router that has just started waits for others at most so long, and for Redis itself at most so long. */
  readonly joinTimeoutMs: number;
  readonly redisTimeoutMs: number;
  /** Gauges of the others are awaited so long. */
  readonly gaugesTimeoutMs: number;
  /** A command without an answer for so long ends the connection. */
  readonly commandTimeoutMs: number;
  readonly connectTimeoutMs: number;
  readonly firstReconnectMs: number;
  readonly maxReconnectMs: number;
  /** Other routers that are known at the same time. */
  readonly maxMembers: number;
  /** Routers whose highest epoch Redis remembers. Those that began longest ago go first, never living ones. */
  readonly maxEpochs: number;
  /** Journals, living writers' and dead ones', that are read at the same time. */
  readonly maxSources: number;
  /** Updates that wait to be written; with more they are dropped, and all is written anew. */
  readonly maxQueuedBytes: number;
  readonly maxQueuedUpdates: number;
  /** Of one entry that is read from a stream, a blob or a snapshot. */
  readonly maxEntryBytes: number;
  /** Documents and snapshots are written in pieces of about this many bytes. */
  readonly pieceBytes: number;
  /** A stream longer than this (or than the last blob) is replaced by a new blob, and trimmed. */
  readonly blobAfterBytes: number;
  readonly blobAfterEntries: number;
  /** Pieces of a blob that are read at most. */
  readonly maxBlobPieces: number;
  /** Of a stream, of how many entries are read at once. */
  readonly readCount: number;
  /** What a writer left behind stays for so long after its last sign of life. */
  readonly journalTtlMs: number;
  /** Messages to others that wait for Redis; with more the newest are dropped, and gauges are sent whole later. */
  readonly maxPublishing: number;
  /** Of one message of others, gauges and all else. */
  readonly maxMessageBytes: number;
  /** Statements about targets are published so often, at most so many in a message. */
  readonly statementsMs: number;
  readonly maxStatements: number;
  /** A snapshot is asked for again when nothing came for so long. */
  readonly snapshotTimeoutMs: number;
  readonly snapshotAttempts: number;
  /** What is left of a snapshot that nobody fetches goes after so long. */
  readonly snapshotTtlMs: number;
  /** Frames of a snapshot that lie in Redis at the same time. */
  readonly maxSnapshotBacklog: number;
  readonly maxSnapshotFrames: number;
  /** Snapshots that a router gives at the same time. */
  readonly maxSnapshotExports: number;
  /** Targets that a request names; for more everything is asked for. */
  readonly maxSnapshotTargets: number;
  /** Requests for snapshots that wait; more are merged into one for everything. */
  readonly maxSnapshotRequests: number;
}

export const defaultRedisLimits: RedisLimits = {
  leaseMs: 1_500,
  renewMs: 500,
  downAfterLapseMs: 1_900,
  forgetAfterLapseMs: 4_500,
  graceMs: 3_000,
  joinTimeoutMs: 30_000,
  redisTimeoutMs: 5_000,
  gaugesTimeoutMs: 1_000,
  commandTimeoutMs: 1_500,
  connectTimeoutMs: 1_000,
  firstReconnectMs: 100,
  maxReconnectMs: 1_000,
  maxMembers: 256,
  maxEpochs: 4_096,
  maxSources: 1_024,
  maxQueuedBytes: 8_388_608,
  maxQueuedUpdates: 4_096,
  maxEntryBytes: 8_388_608,
  pieceBytes: 262_144,
  blobAfterBytes: 4_194_304,
  blobAfterEntries: 4_096,
  maxBlobPieces: 16_384,
  readCount: 32,
  journalTtlMs: 3_600_000,
  maxPublishing: 256,
  maxMessageBytes: 262_144,
  statementsMs: 5_000,
  maxStatements: 256,
  snapshotTimeoutMs: 2_000,
  snapshotAttempts: 3,
  snapshotTtlMs: 30_000,
  maxSnapshotBacklog: 32,
  maxSnapshotFrames: 16_384,
  maxSnapshotExports: 4,
  maxSnapshotTargets: 1_024,
  maxSnapshotRequests: 64,
};
