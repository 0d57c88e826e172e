import type { Meter } from "@espalier/common";

/** `stale`: nothing new in it; `unknown`: of an earlier life, of this router itself, or of one router too many. */
export type UsageReceivedAs = "news" | "stale" | "unknown" | "invalid";

/** The metrics of what routers tell each other of tenants. */
export interface UsageMeters {
  received(as: UsageReceivedAs): void;
  sent(sizeBytes: number): void;
  /** Tenants that others have told of, and since when the router that is silent for longest was not heard. */
  known(tenants: number, ageMs: number): void;
  /** Tenants that others are not told of. */
  untold(tenants: number): void;
}

/** Registers the metrics of usage. */
export function createUsageMeters(meter: Meter): UsageMeters {
  const received = meter.counter({
    name: "espalier_usage_frames_received_total",
    help: "Frames of what other routers have served to tenants, by what they were good for.",
    labels: ["outcome"],
  });
  const sentBytes = meter
    .counter({
      name: "espalier_usage_sent_bytes_total",
      help: "Bytes of the frames of usage that this router made, each counted once however many peers it went to.",
    })
    .series();
  const tenants = meter
    .gauge({
      name: "espalier_usage_known_tenants",
      help: "Tenants, by class and pool, that other routers have served lately as far as they have told.",
    })
    .series();
  const age = meter
    .gauge({
      name: "espalier_usage_age_seconds",
      help: "Time since that router was heard whose usage counts and that is silent for longest; 0 when there is none.",
    })
    .series();
  const untold = meter
    .gauge({
      name: "espalier_usage_untold_tenants",
      help: "Tenants, by class and pool, that this router has served too little to tell others of them.",
    })
    .series();
  const outcomes = {
    news: received.series("news"),
    stale: received.series("stale"),
    unknown: received.series("unknown"),
    invalid: received.series("invalid"),
  };
  return {
    received: (as) => outcomes[as].add(),
    sent: (sizeBytes) => sentBytes.add(sizeBytes),
    known(count, ageMs) {
      tenants.set(count);
      age.set(ageMs / 1_000);
    },
    untold: (count) => untold.set(count),
  };
}
