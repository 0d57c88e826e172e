/**
 * Shared by every package: branded ids, the error catalogue, and the ports for time, randomness, logs, metrics, traces and
 * network. It depends on no other package.
 */

export { BinaryHeap } from "./binary-heap.ts";
export { ByteReader, ByteWriter, readOrUndefined } from "./bytes.ts";
export {
  type Cancel,
  type Clock,
  type Scheduler,
  systemAfterPoll,
  systemClock,
  systemCpuMs,
  systemScheduler,
} from "./clock.ts";
export {
  addMoments,
  copyOfSums,
  DecayedRegression,
  type Moments,
  type PeerSamples,
  type Sample,
  type SampleSums,
  sumsOf,
} from "./decayed-regression.ts";
export {
  asEngineId,
  asRouterId,
  asTargetIndex,
  type EngineId,
  type EngineRole,
  type EngineSpec,
  type EngineTraits,
  type KvEventsSpec,
  type KvPullProtocol,
  type KvPullSpec,
  type KvTransferProtocol,
  type KvTransferSpec,
  kvPullProtocols,
  kvTransferProtocols,
  type RouterId,
  type TargetIndex,
} from "./engine-spec.ts";
export { asEspalierError, type ErrorCode, EspalierError, errorCatalogue, renderErrorDocs } from "./errors.ts";
export { DecayedSum, usageHalfLifeMs } from "./estimators.ts";
export { fnv1a, fnv1aOf, hashText, mixWord } from "./fnv.ts";
export {
  type BlockDigests,
  type BlockHasher,
  chainRoot,
  createBlockHasher,
  createHasherDigests,
  createTextHasher,
  type Hash64,
  hashOf,
} from "./hash/index.ts";
export { Histogram } from "./histogram.ts";
export {
  forbiddenKey,
  isJsonObject,
  JsonBody,
  type JsonFault,
  type JsonObject,
  parseJson,
  scanBody,
} from "./json-body/index.ts";
export { LatencyWindow } from "./latency-window.ts";
export { type Expiring, LiveCounts } from "./live-counts.ts";
export { didYouMean, renamedTo } from "./nearest-name.ts";
export {
  type Connection,
  type ConnectionEnd,
  type ConnectionObserver,
  drainMarkBytes,
  type HttpClient,
  type HttpRequest,
  type HttpResponse,
  type HttpStreamClient,
  type HttpStreamObserver,
  type HttpStreamRequest,
  hostInUrl,
  isLoopback,
  maxUntrustedBytes,
  plainHost,
  type Transport,
} from "./network.ts";
export { programUrl } from "./program-url.ts";
export { backoffDelayMs, createSeededRandom, type Random, systemRandom } from "./random.ts";
export { RecencyMap } from "./recency-map.ts";
export { onStdinEnd } from "./standard-input.ts";
export { type Startable, startTogether } from "./startable.ts";
export {
  added,
  after,
  amount,
  before,
  bytes,
  type Codec,
  capped,
  converted,
  copied,
  ended,
  type Flagged,
  flag,
  flagged,
  flags,
  hash,
  list,
  messages,
  name,
  oneOf,
  optional,
  packed,
  raw,
  repeated,
  rest,
  roundedUp,
  scaledVarint,
  signedVarint,
  struct,
  text,
  u32,
  type ValueOf,
  varint,
  versioned,
  type Whole,
  whole,
} from "./struct.ts";
export {
  type CounterSeries,
  counterBy,
  counterOf,
  type GaugeSeries,
  gaugeOf,
  type HistogramSeries,
  type LogFields,
  type Logger,
  type Meter,
  type Metric,
  type Span,
  type SpanAttributes,
  type SpanKind,
  type SpanStart,
  secondsOf,
  silentLogger,
  silentMeter,
  silentTracer,
  type TraceParent,
  type Tracer,
} from "./telemetry.ts";
export { layOutHelpItem, layOutTable, type TableColumn, wrapText } from "./text-layout.ts";
export { durationPattern, formatDuration, formatSize, parseDuration, parseSize, sizePattern } from "./units.ts";
