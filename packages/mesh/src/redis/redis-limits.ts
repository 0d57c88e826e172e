import { defaultLinkLimits, type LinkLimits } from "../link/link.ts";

/** Bounds and periods of the Redis backend. */
export interface RedisLimits extends Pick<LinkLimits, "queueBytes"> {
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
  /** A router that does not answer is greeted again after so long. */
  readonly helloAgainMs: number;
  /** A command without an answer for so long ends the connection. */
  readonly commandTimeoutMs: number;
  readonly connectTimeoutMs: number;
  readonly firstReconnectMs: number;
  readonly maxReconnectMs: number;
  /** Other routers that are known at the same time. */
  readonly maxMembers: number;
  /** Routers whose highest epoch Redis remembers. Those that began longest ago go first, never living ones. */
  readonly maxEpochs: number;
  /** Of one message of others. */
  readonly maxMessageBytes: number;
  /** Least time between two copies of the own journal in Redis, and bytes of copies per second. */
  readonly storeMs: number;
  readonly storeBytesPerS: number;
  /** A journal is stored in pieces of about so many bytes; what is read may be a little larger. */
  readonly pieceBytes: number;
  readonly maxPieceBytes: number;
  /** Stored journals that are read at the start, and pieces of each. */
  readonly maxSources: number;
  readonly maxPieces: number;
  /** A stored journal stays for so long after its writer's last sign of life. */
  readonly journalTtlMs: number;
}

export const defaultRedisLimits: RedisLimits = {
  queueBytes: defaultLinkLimits.queueBytes,
  leaseMs: 1_500,
  renewMs: 500,
  downAfterLapseMs: 1_900,
  forgetAfterLapseMs: 4_500,
  graceMs: 3_000,
  joinTimeoutMs: 30_000,
  redisTimeoutMs: 5_000,
  helloAgainMs: 1_000,
  commandTimeoutMs: 1_500,
  connectTimeoutMs: 1_000,
  firstReconnectMs: 100,
  maxReconnectMs: 1_000,
  maxMembers: 256,
  maxEpochs: 4_096,
  maxMessageBytes: 1_048_576,
  storeMs: 2_000,
  storeBytesPerS: 4_194_304,
  pieceBytes: 262_144,
  maxPieceBytes: 8_388_608,
  maxSources: 1_024,
  maxPieces: 16_384,
  journalTtlMs: 3_600_000,
};
