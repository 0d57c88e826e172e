/**
 * Passes one client's request to one of several engines over undici: streaming with backpressure from end to end,
 * limits in time, retries before the first byte inside a budget, and an error frame after it.
 */
export { type ControlHttp, type ControlHttpDeps, createControlHttp } from "./control-http.ts";
export type { BodyFilter, Exchange, ExchangeObserver, ExchangeOutcome, Upstream } from "./exchange.ts";
export type { AttemptFailure, FailureKind } from "./failure.ts";
export {
  defaultProxyOptions,
  type ProxyOptions,
  type ProxyOptionsInput,
  type RetryOptions,
  type TlsOptions,
} from "./options.ts";
export { createProxy, type Proxy, type ProxyDeps } from "./proxy.ts";
export { RequestCopies } from "./request-copies.ts";
export { retryAfterMs } from "./retry-after.ts";
export type { SideCall, SideOutcome, SideRequest } from "./side-request.ts";
