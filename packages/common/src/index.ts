/**
 * What every package shares: branded ids, the error catalogue, and the ports through which the code sees time,
 * randomness, logs, metrics and control traffic. It depends on nothing.
 */
export { type BackoffOptions, backoffDelayMs } from "./backoff.ts";
export { BinaryHeap } from "./binary-heap.ts";
export { ByteReader } from "./byte-reader.ts";
export { ByteWriter } from "./byte-writer.ts";
export {
  type Cancel,
  type Clock,
  type Scheduler,
  systemAfterPoll,
  systemClock,
  systemCpuMs,
  systemScheduler,
} from "./clock.ts";
export { DecayedSum } from "./decayed-sum.ts";
export {
  type EngineRole,
  type EngineSpec,
  type EngineTraits,
  type KvEventsSpec,
  type KvTransferProtocol,
  type KvTransferSpec,
  kvTransferProtocols,
} from "./engine-spec.ts";
export { type ErrorCode, type ErrorKind, type ErrorType, errorCatalogue } from "./error-catalogue.ts";
export { renderErrorDocs } from "./error-docs.ts";
export { asEspalierError, type ErrorDetails, EspalierError } from "./errors.ts";
export type {
  HttpClient,
  HttpRequest,
  HttpResponse,
  HttpStreamClient,
  HttpStreamObserver,
  HttpStreamRequest,
} from "./http-client.ts";
export {
  asEngineId,
  asRouterId,
  asTargetIndex,
  type Branded,
  type EngineId,
  type RouterId,
  type TargetIndex,
} from "./ids.ts";
export { isLoopback } from "./is-loopback.ts";
export { type LogFields, type Logger, silentLogger } from "./logger.ts";
export {
  type CounterSeries,
  counterBy,
  counterOf,
  type GaugeSeries,
  gaugeOf,
  type HistogramDescription,
  type HistogramSeries,
  type Meter,
  type Metric,
  type MetricDescription,
  secondsOf,
  silentMeter,
} from "./meter.ts";
export { nearestName } from "./nearest-name.ts";
export { NormalEquations } from "./normal-equations.ts";
export { createSeededRandom, type Random, systemRandom } from "./random.ts";
export { RecencyMap } from "./recency-map.ts";
export { type Startable, startTogether } from "./startable.ts";
export {
  type Span,
  type SpanAttributes,
  type SpanKind,
  type SpanStart,
  silentTracer,
  type TraceParent,
  type Tracer,
} from "./tracer.ts";
export {
  type Connection,
  type ConnectionEnd,
  type ConnectionObserver,
  drainMarkBytes,
  maxUntrustedBytes,
  type Transport,
} from "./transport.ts";
export { usageHalfLifeMs } from "./usage-half-life.ts";
