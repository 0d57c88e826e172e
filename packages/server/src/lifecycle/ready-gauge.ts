import type { GaugeSeries, Meter } from "@espalier/common";

/** What `/readyz` says, as a number; set when the metrics are read. */
export function createReadyGauge(meter: Meter): GaugeSeries {
  return meter
    .gauge({ name: "espalier_ready", help: "1 while the router says that it can serve, as /readyz does, else 0." })
    .series();
}
