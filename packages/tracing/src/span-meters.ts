import type { CounterSeries, Meter } from "@espalier/common";

/** What became of spans that were recorded. */
export interface SpanMeters {
  /** Taken by the collector. */
  readonly sent: CounterSeries;
  /** Refused by it, or it was not to be reached. */
  readonly failed: CounterSeries;
  /** Never tried: the queue was full, or the router ended. */
  readonly dropped: CounterSeries;
}

/** Registers the counter and looks its series up once. */
export function createSpanMeters(meter: Meter): SpanMeters {
  const spans = meter.counter({
    name: "espalier_trace_spans_total",
    help: "Recorded spans, by what became of them: sent, failed (the collector did not take them) or dropped (the queue was full).",
    labels: ["outcome"],
  });
  return { sent: spans.series("sent"), failed: spans.series("failed"), dropped: spans.series("dropped") };
}
