import { EspalierError } from "@espalier/core";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { Client, credentials, status } from "@grpc/grpc-js";
import protobuf from "protobufjs";
import { afterEach, expect, test } from "vitest";
import { createScalerServer, scalerMetric } from "../../src/grpc/external-scaler.ts";

/** KEDA's own definition, as its generated client has it. */
const { root } = protobuf.parse(`syntax = "proto3";
package externalscaler;
message ScaledObjectRef { string name = 1; string namespace = 2; map<string, string> scalerMetadata = 3; }
message IsActiveResponse { bool result = 1; }
message GetMetricSpecResponse { repeated MetricSpec metricSpecs = 1; }
message MetricSpec { string metricName = 1; int64 targetSize = 2; double targetSizeFloat = 3; }
message GetMetricsRequest { ScaledObjectRef scaledObjectRef = 1; string metricName = 2; }
message GetMetricsResponse { repeated MetricValue metricValues = 1; }
message MetricValue { string metricName = 1; int64 metricValue = 2; double metricValueFloat = 3; }
`);

const stops: (() => unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

const encode = (name: string) => (message: object) =>
  Buffer.from(root.lookupType(`externalscaler.${name}`).encode(message).finish());
const decode = (name: string) => (bytes: Buffer) => {
  const type = root.lookupType(`externalscaler.${name}`);
  return type.toObject(type.decode(bytes), { longs: Number }) as Record<string, unknown>;
};

async function scaler() {
  const engines = new Map<string, number>();
  const time = createVirtualTime();
  const server = createScalerServer({
    ...{ host: "127.0.0.1", port: 0, tls: undefined, scheduler: time.scheduler },
    desired({ model }) {
      if (!model) throw new EspalierError("invalid_value", "no model");
      return engines.get(model) ?? 0;
    },
  });
  await server.start();
  stops.push(() => server.stop());
  const client = new Client(server.address, credentials.createInsecure());
  stops.push(() => client.close());
  const path = (method: string): string => `/externalscaler.ExternalScaler/${method}`;
  const ask = (method: string, request: string, response: string, message: object) =>
    new Promise<Record<string, unknown>>((resolve, reject) => {
      client.makeUnaryRequest(path(method), encode(request), decode(response), message, (error, answer) =>
        error ? reject(error) : resolve(answer!),
      );
    });
  const watch = (message: object) => {
    const seen: unknown[] = [];
    const stream = client.makeServerStreamRequest(
      path("StreamIsActive"),
      encode("ScaledObjectRef"),
      decode("IsActiveResponse"),
      message,
    );
    stream.on("error", (error: { code?: number }) => seen.push(error.code));
    stream.on("data", ({ result = false }) => seen.push(result));
    return { seen, stream };
  };
  return { engines, time, ask, watch };
}

const ref = (metadata: object) => ({ name: "engines", namespace: "llm", scalerMetadata: metadata });

test("KEDA's calls: active or not, the target of one engine for each replica, and the engines", async () => {
  const { engines, ask } = await scaler();
  const isActive = () => ask("IsActive", "ScaledObjectRef", "IsActiveResponse", ref({ model: "m" }));
  expect((await isActive()).result ?? false).toBe(false);
  engines.set("m", 3);
  expect((await isActive()).result).toBe(true);
  const spec = await ask("GetMetricSpec", "ScaledObjectRef", "GetMetricSpecResponse", ref({ model: "m" }));
  expect(spec.metricSpecs).toEqual([{ metricName: scalerMetric, targetSize: 1, targetSizeFloat: 1 }]);
  const metrics = { scaledObjectRef: ref({ model: "m" }), metricName: scalerMetric };
  const values = await ask("GetMetrics", "GetMetricsRequest", "GetMetricsResponse", metrics);
  expect(values.metricValues).toEqual([{ metricName: scalerMetric, metricValue: 3, metricValueFloat: 3 }]);
});

test("metadata without a model are an error that says so", async () => {
  const { ask, watch } = await scaler();
  await expect(ask("GetMetricSpec", "ScaledObjectRef", "GetMetricSpecResponse", ref({}))).rejects.toMatchObject({
    code: status.INVALID_ARGUMENT,
    details: "no model",
  });
  await expect(ask("GetMetrics", "GetMetricsRequest", "GetMetricsResponse", {})).rejects.toMatchObject({
    code: status.INVALID_ARGUMENT,
  });
  const { seen } = watch(ref({}));
  await waitFor(() => seen.length > 0, { what: "the stream's end" });
  expect(seen).toEqual([status.INVALID_ARGUMENT]);
  // A method that only newer releases of KEDA have, and do without.
  await expect(ask("StreamMetricSpec", "ScaledObjectRef", "GetMetricSpecResponse", ref({}))).rejects.toMatchObject({
    code: status.UNIMPLEMENTED,
  });
});

test("a stream tells the state at once and each change, and ends with its client", async () => {
  const { engines, time, watch } = await scaler();
  const { seen, stream } = watch(ref({ model: "m" }));
  await waitFor(() => seen.length === 1, { what: "the first state" });
  await time.advance(5_000);
  engines.set("m", 2);
  await time.advance(1_000);
  await waitFor(() => seen.length === 2, { what: "the change" });
  engines.set("m", 4);
  await time.advance(1_000);
  engines.set("m", 0);
  await time.advance(1_000);
  await waitFor(() => seen.length === 3, { what: "the end of the load" });
  expect(seen).toEqual([false, true, false]);
  stream.cancel();
  await waitFor(() => seen.length === 4, { what: "the cancelled stream" });
  expect(seen.at(-1)).toBe(status.CANCELLED);
  engines.set("m", 1);
  await time.advance(2_000);
  expect(seen).toHaveLength(4);
});
