import type { Logger, Startable } from "@espalier/core";
import { GatewayStream, type StreamOwner } from "./gateway-stream.ts";
import {
  createGrpcServer,
  type GrpcCall,
  type GrpcCallHandler,
  type GrpcTls,
  grpcStatus,
  guarded,
} from "./grpc-server.ts";
import {
  healthCheckRequest,
  healthCheckResponse,
  processingRequest,
  processingResponse,
  servingStatus,
} from "./messages.ts";

/** A gRPC server that gateways ask where requests go, and one for health checks. */
export interface PickerServer extends Startable {
  /** `host:port` of the picker, and of its health checks; empty before the start. */
  readonly address: string;
  readonly healthAddress: string;
  /** Takes new certificates for new connections; does nothing without TLS. */
  setTls(tls: GrpcTls): void;
  /** Accepts no new connections, and asks gateways to use others. Open exchanges go on. */
  drain(): void;
}

export interface PickerServerOptions {
  readonly host: string;
  /** 0 selects a free port. */
  readonly port: number;
  readonly healthPort: number;
  readonly tls: GrpcTls | undefined;
  /** Longest message of a gateway in bytes: a whole body, when the gateway buffers it. */
  readonly maxMessageBytes: number;
  /** Whether requests would find an engine now. */
  readonly isReady: () => boolean;
  /** Called for each HTTP request; returns who follows it. */
  readonly onStream: (stream: GatewayStream) => StreamOwner;
  readonly logger: Logger;
}

export const healthPath = "/grpc.health.v1.Health/Check";
const processorName = "envoy.service.ext_proc.v3.ExternalProcessor";
export const processPath = `/${processorName}/Process`;
/** Services whose health is this router's readiness. The last one is what GIE's manifests ask for. */
const readyServices = new Set(["", "readiness", processorName, "inference-extension"]);
/** Largest message of a health check. */
const maxHealthBytes = 4_096;

/** `start` throws EspalierError `listen_failed` when an address is unavailable. */
export function createPickerServer(options: PickerServerOptions): PickerServer {
  const { host, port, healthPort, tls, isReady, maxMessageBytes } = options;
  const health = (call: GrpcCall): GrpcCallHandler => answerHealth(call, isReady);
  const server = createGrpcServer({
    ...{ setting: "endpoint-picker.port", host, port, tls, maxMessageBytes },
    methods: { [processPath]: (call) => serve(call, options), [healthPath]: health },
  });
  const healthServer = createGrpcServer({
    ...{
      setting: "endpoint-picker.health-port",
      host,
      port: healthPort,
      tls: undefined,
      maxMessageBytes: maxHealthBytes,
    },
    methods: { [healthPath]: health },
  });
  return {
    get address() {
      return server.address;
    },
    get healthAddress() {
      return healthServer.address;
    },
    async start() {
      await healthServer.start();
      await server.start();
    },
    async stop() {
      await Promise.all([server.stop(), healthServer.stop()]);
    },
    setTls: server.setTls,
    drain: server.drain,
  };
}

/** `grpc.health.v1.Health/Check`. */
function answerHealth(call: GrpcCall, isReady: () => boolean): GrpcCallHandler {
  const answer = (bytes: Buffer): void => {
    const { service = "" } = healthCheckRequest.decode(bytes);
    const isKnown = service === "liveness" || readyServices.has(service);
    if (!isKnown) {
      call.end(grpcStatus.notFound, `Unknown service ${JSON.stringify(service)}.`);
      return;
    }
    const status = service === "liveness" || isReady() ? servingStatus.serving : servingStatus.notServing;
    call.send(healthCheckResponse.encode({ status }));
    call.end();
  };
  return { message: (bytes) => guarded(call, () => answer(bytes)), drained() {}, closed() {} };
}

/** `ExternalProcessor/Process`. */
function serve(call: GrpcCall, { onStream, logger }: PickerServerOptions): GrpcCallHandler {
  const stream = new GatewayStream({
    write: (message) => call.send(processingResponse.encode(message)),
    end: () => call.end(),
    fail: (message) => call.end(grpcStatus.aborted, message),
    pause: call.pause,
    resume: call.resume,
  });
  const owner = onStream(stream);
  stream.follow(owner);
  return {
    message(bytes) {
      const failure = guarded(call, () => stream.accept(processingRequest.decode(bytes)));
      if (!failure) return;
      logger.warn("gateway stream failed", { error: failure });
      stream.close(false);
    },
    drained: () => owner.drained(),
    closed(isReset) {
      stream.close(isReset);
      call.end();
    },
  };
}
