import { counterBy, type Meter } from "@espalier/common";
import type { StoredJournal } from "./directory.ts";

/** Names of what a cluster keeps in Redis. All in one slot of a Redis Cluster, by the tag in braces. */
export interface RedisKeys {
  /** Channel of what all routers should hear. */
  readonly all: string;
  /** Channel of what one router should hear. */
  inbox(router: string): string;
  /** Set of router ids whose leases are worth looking for. */
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

/** Version of what stands in Redis and goes through it. */
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

/** What went wrong in Redis, or stood there that no router wrote. */
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
    "What went wrong in the exchange through Redis, or stood there that no router wrote.",
  );
}
