import type { Meter } from "@espalier/common";

/**
 * `older-life`: of a life of the engine that has ended; `unresolved`: refers to a run or a feed that is not known; `ahead`: a
 * binding with a stamp by a clock that runs ahead.
 */
export type PlacementOutcome = "applied" | "older-life" | "unresolved" | "no-slot" | "ahead";

/** The metrics of the placement log. */
export interface PlacementMeters {
  received(outcome: PlacementOutcome): void;
  invalidItem(): void;
  written(sizeBytes: number, records: number): void;
  runBytes(sizeBytes: number): void;
}

/** Registers the metrics of the placement log. */
export function createPlacementMeters(meter: Meter): PlacementMeters {
  const received = meter.counter({
    name: "espalier_placements_received_total",
    help: "Placements of other routers, by what became of them.",
    labels: ["outcome"],
  });
  const invalid = meter.counter({
    name: "espalier_placements_invalid_items_total",
    help: "Items of other routers' placement logs that could not be read.",
  });
  const written = meter.counter({
    name: "espalier_placements_written_total",
    help: "Placements and bindings that this router has written to its journal.",
  });
  const bytes = meter.counter({
    name: "espalier_placements_written_bytes_total",
    help: "Bytes of the placement log of this router.",
  });
  const runs = meter.gauge({
    name: "espalier_placements_run_bytes",
    help: "Bytes of the chains to which later placements of other routers may refer.",
  });
  const outcomes = {
    applied: received.series("applied"),
    "older-life": received.series("older-life"),
    unresolved: received.series("unresolved"),
    "no-slot": received.series("no-slot"),
    ahead: received.series("ahead"),
  };
  const invalidSeries = invalid.series();
  const writtenSeries = written.series();
  const bytesSeries = bytes.series();
  const runSeries = runs.series();
  return {
    received: (outcome) => outcomes[outcome].add(),
    invalidItem: () => invalidSeries.add(),
    written(sizeBytes, records) {
      writtenSeries.add(records);
      bytesSeries.add(sizeBytes);
    },
    runBytes: (sizeBytes) => runSeries.set(sizeBytes),
  };
}
