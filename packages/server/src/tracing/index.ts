/**
 * Traces behind the tracer port of core: OpenTelemetry spans, sent to a collector over OTLP/HTTP from a bounded
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
  sendEveryMs,
} from "./span-queue.ts";
export { createOtlpExporter, createTracing, probeCollector, type Tracing } from "./tracing.ts";
