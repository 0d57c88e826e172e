import type { Meter } from "@espalier/common";

/** How well engines are found. Sources are named in the configuration, so that their number is bounded. */
export interface SourceMeters {
  engines(count: number): void;
  isUp(source: string, up: boolean): void;
  failed(source: string): void;
}

export function createSourceMeters(meter: Meter): SourceMeters {
  const engines = meter.gauge({ name: "espalier_discovery_engines", help: "Engines that all sources name together." });
  const up = meter.gauge({
    name: "espalier_discovery_source_up",
    help: "Whether a source of engines can be followed: 1, or 0 while the last list that it gave stays.",
    labels: ["source"],
  });
  const failures = meter.counter({
    name: "espalier_discovery_failures_total",
    help: "Failures of a source of engines, each counted once for as long as it lasts.",
    labels: ["source"],
  });
  return {
    engines: (count) => engines.series().set(count),
    isUp: (source, isUp) => up.series(source).set(isUp ? 1 : 0),
    failed: (source) => failures.series(source).add(),
  };
}
