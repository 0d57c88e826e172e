import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { Client, credentials } from "@grpc/grpc-js";
import protobuf from "protobufjs";

/** KEDA's definition of an external scaler, as far as its client reads it. */
const { root } = protobuf.parse(`syntax = "proto3";
package externalscaler;
message ScaledObjectRef { string name = 1; string namespace = 2; map<string, string> scalerMetadata = 3; }
message IsActiveResponse { bool result = 1; }
message GetMetricsRequest { ScaledObjectRef scaledObjectRef = 1; string metricName = 2; }
message GetMetricsResponse { repeated MetricValue metricValues = 1; }
message MetricValue { string metricName = 1; int64 metricValue = 2; double metricValueFloat = 3; }
`);

type Metadata = Readonly<Record<string, string>>;

/** What KEDA asks of a router, over grpc-js. */
export interface ScalerClient {
  /** The value of the metric; rejected with the router's message. */
  engines(metadata: Metadata): Promise<number>;
  /** The states that a stream told so far. */
  watch(metadata: Metadata): readonly boolean[];
  close(): void;
}

/** @param ca PEM text of the authority of the router's certificate; undefined for plain text */
export function connectScaler(address: string, ca?: string): ScalerClient {
  const host = address.slice(0, address.lastIndexOf(":"));
  // The certificate is for an address, and no address may be the name that a server is asked for.
  const checked = { checkServerIdentity: (_: string, peer: PeerCertificate) => checkServerIdentity(host, peer) };
  const client =
    ca === undefined
      ? new Client(address, credentials.createInsecure())
      : new Client(address, credentials.createSsl(Buffer.from(ca), null, null, checked), {
          "grpc.ssl_target_name_override": "localhost",
        });
  const encode = (name: string) => (message: object) =>
    Buffer.from(root.lookupType(`externalscaler.${name}`).encode(message).finish());
  const decode =
    <Message>(name: string) =>
    (bytes: Buffer) =>
      root.lookupType(`externalscaler.${name}`).decode(bytes) as unknown as Message;
  const path = (method: string): string => `/externalscaler.ExternalScaler/${method}`;
  const ref = (scalerMetadata: Metadata) => ({ name: "engines", namespace: "llm", scalerMetadata });
  return {
    engines: (metadata) =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(
          path("GetMetrics"),
          encode("GetMetricsRequest"),
          decode<{ metricValues: { metricValueFloat: number }[] }>("GetMetricsResponse"),
          { scaledObjectRef: ref(metadata), metricName: "espalier-engines" },
          (error, answer) => (error ? reject(error) : resolve(answer!.metricValues[0]!.metricValueFloat)),
        );
      }),
    watch(metadata) {
      const states: boolean[] = [];
      const stream = client.makeServerStreamRequest(
        path("StreamIsActive"),
        encode("ScaledObjectRef"),
        decode<{ result: boolean }>("IsActiveResponse"),
        ref(metadata),
      );
      stream.on("data", ({ result }: { result: boolean }) => states.push(result));
      // The router ends it, at the end of the test.
      stream.on("error", () => {});
      return states;
    },
    close: () => client.close(),
  };
}
