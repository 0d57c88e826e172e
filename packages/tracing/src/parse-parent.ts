import type { TraceParent } from "@espalier/common";
import { createTraceState, type SpanContext, TraceFlags } from "@opentelemetry/api";

/** The caller's span. Where it stands in a `traceparent` is the same in every version of the header. */
export function parseParent({ traceparent, tracestate }: TraceParent): SpanContext {
  return {
    traceId: traceparent.slice(3, 35),
    spanId: traceparent.slice(36, 52),
    traceFlags: TraceFlags.SAMPLED,
    isRemote: true,
    ...(tracestate === undefined ? {} : { traceState: createTraceState(tracestate) }),
  };
}
