import type { Meter } from "@espalier/common";

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
