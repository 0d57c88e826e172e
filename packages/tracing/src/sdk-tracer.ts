import type { Clock, Span, SpanStart, TraceParent, Tracer } from "@espalier/common";
import { type Tracer as OtelTracer, ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { AlwaysOnSampler, BasicTracerProvider, type SpanExporter } from "@opentelemetry/sdk-trace-base";
import { flushMs, maxAttributeLength, maxAttributes, maxEvents, maxKeptPerSecond } from "./bounds.ts";
import { parseParent } from "./parse-parent.ts";
import { RecordedSpan, sdkStart } from "./recorded-span.ts";
import { SpanIds } from "./span-ids.ts";
import { SpanQueue } from "./span-queue.ts";
import type { TracingOptions } from "./tracing.ts";

/** What records, once the libraries are there. */
export interface SdkTracer extends Tracer {
  stop(): Promise<void>;
}

/** Records a share of the requests as OpenTelemetry spans. */
export function createSdkTracer(exporter: SpanExporter, options: TracingOptions): SdkTracer {
  const { serviceName, instanceId, sampleShare, clock, scheduler, random, logger, meters } = options;
  const queue = new SpanQueue({ exporter, scheduler, logger, meters });
  const ids = new SpanIds(random);
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ "service.name": serviceName, "service.instance.id": instanceId }),
    // Who is asked for a span has decided that there is one.
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
    samples: (traceparent) => (traceparent === undefined ? random.float() < sampleShare : isSampled(traceparent)),
    begin,
    keep(traceparent, start) {
      if (!mayKeep()) return undefined;
      if (traceparent !== undefined) ids.useOnce(traceparent);
      return begin(undefined, start);
    },
    async stop() {
      await queue.shutdown();
      // It waits for a batch that is still tried, which is more than the end of a router is to take.
      void exporter.shutdown().catch(() => {});
    },
  };
}

/** The last of the flags (W3C Trace Context): the caller may have recorded it. */
function isSampled(traceparent: string): boolean {
  return (Number.parseInt(traceparent.slice(53, 55), 16) & 1) === 1;
}

/** @returns asks for one more within the second */
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
