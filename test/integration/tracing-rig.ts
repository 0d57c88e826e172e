import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { waitFor } from "@espalier/testing";
import type { Json } from "./client.ts";
import type { Rig } from "./rig.ts";

/** One span as the collector got it. */
export interface SeenSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** "" for the first of a trace. */
  readonly parentId: string;
  /** 1 internal, 2 server, 3 client. */
  readonly kind: number;
  readonly startNs: bigint;
  readonly endNs: bigint;
  readonly attributes: Json;
  readonly events: readonly string[];
  /** Whether its status is that of an error. */
  readonly isError: boolean;
  readonly resource: Json;
}

export interface Collector {
  readonly endpoint: string;
  readonly spans: readonly SeenSpan[];
  /** Headers of every batch. */
  readonly batches: readonly IncomingHttpHeaders[];
  /** Where every batch was posted. */
  readonly paths: readonly string[];
  /** Waits until a span of the name has come, and gives the spans of its trace, in order of start. */
  traceOf(name: string): Promise<readonly SeenSpan[]>;
}

/** A collector that takes OTLP/HTTP in JSON. */
export async function collector(rig: Rig, answer: (response: ServerResponse) => void = accept): Promise<Collector> {
  const spans: SeenSpan[] = [];
  const batches: IncomingHttpHeaders[] = [];
  const paths: string[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    paths.push(`${request.method} ${request.url}`);
    batches.push(request.headers);
    spans.push(...readSpans(JSON.parse(Buffer.concat(chunks).toString("utf8")) as OtlpBatch));
    answer(response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  rig.own(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ...{ spans, batches, paths },
    async traceOf(name) {
      await waitFor(() => spans.some((span) => span.name === name), { what: `a span ${name}` });
      const { traceId } = spans.find((span) => span.name === name)!;
      const within = spans.filter((span) => span.traceId === traceId);
      return within.sort((a, b) => Number(a.startNs - b.startNs));
    },
  };
}

const accept = (response: ServerResponse): void => {
  response.writeHead(200, { "content-type": "application/json" }).end("{}");
};

/** The part of `ExportTraceServiceRequest` (OTLP 1.x, JSON mapping) that tests read. */
interface OtlpBatch {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly OtlpAttribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[];
  }[];
}

interface OtlpSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly OtlpAttribute[];
  readonly events: readonly { readonly name: string }[];
  readonly status: { readonly code: number };
}

interface OtlpAttribute {
  readonly key: string;
  /** One key, named after the type. */
  readonly value: Json;
}

function readSpans({ resourceSpans }: OtlpBatch): SeenSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        name: span.name,
        traceId: span.traceId,
        spanId: span.spanId,
        parentId: span.parentSpanId ?? "",
        kind: span.kind,
        startNs: BigInt(span.startTimeUnixNano),
        endNs: BigInt(span.endTimeUnixNano),
        attributes: readAttributes(span.attributes),
        events: span.events.map(({ name }) => name),
        isError: span.status.code === 2,
        resource: readAttributes(resource.attributes),
      })),
    ),
  );
}

function readAttributes(attributes: readonly OtlpAttribute[]): Json {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}
