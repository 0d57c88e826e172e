import { counterBy, type Meter } from "@espalier/core";
import { defaultLinkLimits } from "../link/link.ts";
import type { StoredJournal } from "./directory.ts";

/** Version of what is stored in Redis and sent through it. */
const version = 2;

/** Names of a cluster's keys in Redis. All are in one slot of a Redis Cluster, by the tag in braces. */
export type RedisKeys = ReturnType<typeof createRedisKeys>;

export function createRedisKeys(cluster: string) {
  const older = `espalier:{${cluster}}:`;
  const base = `${older}${version}:`;
  return {
    /** Channel for messages to all routers. */
    all: `${base}all`,
    /** Channel for messages to one router. */
    inbox: (router: string): string => `${base}to:${router}`,
    /** Set of ids of routers that may have a lease. */
    members: `${base}members`,
    /** Hash from `<router>@<epoch>` to the version of its stored journal. */
    journals: `${base}journals`,
    /** Hash from router id to the highest epoch that it had. */
    epochs: `${base}epochs`,
    lease: (router: string): string => `${base}member:${router}`,
    journal: ({ origin, version: copy }: StoredJournal): string =>
      `${base}journal:${origin.router}:${origin.epoch}:${copy}`,
    /** Members and leases of versions before 2, which kept streams. */
    olderMembers: `${older}members`,
    olderLease: (router: string): string => `${older}member:${router}`,
  };
}

/** What went wrong in Redis, or was there and no router wrote it. */
export type RedisIncident =
  | "entry-invalid"
  | "message-invalid"
  | "frame-invalid"
  | "lease-invalid"
  | "key-of-other-type"
  | "gap"
  | "republished"
  | "store-failed"
  | "message-dropped"
  | "too-many-sources"
  | "too-many-members"
  | "older-version";

/** Counts incidents. */
export type CountIncident = (incident: RedisIncident) => void;

export function createIncidentCounter(meter: Meter): CountIncident {
  return counterBy<RedisIncident>(
    meter,
    "incident",
    "espalier_redis_incidents_total",
    "Errors of the exchange through Redis, and entries found there that no router wrote.",
  );
}

/** Bounds and periods of the Redis backend. */
export type RedisLimits = Readonly<typeof defaultRedisLimits>;

export const defaultRedisLimits = {
  queueBytes: defaultLinkLimits.queueBytes,
  /** A router whose lease is not renewed for so long is suspected. */
  leaseMs: 1_500,
  /** Time between renewals of the own lease, and between looks at those of others. */
  renewMs: 500,
  /** From the end of a lease until the router is considered dead; with the lease and a look it makes 4 s at most. */
  downAfterLapseMs: 1_900,
  /** From the end of a lease until the router is no longer a member. */
  forgetAfterLapseMs: 4_500,
  /** After Redis was away, or was emptied, missing leases mean nothing for so long. */
  graceMs: 3_000,
  /** Longest wait of a router that has just started for other routers, and likewise for Redis itself. */
  joinTimeoutMs: 30_000,
  redisTimeoutMs: 5_000,
  /** A router that does not answer is greeted again after so long. */
  helloAgainMs: 1_000,
  /** A command without an answer for so long ends the connection. */
  commandTimeoutMs: 1_500,
  connectTimeoutMs: 1_000,
  firstReconnectMs: 100,
  maxReconnectMs: 1_000,
  /** Other routers that are known at the same time. */
  maxMembers: 256,
  /** Routers whose highest epoch Redis remembers. Those that began longest ago go first, never living ones. */
  maxEpochs: 4_096,
  /** Bytes of one message of another router. */
  maxMessageBytes: 1_048_576,
  /** Least time between two copies of the own journal in Redis, and bytes of copies per second. */
  storeMs: 2_000,
  storeBytesPerS: 4_194_304,
  /** A journal is stored in pieces of about so many bytes; pieces that are read may be a little larger. */
  pieceBytes: 262_144,
  maxPieceBytes: 8_388_608,
  /** Stored journals that are read at the start, and pieces of each. */
  maxSources: 1_024,
  maxPieces: 16_384,
  /** A stored journal stays for so long after its writer's last heartbeat. */
  journalTtlMs: 3_600_000,
};
