import { EspalierError } from "@espalier/core";
import { fuzzInFile } from "@espalier/testing";
import { test } from "vitest";
import { GatewayStream } from "../../src/grpc/gateway-stream.ts";
import {
  bodyModes,
  getMetricsRequest,
  type ProcessingRequest,
  processingRequest,
  scaledObjectRef,
} from "../../src/grpc/messages.ts";

const text = (value: string) => ({ stringValue: value });
const messages: readonly object[] = [
  {
    requestHeaders: { headers: { headers: [{ key: ":path", rawValue: Buffer.from("/v1/chat/completions") }] } },
    protocolConfig: { requestBodyMode: bodyModes.fullDuplexStreamed, responseBodyMode: bodyModes.fullDuplexStreamed },
    metadataContext: {
      filterMetadata: {
        "envoy.lb.subset_hint": {
          fields: { "x-gateway-destination-endpoint-subset": { listValue: { values: [text("10.0.0.1:80")] } } },
        },
      },
    },
  },
  { requestBody: { body: Buffer.from("{}"), endOfStream: true } },
  { responseHeaders: { headers: { headers: [{ key: ":status", rawValue: Buffer.from("200") }] } } },
  { responseBody: { body: Buffer.from("{}"), endOfStream: true } },
];

const encoded = messages.map((message) => encode(message));

function encode(message: object): Uint8Array {
  return processingRequest.encode(message as ProcessingRequest);
}

/** Plays the bytes as the first and as the last message of an stream. */
function read(bytes: Uint8Array): void {
  const message = processingRequest.decode(Buffer.from(bytes));
  for (const before of [[], messages.slice(0, 2), messages.slice(0, 3)] as const) {
    const stream = new GatewayStream({ write: () => true, end() {}, fail() {}, pause() {}, resume() {} });
    stream.follow({
      head() {},
      piece() {},
      complete: () =>
        stream.route({
          ...{ destinations: ["10.0.0.1:80"], scores: undefined, setHeaders: [], removeHeaders: [] },
          ...{ body: [], isBodyChanged: false },
        }),
      answered: () => stream.answerHeaders([], []),
      received: (chunk) => stream.write(chunk),
      ended: () => stream.end(),
      drained() {},
      closed() {},
    });
    for (const earlier of before) stream.accept(earlier as ProcessingRequest);
    stream.accept(message);
  }
}

fuzzInFile(test, "bytes of a gateway are read, or refused as a bad request", [
  {
    name: "ProcessingRequest",
    seeds: encoded,
    read,
    refuses: isBadRequest,
  },
  {
    name: "ScaledObjectRef and GetMetricsRequest",
    seeds: [
      scaledObjectRef.encode({ name: "vllm", namespace: "llm", scalerMetadata: { model: "m", role: "both" } }),
      getMetricsRequest.encode({ scaledObjectRef: { scalerMetadata: { model: "m" } }, metricName: "n" }),
    ],
    read(bytes) {
      scaledObjectRef.decode(Buffer.from(bytes));
      getMetricsRequest.decode(Buffer.from(bytes));
    },
    refuses: isBadRequest,
  },
]);

function isBadRequest(thrown: unknown): boolean {
  return thrown instanceof EspalierError && thrown.code === "bad_request";
}
