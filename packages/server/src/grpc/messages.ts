import { EspalierError } from "@espalier/core";
import protobuf from "protobufjs";
import { protoText } from "./proto-text.ts";

/**
 * Messages of `envoy.service.ext_proc.v3.ExternalProcessor/Process`, as protobufjs reads and writes them. Sizes in
 * bytes. See `proto-text.ts` for their sources.
 */
export interface HeaderValue {
  readonly key: string;
  /** What Envoy sends; `value` is for senders that predate it. */
  readonly rawValue?: Uint8Array | undefined;
  readonly value?: string;
}

export interface HttpHeaders {
  readonly headers?: { readonly headers?: readonly HeaderValue[] } | null;
  readonly endOfStream?: boolean;
}

export interface HttpBody {
  readonly body?: Uint8Array;
  readonly endOfStream?: boolean;
}

/** A `google.protobuf.Value`, of the kinds that gateways use. */
export interface MetadataValue {
  readonly stringValue?: string | null;
  readonly numberValue?: number | null;
  readonly listValue?: { readonly values?: readonly MetadataValue[] } | null;
  readonly structValue?: MetadataStruct | null;
}

export interface MetadataStruct {
  readonly fields?: Readonly<Record<string, MetadataValue>>;
}

/** How Envoy sends a body: `BodySendMode` by its numbers. */
export const bodyModes = { none: 0, streamed: 1, buffered: 2, bufferedPartial: 3, fullDuplexStreamed: 4 } as const;
export type BodyMode = (typeof bodyModes)[keyof typeof bodyModes];

/** One message from Envoy. Exactly one of the first six is present. */
export interface ProcessingRequest {
  readonly requestHeaders?: HttpHeaders | null;
  readonly requestBody?: HttpBody | null;
  readonly requestTrailers?: object | null;
  readonly responseHeaders?: HttpHeaders | null;
  readonly responseBody?: HttpBody | null;
  readonly responseTrailers?: object | null;
  readonly metadataContext?: { readonly filterMetadata?: Readonly<Record<string, MetadataStruct>> } | null;
  /** Envoy sends a copy and waits for no answer. */
  readonly observabilityMode?: boolean;
  /** In the first message only; absent before Envoy 1.33. */
  readonly protocolConfig?: { readonly requestBodyMode?: BodyMode; readonly responseBodyMode?: BodyMode } | null;
}

interface HeaderMutation {
  readonly setHeaders?: readonly { readonly header: HeaderValue; readonly appendAction: number }[];
  readonly removeHeaders?: readonly string[];
}

interface BodyMutation {
  readonly body?: Uint8Array;
  readonly clearBody?: boolean;
  readonly streamedResponse?: { readonly body?: Uint8Array; readonly endOfStream?: boolean };
}

export interface CommonResponse {
  readonly headerMutation?: HeaderMutation;
  readonly bodyMutation?: BodyMutation;
  readonly clearRouteCache?: boolean;
}

/** One message to Envoy. */
export interface ProcessingResponse {
  readonly requestHeaders?: { readonly response?: CommonResponse };
  readonly requestBody?: { readonly response?: CommonResponse };
  readonly requestTrailers?: object;
  readonly responseHeaders?: { readonly response?: CommonResponse };
  readonly responseBody?: { readonly response?: CommonResponse };
  readonly responseTrailers?: object;
  readonly immediateResponse?: {
    readonly status: { readonly code: number };
    readonly headers?: HeaderMutation;
    readonly body?: Uint8Array;
    readonly details?: string;
  };
  readonly dynamicMetadata?: MetadataStruct;
}

/** `HealthCheckResponse.ServingStatus` by its numbers. */
export const servingStatus = { serving: 1, notServing: 2, serviceUnknown: 3 } as const;

const root = protobuf.parse(protoText, new protobuf.Root()).root;
root.addJSON(protobuf.common.get("google/protobuf/struct.proto")?.nested ?? {});

/** Reads and writes one kind of message. */
export interface Codec<Message> {
  /** @throws EspalierError `bad_request` for bytes that are no such message */
  decode(bytes: Buffer): Message;
  encode(message: Message): Buffer;
}

function codecOf<Message extends object>(name: string): Codec<Message> {
  const type = root.lookupType(`espalier.${name}`);
  return {
    decode(bytes) {
      try {
        return type.decode(bytes) as unknown as Message;
      } catch (error) {
        throw new EspalierError("bad_request", `A message is no ${name}.`, { cause: error });
      }
    },
    encode(message) {
      const bytes = type.encode(message).finish();
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    },
  };
}

export const processingRequest = codecOf<ProcessingRequest>("ProcessingRequest");
export const processingResponse = codecOf<ProcessingResponse>("ProcessingResponse");
export const healthCheckRequest = codecOf<{ readonly service?: string }>("HealthCheckRequest");
export const healthCheckResponse = codecOf<{ readonly status: number }>("HealthCheckResponse");

/** What KEDA scales: the object, and the metadata of its trigger. */
export interface ScaledObjectRef {
  readonly name?: string;
  readonly namespace?: string;
  readonly scalerMetadata?: Readonly<Record<string, string>>;
}

export interface MetricSpec {
  readonly metricName: string;
  /** For releases of KEDA that know whole numbers only; the same for `metricValue`. */
  readonly targetSize: number;
  readonly targetSizeFloat: number;
}

export interface MetricValue {
  readonly metricName: string;
  readonly metricValue: number;
  readonly metricValueFloat: number;
}

export const scaledObjectRef = codecOf<ScaledObjectRef>("ScaledObjectRef");
export const isActiveResponse = codecOf<{ readonly result: boolean }>("IsActiveResponse");
export const getMetricSpecResponse = codecOf<{ readonly metricSpecs: readonly MetricSpec[] }>("GetMetricSpecResponse");
export const getMetricsRequest = codecOf<{
  readonly scaledObjectRef?: ScaledObjectRef | null;
  readonly metricName?: string;
}>("GetMetricsRequest");
export const getMetricsResponse = codecOf<{ readonly metricValues: readonly MetricValue[] }>("GetMetricsResponse");
