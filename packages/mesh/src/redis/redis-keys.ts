import type { Meter } from "@espalier/common";
import type { Origin } from "@espalier/replication";

/** Names of what a cluster keeps in Redis. All in one slot of a Redis Cluster, by the tag in braces. */
export interface RedisKeys {
  /** Channel of gauges. */
  readonly load: string;
  /** Channel of notes. Older routers do not listen to it. */
  readonly notes: string;
  /** Channel of everything else that need not be kept. */
  readonly control: string;
  /** Set of router ids whose leases are worth looking for. */
  readonly members: string;
  /** Hash from `<router>@<epoch>` to the incarnation under which its stream and blob stand. */
  readonly origins: string;
  /** Hash from router id to the highest epoch that it had. */
  readonly epochs: string;
  /** Never written; it lets a reader wait that has no stream to wait for. */
  readonly nothing: string;
  lease(router: string): string;
  /** Updates in the order they were made. A stream that was lost or spoiled is begun anew with a higher incarnation. */
  stream(origin: Origin, incarnation: number): string;
  /** Everything up to an entry of the stream. */
  blob(origin: Origin, incarnation: number): string;
  snapshot(id: string): string;
}

export function createRedisKeys(cluster: string): RedisKeys {
  const base = `espalier:{${cluster}}:`;
  const of = ({ router, epoch }: Origin, incarnation: number): string => `${router}:${epoch}:${incarnation}`;
  return {
    load: `${base}load`,
    notes: `${base}notes`,
    control: `${base}control`,
    members: `${base}members`,
    origins: `${base}origins`,
    epochs: `${base}epochs`,
    nothing: `${base}nothing`,
    lease: (router) => `${base}member:${router}`,
    stream: (origin, incarnation) => `${base}journal:${of(origin, incarnation)}`,
    blob: (origin, incarnation) => `${base}doc:${of(origin, incarnation)}`,
    snapshot: (id) => `${base}snapshot:${id}`,
  };
}

/** What went wrong in Redis, or stood there that no router wrote. */
export type RedisIncident =
  | "entry-invalid"
  | "update-refused"
  | "message-invalid"
  | "load-invalid"
  | "note-invalid"
  | "lease-invalid"
  | "key-of-other-type"
  | "gap"
  | "queue-full"
  | "republished"
  | "message-dropped"
  | "snapshot-failed"
  | "too-many-sources"
  | "too-many-members";

/** Counts incidents. */
export type CountIncident = (incident: RedisIncident) => void;

export function createIncidentCounter(meter: Meter): CountIncident {
  const counter = meter.counter({
    name: "espalier_redis_incidents_total",
    help: "What went wrong in the exchange through Redis, or stood there that no router wrote.",
    labels: ["incident"],
  });
  return (incident) => counter.series(incident).add();
}
