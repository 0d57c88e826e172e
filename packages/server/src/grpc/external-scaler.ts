import { type Cancel, EspalierError, type Scheduler, type Startable } from "@espalier/core";
import { createGrpcServer, type GrpcCall, type GrpcCallHandler, type GrpcTls, guarded } from "./grpc-server.ts";
import {
  type Codec,
  getMetricSpecResponse,
  getMetricsRequest,
  getMetricsResponse,
  isActiveResponse,
  type ScaledObjectRef,
  scaledObjectRef,
} from "./messages.ts";

/** KEDA's external scaler: tells the autoscaler of Kubernetes how many engines a model needs. */
export interface ScalerServer extends Startable {
  /** `host:port`; empty before the start. */
  readonly address: string;
  /** Takes new certificates for new connections; does nothing without TLS. */
  setTls(tls: GrpcTls): void;
}

export interface ScalerServerOptions {
  readonly host: string;
  /** 0 selects a free port. */
  readonly port: number;
  readonly tls: GrpcTls | undefined;
  readonly scheduler: Scheduler;
  /**
   * Engines that are desired, by the metadata of a trigger; 0 for none.
   *
   * @throws EspalierError for metadata that name no model
   */
  readonly desired: (metadata: Readonly<Record<string, string>>) => number;
}

const service = "/externalscaler.ExternalScaler";
/** Name of the metric in the autoscaler. */
export const scalerMetric = "espalier-engines";
/** Largest message of an autoscaler. */
const maxMessageBytes = 65_536;
/** How often streams are sent a change. */
const streamEveryMs = 1_000;

/**
 * `externalscaler.ExternalScaler` of KEDA (`pkg/scalers/externalscaler/externalscaler.proto`). The target is one engine
 * for each replica, so that with the metric type `AverageValue`, KEDA's default, the metric is the number of replicas.
 *
 * `start` throws EspalierError `listen_failed` when the address is unavailable.
 */
export function createScalerServer({ desired, scheduler, ...listener }: ScalerServerOptions): ScalerServer {
  const isActive = ({ scalerMetadata = {} }: ScaledObjectRef): boolean => desired(scalerMetadata) > 0;
  const streams = new Set<() => void>();
  const server = createGrpcServer({
    ...listener,
    setting: "scale.port",
    maxMessageBytes,
    methods: {
      [`${service}/IsActive`]: unary(scaledObjectRef, isActiveResponse, (ref) => ({ result: isActive(ref) })),
      [`${service}/GetMetricSpec`]: unary(scaledObjectRef, getMetricSpecResponse, ({ scalerMetadata = {} }) => {
        // Wrong metadata should fail when a ScaledObject is applied, not at its first metric.
        desired(scalerMetadata);
        return { metricSpecs: [{ metricName: scalerMetric, targetSize: 1, targetSizeFloat: 1 }] };
      }),
      [`${service}/GetMetrics`]: unary(getMetricsRequest, getMetricsResponse, ({ scaledObjectRef: ref }) => {
        const engines = desired(ref?.scalerMetadata ?? {});
        return { metricValues: [{ metricName: scalerMetric, metricValue: engines, metricValueFloat: engines }] };
      }),
      [`${service}/StreamIsActive`]: (call) => stream(call, isActive, streams),
    },
  });
  let cancel: Cancel = () => {};
  return {
    get address() {
      return server.address;
    },
    setTls: server.setTls,
    async start() {
      await server.start();
      cancel = scheduler.every(streamEveryMs, () => {
        for (const tell of streams) tell();
      });
    },
    async stop() {
      cancel();
      await server.stop();
    },
  };
}

/** A method that answers one message with one. */
function unary<Request, Response>(
  request: Codec<Request>,
  response: Codec<Response>,
  answer: (message: Request) => Response,
): (call: GrpcCall) => GrpcCallHandler {
  return (call) => ({
    message: (bytes) =>
      guarded(call, () => {
        call.send(response.encode(answer(request.decode(bytes))));
        call.end();
      }),
    drained() {},
    closed() {},
  });
}

/** Tells whether an object is active, at once and after each change, until its client is gone. */
function stream(
  call: GrpcCall,
  isActive: (ref: ScaledObjectRef) => boolean,
  streams: Set<() => void>,
): GrpcCallHandler {
  let isBegun = false;
  const begin = (ref: ScaledObjectRef): void => {
    let sent: boolean | undefined;
    const tell = (): void => {
      guarded(call, () => {
        const now = isActive(ref);
        if (now !== sent) call.send(isActiveResponse.encode({ result: now }));
        sent = now;
      });
      if (call.isOpen) streams.add(tell);
      else streams.delete(tell);
    };
    tell();
  };
  return {
    message: (bytes) =>
      guarded(call, () => {
        if (isBegun) throw new EspalierError("bad_request", "A stream serves one object.");
        isBegun = true;
        begin(scaledObjectRef.decode(bytes));
      }),
    drained() {},
    // A client that has sent its one message has ended its side, and goes on listening.
    closed() {},
  };
}
