/**
 * Traces behind the tracer port of common: OpenTelemetry spans, sent to a collector over OTLP/HTTP from a bounded
 * queue. No request ever waits for it.
 */

export {
  batchSpans,
  createSpanMeters,
  flushMs,
  maxAttributeLength,
  maxAttributes,
  maxEvents,
  maxKeptPerSecond,
  maxQueuedSpans,
  type SpanMeters,
  sendEveryMs,
} from "./span-queue.ts";
export {
  createOtlpExporter,
  createTracing,
  type OtlpExporterOptions,
  type Tracing,
  type TracingOptions,
} from "./tracing.ts";
