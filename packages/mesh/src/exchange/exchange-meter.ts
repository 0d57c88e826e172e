import type { CounterSeries, Meter } from "@espalier/common";

/** What of a link is counted, by kind. */
export type ExchangeKind =
  | "update"
  | "relay"
  | "vector"
  | "want"
  | "piece"
  | "snapshot"
  | "load"
  | "statement"
  | "note";

/** Metrics of the exchange. */
export interface ExchangeMeter {
  sent(kind: ExchangeKind, bytes: number): void;
  dropped(kind: ExchangeKind): void;
  /** A diff was asked for. */
  resync(why: ResyncReason): void;
  refused(): void;
  invalid(channel: string): void;
  /** How long a change took from its writer's commit to here. */
  lag(lagMs: number): void;
  compared(outcome: "sent" | "received"): void;
  snapshot(outcome: "imported" | "served" | "failed" | "unavailable"): void;
}

/** `vector`: a peer told of more. `gap`: a change came that follows on one that did not. */
export type ResyncReason = "vector" | "gap" | "retry";

const lagBucketsSeconds = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export function createExchangeMeter(meter: Meter): ExchangeMeter {
  const bytes = meter.counter({
    name: "espalier_mesh_exchange_bytes_total",
    help: "Bytes of frames given to links, by what they carry.",
    labels: ["kind"],
  });
  const drops = meter.counter({
    name: "espalier_mesh_exchange_dropped_frames_total",
    help: "Frames that a link had no room for; a diff or a full frame replaces them.",
    labels: ["kind"],
  });
  const resyncs = meter.counter({
    name: "espalier_mesh_resyncs_total",
    help: "Diffs of documents that were asked of peers, by what showed that something was missing.",
    labels: ["reason"],
  });
  const refusals = meter.counter({
    name: "espalier_mesh_refused_updates_total",
    help: "Updates that held what their writer may not write; their links were closed.",
  });
  const invalid = meter.counter({
    name: "espalier_mesh_invalid_frames_total",
    help: "Frames that could not be read; their links were closed.",
    labels: ["channel"],
  });
  const lag = meter.histogram({
    name: "espalier_mesh_replication_lag_seconds",
    help: "From the commit of a change to its arrival, by the wall clocks of both routers.",
    buckets: lagBucketsSeconds,
  });
  const statements = meter.counter({
    name: "espalier_mesh_statements_total",
    help: "Statements about settled targets, sent to peers and compared with theirs.",
    labels: ["direction"],
  });
  const snapshots = meter.counter({
    name: "espalier_mesh_snapshots_total",
    help: "Snapshots of facts, by how they ended.",
    labels: ["outcome"],
  });
  const bytesOf = new Map<ExchangeKind, CounterSeries>();
  const lagSeries = lag.series();
  return {
    sent(kind, count) {
      let series = bytesOf.get(kind);
      if (series === undefined) {
        series = bytes.series(kind);
        bytesOf.set(kind, series);
      }
      series.add(count);
    },
    dropped: (kind) => drops.series(kind).add(),
    resync: (why) => resyncs.series(why).add(),
    refused: () => refusals.series().add(),
    invalid: (channel) => invalid.series(channel).add(),
    lag: (lagMs) => lagSeries.observe(Math.max(0, lagMs) / 1000),
    compared: (outcome) => statements.series(outcome).add(),
    snapshot: (outcome) => snapshots.series(outcome).add(),
  };
}
