import type { Clock, Random, Span, SpanAttributes, SpanKind, SpanStart, TraceParent, Tracer } from "@espalier/core";
import {
  type Attributes,
  createTraceState,
  type HrTime,
  type Tracer as OtelTracer,
  ROOT_CONTEXT,
  SpanKind as SdkKind,
  type Span as SdkSpan,
  type SpanContext,
  type SpanOptions,
  SpanStatusCode,
  TraceFlags,
  trace,
} from "@opentelemetry/api";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  AlwaysOnSampler,
  BasicTracerProvider,
  type IdGenerator,
  type SpanExporter,
} from "@opentelemetry/sdk-trace-base";
import { flushMs, maxAttributeLength, maxAttributes, maxEvents, maxKeptPerSecond, SpanQueue } from "./span-queue.ts";
import type { TracingOptions } from "./tracing.ts";

/** The recording tracer, once the OpenTelemetry libraries are loaded. */
export interface SdkTracer extends Tracer {
  stop(): Promise<void>;
}

/** Records a share of the requests as OpenTelemetry spans. */
export function createSdkTracer(exporter: SpanExporter, options: TracingOptions): SdkTracer {
  const { serviceName, instanceId, sample, clock, scheduler, random, logger, meters } = options;
  const queue = new SpanQueue({ exporter, scheduler, logger, meters });
  const ids = new SpanIds(random);
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ "service.name": serviceName, "service.instance.id": instanceId }),
    // Sampling is decided before a span is created.
    sampler: new AlwaysOnSampler(),
    idGenerator: ids,
    spanLimits: {
      attributeValueLengthLimit: maxAttributeLength,
      attributeCountLimit: maxAttributes,
      eventCountLimit: maxEvents,
    },
    spanProcessors: [queue],
    forceFlushTimeoutMillis: flushMs,
  });
  const sdk: OtelTracer = provider.getTracer("espalier");
  const mayKeep = createRate(clock, maxKeptPerSecond);

  const begin = (parent: TraceParent | undefined, start: SpanStart): Span => {
    const epochMs = clock.wallMs() - clock.nowMs();
    const around = parent && parseParent(parent);
    const context = around ? trace.setSpanContext(ROOT_CONTEXT, around) : ROOT_CONTEXT;
    return new RecordedSpan({ sdk, epochMs }, sdk.startSpan(start.name, sdkStart(start, epochMs), context));
  };
  return {
    isOn: true,
    samples: (traceparent) => (traceparent === undefined ? random.float() < sample : isSampled(traceparent)),
    begin,
    keep(traceparent, start) {
      if (!mayKeep()) return undefined;
      if (traceparent !== undefined) ids.useOnce(traceparent);
      return begin(undefined, start);
    },
    async stop() {
      await queue.shutdown();
      // Not awaited: it waits for a batch that is still retried, and the router's stop should not.
      void exporter.shutdown().catch(() => {});
    },
  };
}

/** The sampled flag (W3C Trace Context): the caller may have recorded the request. */
function isSampled(traceparent: string): boolean {
  return (Number.parseInt(traceparent.slice(53, 55), 16) & 1) === 1;
}

/** @returns whether the current second allows one more */
function createRate(clock: Clock, perSecond: number): () => boolean {
  let sinceMs = Number.NEGATIVE_INFINITY;
  let count = 0;
  return () => {
    const nowMs = clock.nowMs();
    if (nowMs - sinceMs >= 1_000) {
      sinceMs = nowMs;
      count = 0;
    }
    count += 1;
    return count <= perSecond;
  };
}

const kinds: Readonly<Record<SpanKind, SdkKind>> = {
  server: SdkKind.SERVER,
  client: SdkKind.CLIENT,
  internal: SdkKind.INTERNAL,
};

/** Shared by the spans of one request. */
interface TraceScope {
  readonly sdk: OtelTracer;
  /** Offset from the monotonic clock to milliseconds since the Unix epoch, fixed for a trace. */
  readonly epochMs: number;
}

/** A span of the OpenTelemetry SDK behind the port. */
class RecordedSpan implements Span {
  readonly traceparent: string;
  readonly #scope: TraceScope;
  readonly #span: SdkSpan;

  constructor(scope: TraceScope, span: SdkSpan) {
    const { traceId, spanId } = span.spanContext();
    this.traceparent = `00-${traceId}-${spanId}-01`;
    this.#scope = scope;
    this.#span = span;
  }

  child(start: SpanStart): Span {
    const { sdk, epochMs } = this.#scope;
    const within = trace.setSpan(ROOT_CONTEXT, this.#span);
    return new RecordedSpan(this.#scope, sdk.startSpan(start.name, sdkStart(start, epochMs), within));
  }

  rename(name: string): void {
    this.#span.updateName(name);
  }

  set(attributes: SpanAttributes): void {
    this.#span.setAttributes(attributes as Attributes);
  }

  event(name: string, atMs: number): void {
    this.#span.addEvent(name, toHrTime(this.#scope.epochMs + atMs));
  }

  end(endMs: number, errorType?: string): void {
    if (errorType !== undefined) {
      this.#span.setAttribute("error.type", errorType);
      this.#span.setStatus({ code: SpanStatusCode.ERROR });
    }
    this.#span.end(toHrTime(this.#scope.epochMs + endMs));
  }
}

/** A start as the SDK takes it. */
function sdkStart({ kind, startMs, attributes }: SpanStart, epochMs: number): SpanOptions {
  return {
    kind: kinds[kind],
    startTime: toHrTime(epochMs + startMs),
    ...(attributes && { attributes: attributes as Attributes }),
  };
}

/** Seconds and nanoseconds, because the SDK may interpret a plain number as another clock's time. */
function toHrTime(epochMs: number): HrTime {
  const seconds = Math.floor(epochMs / 1_000);
  return [seconds, Math.round((epochMs - seconds * 1_000) * 1e6)];
}

/** Ids of traces and spans: random, except for a span whose ids were sent to engines before it was created. */
class SpanIds implements IdGenerator {
  readonly #random: Random;
  #traceId: string | undefined;
  #spanId: string | undefined;

  constructor(random: Random) {
    this.#random = random;
  }

  /** Gives the ids of a valid `traceparent` to the next span that has no parent. */
  useOnce(traceparent: string): void {
    this.#traceId = traceparent.slice(3, 35);
    this.#spanId = traceparent.slice(36, 52);
  }

  readonly generateTraceId = (): string => {
    const id = this.#traceId ?? this.#hex(4);
    this.#traceId = undefined;
    return id;
  };

  readonly generateSpanId = (): string => {
    const id = this.#spanId ?? this.#hex(2);
    this.#spanId = undefined;
    return id;
  };

  /** `words` times 8 hexadecimal digits, never all zero, which would make an id invalid. */
  #hex(words: number): string {
    let text = "";
    for (let word = 0; word < words; word++) {
      text += (1 + this.#random.integer(0xffff_ffff)).toString(16).padStart(8, "0");
    }
    return text;
  }
}

/** The caller's span. Its position in a `traceparent` is the same in every version of the header. */
function parseParent({ traceparent, tracestate }: TraceParent): SpanContext {
  return {
    traceId: traceparent.slice(3, 35),
    spanId: traceparent.slice(36, 52),
    traceFlags: TraceFlags.SAMPLED,
    isRemote: true,
    ...(tracestate === undefined ? {} : { traceState: createTraceState(tracestate) }),
  };
}
