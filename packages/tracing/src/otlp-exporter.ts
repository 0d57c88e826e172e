import type { SpanExporter } from "@opentelemetry/sdk-trace-base";
import { exportTimeoutMs } from "./bounds.ts";

export interface OtlpExporterOptions {
  /** The collector's base URL, such as `http://127.0.0.1:4318`, or the whole one that ends in `/v1/traces`. */
  readonly endpoint: string;
  /** Sent with every batch. They may hold a key. */
  readonly headers: Readonly<Record<string, string>>;
}

const tracesPath = "/v1/traces";

/** Sends batches as OTLP/HTTP with JSON, and again within `exportTimeoutMs` where the collector asks for that. */
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
