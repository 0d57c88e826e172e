/**
 * Connections to engines over undici, and single attempts at requests: streaming with end-to-end backpressure and time limits.
 * Retries and the client's answer are up to the owner of an attempt.
 */
export type { AttemptOwner, ResendGuard, RunningAttempt } from "./attempt.ts";
export { PiecedBody, type WireBody, wireBody } from "./connection.ts";
export { createControlHttp } from "./control-http.ts";
export type { FailureKind } from "./failure.ts";
export { answerHeaders, dropHeader, isNamed, requestHeaders, retryAfterMs } from "./headers.ts";
export { defaultProxyOptions, type ProxyOptionsInput, type TlsOptions } from "./options.ts";
export { type AttemptRequest, createProxy, type Proxy } from "./proxy.ts";
export type { SideCall, SideOutcome, SideRequest, Upstream } from "./side-request.ts";
export { maxHeldBytes, StreamedBody } from "./streamed-body.ts";
export type { Tunnel } from "./upgrade-attempt.ts";
