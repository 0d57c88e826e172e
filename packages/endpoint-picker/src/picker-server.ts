import { EspalierError, type Logger, type Startable, systemAfterPoll } from "@espalier/common";
import { type handleUnaryCall, Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";
import { Exchange, type ExchangeOwner, type ExchangeStream } from "./exchange.ts";
import {
  healthCheckRequest,
  healthCheckResponse,
  type ProcessingRequest,
  type ProcessingResponse,
  processingRequest,
  processingResponse,
  servingStatus,
} from "./messages.ts";
import { createPickerCredentials, type PickerTls } from "./picker-tls.ts";

/** A gRPC server that gateways ask where requests go, and one for health checks. */
export interface PickerServer extends Startable {
  /** `host:port` of the picker, and of its health checks; empty before the start. */
  readonly address: string;
  readonly healthAddress: string;
  /** Takes new certificates for new connections; does nothing without TLS. */
  setTls(tls: PickerTls): void;
  /** Accepts no new connections, and asks gateways to use others. Open exchanges go on. */
  drain(): void;
}

export interface PickerServerOptions {
  readonly host: string;
  /** 0 selects a free port. */
  readonly port: number;
  readonly healthPort: number;
  readonly tls: PickerTls | undefined;
  /** Longest message of a gateway in bytes: a whole body, when the gateway buffers it. */
  readonly maxMessageBytes: number;
  /** Whether requests would find an engine now. */
  readonly isReady: () => boolean;
  /** Called for each HTTP request; returns who follows it. */
  readonly onExchange: (exchange: Exchange) => ExchangeOwner;
  readonly logger: Logger;
}

export const healthPath = "/grpc.health.v1.Health/Check";
const processorName = "envoy.service.ext_proc.v3.ExternalProcessor";
export const processPath = `/${processorName}/Process`;
/** Services whose health is this router's readiness. The last one is what GIE's manifests ask for. */
const readyServices = new Set(["", "readiness", processorName, "inference-extension"]);

/** `start` throws EspalierError `listen_failed` when an address is unavailable. */
export function createPickerServer(options: PickerServerOptions): PickerServer {
  const { host, port, healthPort, isReady, maxMessageBytes } = options;
  const credentials = options.tls && createPickerCredentials(options.tls);
  const server = new Server({
    "grpc.max_receive_message_length": maxMessageBytes,
    "grpc.max_send_message_length": -1,
  });
  const health = new Server();
  server.addService(processor, { process: (call: Call) => serve(call, options) });
  for (const one of [server, health]) one.addService(healthService, { check: checkHealth(isReady) });
  let address = "";
  let healthAddress = "";
  return {
    get address() {
      return address;
    },
    get healthAddress() {
      return healthAddress;
    },
    async start() {
      healthAddress = await bind(health, host, healthPort, ServerCredentials.createInsecure());
      address = await bind(server, host, port, credentials?.server ?? ServerCredentials.createInsecure());
    },
    async stop() {
      server.forceShutdown();
      health.forceShutdown();
    },
    setTls: (tls) => credentials?.set(tls),
    drain() {
      if (address !== "") server.unbind(address);
      server.tryShutdown(() => {});
    },
  };
}

type Call = ServerDuplexStream<ProcessingRequest, ProcessingResponse>;

const processor = {
  process: {
    path: processPath,
    requestStream: true,
    responseStream: true,
    requestSerialize: processingRequest.encode,
    requestDeserialize: processingRequest.decode,
    responseSerialize: processingResponse.encode,
    responseDeserialize: processingResponse.decode,
  },
} as const;

const healthService = {
  check: {
    path: healthPath,
    requestStream: false,
    responseStream: false,
    requestSerialize: healthCheckRequest.encode,
    requestDeserialize: healthCheckRequest.decode,
    responseSerialize: healthCheckResponse.encode,
    responseDeserialize: healthCheckResponse.decode,
  },
} as const;

function checkHealth(
  isReady: () => boolean,
): handleUnaryCall<{ readonly service?: string }, { readonly status: number }> {
  return ({ request: { service = "" } }, answer) => {
    if (service === "liveness") answer(null, { status: servingStatus.serving });
    else if (readyServices.has(service))
      answer(null, { status: isReady() ? servingStatus.serving : servingStatus.notServing });
    else answer({ code: status.NOT_FOUND, details: `There is no service ${JSON.stringify(service)}.` });
  };
}

function serve(call: Call, { onExchange, logger }: PickerServerOptions): void {
  const exchange = new Exchange(streamOf(call));
  const owner = onExchange(exchange);
  exchange.follow(owner);
  call.on("data", (message: ProcessingRequest) => {
    try {
      exchange.accept(message);
    } catch (thrown) {
      logger.warn("an exchange with a gateway failed", { error: thrown });
      call.emit("error", {
        code: thrown instanceof EspalierError ? status.INVALID_ARGUMENT : status.INTERNAL,
        details: thrown instanceof Error ? thrown.message : String(thrown),
      });
      exchange.close(false);
    }
  });
  call.on("drain", () => owner.drained());
  call.on("end", () => {
    // A reset ends the stream for its reader first, and is reported in the same turn of the event loop.
    void systemAfterPoll().then(() => {
      exchange.close(false);
      call.end();
    });
  });
  call.on("cancelled", () => exchange.close(true));
  call.on("error", () => exchange.close(false));
}

function streamOf(call: Call): ExchangeStream {
  return {
    write: (message) => call.write(message),
    end: () => call.end(),
    fail: (message) => void call.emit("error", { code: status.ABORTED, details: message }),
    pause: () => void call.pause(),
    resume: () => void call.resume(),
  };
}

async function bind(server: Server, host: string, port: number, credentials: ServerCredentials): Promise<string> {
  const name = host.includes(":") ? `[${host}]` : host;
  const bound = await new Promise<number>((resolve, reject) => {
    server.bindAsync(`${name}:${port}`, credentials, (error, at) => {
      if (!error) resolve(at);
      else
        reject(
          new EspalierError("listen_failed", `Cannot listen on ${host}:${port}: ${error.message}`, { cause: error }),
        );
    });
  });
  return `${name}:${bound}`;
}
