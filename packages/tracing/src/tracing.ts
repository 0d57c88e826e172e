import {
  type Clock,
  type Logger,
  type Random,
  type Scheduler,
  type Startable,
  silentTracer,
  type Tracer,
} from "@espalier/common";
import type { SpanExporter } from "@opentelemetry/sdk-trace-base";
import type { SdkTracer } from "./sdk-tracer.ts";
import type { SpanMeters } from "./span-meters.ts";

export interface TracingOptions {
  /** Makes what batches of spans go to. */
  readonly createExporter: () => Promise<SpanExporter>;
  readonly serviceName: string;
  /** Tells routers of one service apart. */
  readonly instanceId: string;
  /** The share of requests that are recorded where the caller has not decided, from 0 to 1. */
  readonly sampleShare: number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meters: SpanMeters;
}

/** A tracer with a queue of its own. Its end waits for the last spans, up to `flushMs`. */
export interface Tracing extends Tracer, Startable {}

/**
 * Records a share of the requests, from `start` on. The libraries are loaded then: they take a second and 17 MB, which a
 * router that traces nothing is spared.
 */
export function createTracing(options: TracingOptions): Tracing {
  let sdk: SdkTracer | undefined;
  return {
    isOn: true,
    samples: (traceparent) => sdk?.samples(traceparent) ?? false,
    begin: (parent, start) => (sdk ?? silentTracer).begin(parent, start),
    keep: (traceparent, start) => sdk?.keep(traceparent, start),
    async start() {
      const { createSdkTracer } = await import("./sdk-tracer.ts");
      sdk = createSdkTracer(await options.createExporter(), options);
    },
    async stop() {
      await sdk?.stop();
    },
  };
}
