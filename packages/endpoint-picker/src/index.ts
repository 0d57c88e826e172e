/**
 * Envoy's external processing protocol (`ext_proc`), by which gateways ask an endpoint picker where a request goes: a gRPC
 * server, and the order of messages for one HTTP request. It chooses nothing: `server` follows each exchange.
 */

export {
  destinationKey,
  type Exchange,
  type ExchangeEnd,
  type ExchangeOwner,
  type RequestHead,
  type Route,
} from "./exchange.ts";
export type { GrpcTls } from "./grpc-server.ts";
export {
  type BodyMode,
  bodyModes,
  type HeaderValue,
  type ProcessingRequest,
  type ProcessingResponse,
  servingStatus,
} from "./messages.ts";
export { createPickerServer, type PickerServer, type PickerServerOptions } from "./picker-server.ts";
