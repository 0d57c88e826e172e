/**
 * Traces behind the tracer port of common: OpenTelemetry spans, sent to a collector over OTLP/HTTP from a bounded queue
 * that no request ever waits for.
 */
export {
  batchSpans,
  flushMs,
  maxAttributeLength,
  maxAttributes,
  maxEvents,
  maxKeptPerSecond,
  maxQueuedSpans,
  sendEveryMs,
} from "./bounds.ts";
export { createOtlpExporter, type OtlpExporterOptions } from "./otlp-exporter.ts";
export { createSpanMeters, type SpanMeters } from "./span-meters.ts";
export { createTracing, type Tracing, type TracingOptions } from "./tracing.ts";
