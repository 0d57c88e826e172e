import { Client, type ClientDuplexStream, credentials } from "@grpc/grpc-js";
import {
  healthCheckRequest,
  healthCheckResponse,
  type ProcessingRequest,
  type ProcessingResponse,
  processingRequest,
  processingResponse,
} from "./messages.ts";
import { healthPath, processPath } from "./picker-server.ts";

/** One exchange, seen from the gateway. */
export interface GatewayStream {
  send(message: ProcessingRequest): void;
  /**
   * The next message of the picker; undefined when it has ended the stream.
   *
   * @throws Error when the picker ended it with an error
   */
  receive(): Promise<ProcessingResponse | undefined>;
  /** Closes the gateway's side, as Envoy does when its client goes away. */
  end(): void;
  /** Resets the stream, as Envoy does when it has nothing more to show. */
  cancel(): void;
}

/** What a gateway does: asks a picker over one connection. For benches and tests. */
export interface GatewayClient {
  open(): GatewayStream;
  /** A gRPC health check. @returns the serving status; undefined for an unknown service */
  health(service: string): Promise<number | undefined>;
  close(): void;
}

/**
 * Connects to a picker when the first stream is opened.
 *
 * @param ca PEM text of the authority of the picker's certificate; undefined for plain text
 * @param own certificate and key to show to the picker
 */
export function connectGateway(
  address: string,
  ca?: string,
  own?: { readonly cert: string; readonly key: string },
): GatewayClient {
  const bytesOf = (text: string | undefined): Buffer | null => (text === undefined ? null : Buffer.from(text));
  const secure = ca !== undefined && credentials.createSsl(bytesOf(ca), bytesOf(own?.key), bytesOf(own?.cert));
  const client = new Client(address, secure || credentials.createInsecure(), {
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
    "grpc.use_local_subchannel_pool": 1,
  });
  return {
    open: () =>
      streamOf(client.makeBidiStreamRequest(processPath, processingRequest.encode, processingResponse.decode)),
    health: (service) =>
      new Promise((resolve, reject) => {
        const { encode } = healthCheckRequest;
        client.makeUnaryRequest(healthPath, encode, healthCheckResponse.decode, { service }, (error, answer) => {
          if (answer) resolve(answer.status);
          else if (error && "code" in error && error.code === notFound) resolve(undefined);
          else reject(error ?? new Error("no answer"));
        });
      }),
    close: () => client.close(),
  };
}

const notFound = 5;

function streamOf(call: ClientDuplexStream<ProcessingRequest, ProcessingResponse>): GatewayStream {
  const arrived: (ProcessingResponse | undefined | Error)[] = [];
  let wake: () => void = () => {};
  const put = (item: ProcessingResponse | undefined | Error): void => {
    arrived.push(item);
    wake();
  };
  call.on("data", put);
  call.on("end", () => put(undefined));
  call.on("error", put);
  return {
    send: (message) => void call.write(message),
    async receive() {
      while (arrived.length === 0) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      const next = arrived.shift();
      if (next instanceof Error) throw next;
      return next;
    },
    end: () => call.end(),
    cancel: () => call.cancel(),
  };
}
