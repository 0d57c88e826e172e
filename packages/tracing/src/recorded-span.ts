import type { Span, SpanAttributes, SpanKind, SpanStart } from "@espalier/common";
import {
  type Attributes,
  type HrTime,
  ROOT_CONTEXT,
  SpanKind as SdkKind,
  type Span as SdkSpan,
  type Tracer as SdkTracer,
  type SpanOptions,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";

const kinds: Readonly<Record<SpanKind, SdkKind>> = {
  server: SdkKind.SERVER,
  client: SdkKind.CLIENT,
  internal: SdkKind.INTERNAL,
};

/** What the spans of one request have in common. */
export interface TraceScope {
  readonly sdk: SdkTracer;
  /** Added to a time of the monotonic clock, gives milliseconds since the Unix epoch: the same for a whole trace. */
  readonly epochMs: number;
}

/** A span of the OpenTelemetry SDK behind the port. */
export class RecordedSpan implements Span {
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
export function sdkStart({ kind, startMs, attributes }: SpanStart, epochMs: number): SpanOptions {
  return {
    kind: kinds[kind],
    startTime: toHrTime(epochMs + startMs),
    ...(attributes && { attributes: attributes as Attributes }),
  };
}

/** Seconds and nanoseconds: a plain number may be taken for one of another clock. */
function toHrTime(epochMs: number): HrTime {
  const seconds = Math.floor(epochMs / 1_000);
  return [seconds, Math.round((epochMs - seconds * 1_000) * 1e6)];
}
