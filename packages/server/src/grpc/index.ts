/**
 * gRPC services that Kubernetes asks: Envoy's external processing protocol (`ext_proc`), by which gateways ask an endpoint
 * picker where a request goes, and KEDA's external scaler, by which an autoscaler asks how many engines are wanted. One gRPC
 * server on `node:http2` carries both. It chooses nothing: `server` does.
 */

export { createScalerServer, type ScalerServer } from "./external-scaler.ts";
export {
  destinationKey,
  type GatewayStream,
  type RequestHead,
  type StreamEnd,
  type StreamOwner,
} from "./gateway-stream.ts";
export type { GrpcTls } from "./grpc-server.ts";
export {
  type BodyMode,
  bodyModes,
  type HeaderValue,
  type ProcessingRequest,
  type ProcessingResponse,
  servingStatus,
} from "./messages.ts";
export { createPickerServer } from "./picker-server.ts";
