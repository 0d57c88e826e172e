import { type ClientHttp2Stream, connect, type IncomingHttpHeaders } from "node:http2";
import { framed, grpcStatus, MessageReader } from "./grpc-server.ts";
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
   * @throws Error when the picker ended it with an error, or the connection was lost
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

/** More than any picker sends. */
const maxMessageBytes = 1_073_741_824;

/**
 * Connects to a picker.
 *
 * @param ca PEM text of the authority of the picker's certificate; undefined for plain text
 * @param own certificate and key to show to the picker
 */
export function connectGateway(
  address: string,
  ca?: string,
  own?: { readonly cert: string; readonly key: string },
): GatewayClient {
  const session = ca === undefined ? connect(`http://${address}`) : connect(`https://${address}`, { ca, ...own });
  // Streams learn of it, those that wait for the connection too.
  session.on("error", () => {});
  const request = (path: string): ClientHttp2Stream =>
    session.request({ ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers" });
  return {
    open: () => streamOf(request(processPath)),
    async health(service) {
      const call = callOf(request(healthPath));
      call.send(healthCheckRequest.encode({ service }));
      call.end();
      try {
        const answer = await call.receive();
        return answer && healthCheckResponse.decode(answer).status;
      } catch (error) {
        if (error instanceof GrpcError && error.status === grpcStatus.notFound) return undefined;
        throw error;
      }
    },
    close: () => session.destroy(),
  };
}

function streamOf(stream: ClientHttp2Stream): GatewayStream {
  const call = callOf(stream);
  return {
    send: (message) => call.send(processingRequest.encode(message)),
    async receive() {
      const bytes = await call.receive();
      return bytes && processingResponse.decode(bytes);
    },
    end: call.end,
    cancel: () => void stream.destroy(new Error("cancelled")),
  };
}

class GrpcError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(`${status}: ${message}`);
    this.status = status;
  }
}

/** One call: messages, and the end that the trailers tell. */
function callOf(stream: ClientHttp2Stream) {
  const arrived: (Buffer | undefined | Error)[] = [];
  let isOver = false;
  let wake: () => void = () => {};
  const put = (item: Buffer | undefined | Error): void => {
    if (isOver) return;
    isOver = !Buffer.isBuffer(item);
    arrived.push(item);
    wake();
  };
  const finish = ({ "grpc-status": status = "0", "grpc-message": message = "" }: IncomingHttpHeaders): void => {
    if (String(status) === "0") put(undefined);
    else put(new GrpcError(Number(status), decodeURIComponent(String(message))));
  };
  const messages = new MessageReader(maxMessageBytes, put);
  stream.on("data", (chunk: Buffer) => void messages.push(chunk));
  stream.on("response", (headers) => {
    if (headers["grpc-status"] !== undefined) finish(headers);
  });
  stream.on("trailers", finish);
  stream.on("error", (error) => put(error instanceof Error ? error : new Error(String(error))));
  stream.on("close", () => put(new Error("the connection ended")));
  return {
    send: (message: Buffer): void => void stream.write(framed(message)),
    end: (): void => void stream.end(),
    async receive(): Promise<Buffer | undefined> {
      while (arrived.length === 0) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      const next = arrived.shift();
      if (next instanceof Error) throw next;
      return next;
    },
  };
}
