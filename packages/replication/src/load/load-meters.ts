import type { Meter } from "@espalier/common";

/** `stale`: nothing new in it; `unknown`: of an earlier life, of this router itself, or of one router too many. */
export type ReceivedAs = "news" | "stale" | "unknown" | "invalid";
export type SentAs = "change" | "heartbeat" | "full";

/** The metrics of the load plane. */
export interface LoadMeters {
  received(as: ReceivedAs): void;
  sent(as: SentAs, sizeBytes: number): void;
  /** From the origin's making of a frame to its arrival, by two wall clocks. */
  lag(milliseconds: number): void;
  /** Since an origin was last heard. */
  age(milliseconds: number): void;
  phantom(inFlight: number): void;
  expired(): void;
  refusedTarget(): void;
}

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2.5, 5];

/** Registers the metrics of the load plane. */
export function createLoadMeters(meter: Meter): LoadMeters {
  const received = meter.counter({
    name: "espalier_load_frames_received_total",
    help: "Frames of load gauges from other routers, by what they were good for.",
    labels: ["outcome"],
  });
  const sent = meter.counter({
    name: "espalier_load_frames_sent_total",
    help: "Frames of load gauges that this router made, by occasion.",
    labels: ["occasion"],
  });
  const sentBytes = meter.counter({
    name: "espalier_load_sent_bytes_total",
    help: "Bytes of the frames of load gauges that this router made, each counted once however many peers it went to.",
  });
  const lag = meter.histogram({
    name: "espalier_load_lag_seconds",
    help: "Time from the making of a load frame to its arrival, by the wall clocks of both routers.",
    buckets,
  });
  const age = meter.histogram({
    name: "espalier_load_gauge_age_seconds",
    help: "Time since a live router's gauges were last heard, sampled four times a second.",
    buckets,
  });
  const phantom = meter.gauge({
    name: "espalier_load_phantom_requests",
    help: "Requests in flight by what silent routers last said; they are not in the sums.",
  });
  const expired = meter.counter({
    name: "espalier_load_leases_expired_total",
    help: "Times that another router was silent for longer than the lease of its gauges.",
  });
  const refused = meter.counter({
    name: "espalier_load_refused_targets_total",
    help: "Own gauges that were not told because too many targets have load.",
  });
  const outcomes = {
    news: received.series("news"),
    stale: received.series("stale"),
    unknown: received.series("unknown"),
    invalid: received.series("invalid"),
  };
  const occasions = { change: sent.series("change"), heartbeat: sent.series("heartbeat"), full: sent.series("full") };
  const bytesSeries = sentBytes.series();
  const lagSeries = lag.series();
  const ageSeries = age.series();
  const phantomSeries = phantom.series();
  const expiredSeries = expired.series();
  const refusedSeries = refused.series();
  return {
    received: (as) => outcomes[as].add(),
    sent(as, sizeBytes) {
      occasions[as].add();
      bytesSeries.add(sizeBytes);
    },
    lag: (milliseconds) => lagSeries.observe(milliseconds / 1_000),
    age: (milliseconds) => ageSeries.observe(milliseconds / 1_000),
    phantom: (inFlight) => phantomSeries.set(inFlight),
    expired: () => expiredSeries.add(),
    refusedTarget: () => refusedSeries.add(),
  };
}
