import type { HttpClient, HttpStreamClient, Scheduler } from "@espalier/common";
import { createHttpClient } from "./http-client.ts";
import { createHttpStreamClient } from "./http-stream.ts";
import type { TlsOptions } from "./options.ts";
import { createUpstreamPools } from "./upstream-pools.ts";

/** Per address: answers that are read as they come keep theirs. */
const maxConnections = 128;
const maxQueued = 128;
const keepAliveTimeoutMs = 4_000;

export interface ControlHttpDeps {
  readonly scheduler: Scheduler;
  readonly tls?: TlsOptions;
}

/** Control traffic to servers that are no engines, with TLS options and connections of its own. */
export interface ControlHttp {
  readonly request: HttpClient;
  readonly stream: HttpStreamClient;
  /** Closes every connection as it falls idle. */
  close(): void;
}

/** Nothing is opened before the first request. */
export function createControlHttp({ scheduler, tls = {} }: ControlHttpDeps): ControlHttp {
  const pools = createUpstreamPools({ maxConnections, maxQueued, keepAliveTimeoutMs, tls: { current: tls } });
  return {
    request: createHttpClient(pools, scheduler),
    stream: createHttpStreamClient(pools, scheduler),
    close: () => pools.close(),
  };
}
