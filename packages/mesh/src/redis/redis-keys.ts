import { counterBy, type Meter } from "@espalier/common";
import { defaultLinkLimits, type LinkLimits } from "../link/link.ts";
import type { StoredJournal } from "./directory.ts";

/** Names of a cluster's keys in Redis. All are in one slot of a Redis Cluster, by the tag in braces. */
export interface RedisKeys {
  /** Channel for messages to all routers. */
  readonly all: string;
  /** Channel for messages to one router. */
  inbox(router: string): string;
  /** Set of ids of routers that may have a lease. */
  readonly members: string;
  /** Hash from `<router>@<epoch>` to the version of its stored journal. */
  readonly journals: string;
  /** Hash from router id to the highest epoch that it had. */
  readonly epochs: string;
  lease(router: string): string;
  journal(stored: StoredJournal): string;
  /** Members and leases of versions before 2, which kept streams. */
  readonly olderMembers: string;
  olderLease(router: string): string;
}

/** Version of what is stored in Redis and sent through it. */
const version = 2;

export function createRedisKeys(cluster: string): RedisKeys {
  const older = `espalier:{${cluster}}:`;
  const base = `${older}${version}:`;
  return {
    all: `${base}all`,
    inbox: (router) => `${base}to:${router}`,
    members: `${base}members`,
    journals: `${base}journals`,
    epochs: `${base}epochs`,
    lease: (router) => `${base}member:${router}`,
    journal: ({ origin, version: copy }) => `${base}journal:${origin.router}:${origin.epoch}:${copy}`,
    olderMembers: `${older}members`,
    olderLease: (router) => `${older}member:${router}`,
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
export interface RedisLimits extends Pick<LinkLimits, "queueBytes"> {
  /** A router whose lease is not renewed for so long is suspected. */
  readonly leaseMs: number;
  /** Time between renewals of the own lease, and between looks at those of others. */
  readonly renewMs: number;
  /** From the end of a lease until the router is considered dead; with the lease and a look it makes 4 s at most. */
  readonly downAfterLapseMs: number;
  /** From the end of a lease until the router is no longer a member. */
  readonly forgetAfterLapseMs: number;
  /** After Redis was away, or was emptied, missing leases mean nothing for so long. */
  readonly graceMs: number;
  /** Longest wait of a router that has just started for other routers, and likewise for Redis itself. */
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
  /** Bytes of one message of another router. */
  readonly maxMessageBytes: number;
  /** Least time between two copies of the own journal in Redis, and bytes of copies per second. */
  readonly storeMs: number;
  readonly storeBytesPerS: number;
  /** A journal is stored in pieces of about so many bytes; pieces that are read may be a little larger. */
  readonly pieceBytes: number;
  readonly maxPieceBytes: number;
  /** Stored journals that are read at the start, and pieces of each. */
  readonly maxSources: number;
  readonly maxPieces: number;
  /** A stored journal stays for so long after its writer's last heartbeat. */
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
