/**
 * Connections to engines over undici, and one attempt at one of them: streaming with backpressure from end to end, within
 * limits in time. What follows a failed attempt, and what the client gets, is its owner's affair.
 */
export type { Attempt, AttemptOwner, ResendGuard } from "./attempt.ts";
export { PiecedBody, type WireBody, wireBody } from "./connection.ts";
export { type ControlHttp, type ControlHttpDeps, createControlHttp } from "./control-http.ts";
export type { FailureKind } from "./failure.ts";
export { answerHeaders, dropHeader, type HeaderSource, requestHeaders, retryAfterMs } from "./headers.ts";
export { defaultProxyOptions, type ProxyOptions, type ProxyOptionsInput, type TlsOptions } from "./options.ts";
export { type AttemptRequest, createProxy, type Proxy, type ProxyDeps } from "./proxy.ts";
export type { SideCall, SideOutcome, SideRequest, Upstream } from "./side-request.ts";
