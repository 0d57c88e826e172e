import { counterBy, type Meter } from "@espalier/core";
import { defaultLinkLimits } from "../link/link.ts";
import type { Origin } from "../origin.ts";

/** Version of what is stored in Redis and sent through it. Routers of two versions share nothing. */
const version = 3;

/** Names of a cluster's keys in Redis. All are in one slot of a Redis Cluster, by the tag in braces. */
export type RedisKeys = ReturnType<typeof createRedisKeys>;

export function createRedisKeys(cluster: string) {
  const base = `espalier:{${cluster}}:${version}:`;
  const older = `espalier:{${cluster}}:2:`;
  return {
    /** Channel for messages to the router at an address. */
    inbox: (address: string): string => `${base}to:${address}`,
    /** Sorted set of `<address> <router>`, each with the time on the clock of Redis at which its lease ends. */
    living: `${base}living`,
    /** Hash from `<router>@<epoch>` to the version of its stored journal. */
    journals: `${base}journals`,
    journal: ({ origin, version: copy }: StoredJournal): string =>
      `${base}journal:${origin.router}:${origin.epoch}:${copy}`,
    /** Members and leases of version 2, which had a membership of its own. */
    olderMembers: `${older}members`,
    olderLease: (router: string): string => `${older}member:${router}`,
  };
}

/** The place of a journal's copy. */
export interface StoredJournal {
  readonly origin: Origin;
  /** Rises with every copy. */
  readonly version: number;
}

/** What went wrong in Redis, or was there and no router wrote it. */
export type RedisIncident =
  | "entry-invalid"
  | "message-invalid"
  | "lease-invalid"
  | "key-of-other-type"
  | "gap"
  | "republished"
  | "look-failed"
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
    "Errors of the Redis carrier, foreign entries included.",
  );
}

/** Bounds and periods of Redis as a carrier. */
export type RedisLimits = Readonly<typeof defaultRedisLimits>;

export const defaultRedisLimits = {
  queueBytes: defaultLinkLimits.queueBytes,
  /** An address whose lease is not renewed for so long is listed no more. */
  leaseMs: 1_500,
  /** Time between renewals of the own lease, each of which lists the others. */
  renewMs: 500,
  /** After Redis was away, routers that are not linked again yet count as alive for so long. */
  graceMs: 3_000,
  /** A command without an answer for so long ends the connection. */
  commandTimeoutMs: 1_500,
  connectTimeoutMs: 1_000,
  firstReconnectMs: 100,
  maxReconnectMs: 1_000,
  /** Other routers that are known at the same time. */
  maxMembers: 256,
  /** Bytes of one frame. */
  maxFrameBytes: 1_048_576,
  /** Bytes of a connection that may be in flight, not yet read by the other end: Redis drops a subscriber who lags far. */
  windowBytes: 262_144,
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
