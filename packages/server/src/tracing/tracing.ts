import {
  type Clock,
  type Logger,
  type Random,
  type Scheduler,
  type Startable,
  silentTracer,
  type Tracer,
} from "@espalier/core";
import type { SpanExporter } from "@opentelemetry/sdk-trace-base";
import type { SdkTracer } from "./sdk-tracer.ts";
import { exported, exportTimeoutMs, flushMs, type SpanMeters } from "./span-queue.ts";

export interface TracingOptions {
  /** Creates the destination of span batches. */
  readonly createExporter: () => Promise<SpanExporter>;
  readonly serviceName: string;
  /** Distinguishes the routers of one service. */
  readonly instanceId: string;
  /** The recorded share of requests, 0 to 1, when the caller has not decided. */
  readonly sample: number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meters: SpanMeters;
}

/** A tracer with its own queue. Stopping waits for the last spans, up to `flushMs`. */
export interface Tracing extends Tracer, Startable {}

/**
 * Records a share of the requests from `start` on. Only then are the libraries loaded: they take a second and 17 MB,
 * which a router without tracing saves.
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

export interface OtlpExporterOptions {
  /** The collector's base URL, such as `http://127.0.0.1:4318`, or the full one that ends in `/v1/traces`. */
  readonly endpoint: string;
  /** Sent with every batch. They may contain a key. */
  readonly headers: Readonly<Record<string, string>>;
}

const tracesPath = "/v1/traces";

/** Sends batches as OTLP/HTTP with JSON. Retries within `exportTimeoutMs` when the collector asks for it. */
export async function createOtlpExporter({ endpoint, headers }: OtlpExporterOptions): Promise<SpanExporter> {
  const { OTLPTraceExporter } = await import("@opentelemetry/exporter-trace-otlp-http");
  const url = new URL(endpoint);
  const path = url.pathname.replace(/\/+$/, "");
  url.pathname = path.endsWith(tracesPath) ? path : path + tracesPath;
  return new OTLPTraceExporter({
    url: url.href,
    headers: { ...headers },
    timeoutMillis: exportTimeoutMs,
    // The queue sends one batch after the other.
    concurrencyLimit: 1,
  });
}

/**
 * Sends a batch without spans, as a router sends its spans.
 *
 * @returns why the collector does not accept it; undefined when it does
 */
export async function probeCollector(options: OtlpExporterOptions, scheduler: Scheduler): Promise<Error | undefined> {
  const exporter = await createOtlpExporter(options);
  try {
    return await new Promise<Error | undefined>((resolve) => {
      // A collector that answers byte by byte never ends.
      const cancel = scheduler.after(flushMs, () => resolve(new Error(`no answer within ${flushMs} ms`)));
      exporter.export([], ({ code, error }) => {
        cancel();
        resolve(code === exported ? undefined : (error ?? new Error("rejected by the collector")));
      });
    });
  } finally {
    void exporter.shutdown().catch(() => {});
  }
}
