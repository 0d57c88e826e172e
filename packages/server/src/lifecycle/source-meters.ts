import type { Meter } from "@espalier/common";

/** How well something is found. Sources are named in the configuration, so that their number is bounded. */
export interface SourceMeters {
  isUp(source: string, up: boolean): void;
  failed(source: string): void;
  /** It is not followed any more. */
  left(source: string): void;
}

/** @param what in descriptions, what a source finds */
export function createSourceMeters(
  meter: Meter,
  names: { readonly up: string; readonly failures: string },
  what: string,
): SourceMeters {
  const up = meter.gauge({
    name: names.up,
    help: `Whether a source of ${what} can be followed: 1, or 0 while the last list that it gave stays.`,
    labels: ["source"],
  });
  const failures = meter.counter({
    name: names.failures,
    help: `Failures of a source of ${what}, each counted once for as long as it lasts.`,
    labels: ["source"],
  });
  return {
    isUp: (source, isUp) => up.series(source).set(isUp ? 1 : 0),
    failed: (source) => failures.series(source).add(),
    left(source) {
      up.remove(source);
      failures.remove(source);
    },
  };
}
