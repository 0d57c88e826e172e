import type { CompiledConfig } from "@espalier/config";
import type { ProxyDeps } from "@espalier/proxy";
import type { FleetOptionsInput } from "@espalier/workers";
import type { ListenerSettings } from "./data-plane/data-plane-app.ts";
import type { DataPlaneSettings } from "./data-plane/router-context.ts";
import { readEngineTls, readTls } from "./lifecycle/tls-material.ts";

/** The part of a configuration that the proxy reads. */
export function proxyOptions({ timeouts, limits, engineTls }: CompiledConfig): NonNullable<ProxyDeps["options"]> {
  return {
    connectTimeoutMs: timeouts.connectMs,
    headersTimeoutMs: timeouts.firstByteMs,
    idleTimeoutMs: timeouts.idleMs,
    clientWriteTimeoutMs: timeouts.clientWriteMs,
    keepAliveTimeoutMs: timeouts.engineKeepAliveMs,
    maxConnectionsPerEngine: limits.maxConnectionsPerEngine,
    maxQueuedPerEngine: limits.maxQueuedPerEngine,
    tls: readEngineTls(engineTls),
  };
}

/** The part of a configuration that the fleet reads. */
export function fleetOptions({ health, scrape, breaker }: CompiledConfig): FleetOptionsInput {
  const { intervalMs, ...others } = scrape;
  return { health, scrape: intervalMs === undefined ? others : { ...others, intervalMs }, breaker };
}

/** The part of a configuration that the data plane's routes read. */
export function dataPlaneSettings(config: CompiledConfig): DataPlaneSettings {
  return {
    apiKeys: config.apiKeys,
    corsOrigins: config.corsOrigins,
    sessionKeyLadder: config.sessionKey,
    maxNesting: config.limits.maxNesting,
    maxConcurrentRequests: config.limits.maxConcurrentRequests,
    maxBodyBytesInFlight: config.limits.maxBodyBytesInFlight,
    injectUsage: config.injectUsage,
    answerMs: config.timeouts.answerMs,
    trustTransferFields: config.trustTransferFields,
    forwardPaths: config.forwardPaths,
  };
}

/** The part of a configuration that the data plane's listener reads. */
export function listenerSettings({ listen, limits, timeouts }: CompiledConfig): ListenerSettings {
  return {
    maxBodyBytes: limits.maxBodyBytes,
    maxHeaderBytes: limits.maxHeaderBytes,
    requestReceiveMs: timeouts.requestReceiveMs,
    keepAliveMs: timeouts.keepAliveMs,
    ...(listen.tls ? { tls: readTls(listen.tls) } : {}),
  };
}
