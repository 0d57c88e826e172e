import {
  type Clock,
  EspalierError,
  type HttpClient,
  type Logger,
  type Meter,
  type Scheduler,
  type Startable,
} from "@espalier/common";
import { createDeadlines } from "./deadlines.ts";
import type { Exchange, ExchangeOutcome } from "./exchange.ts";
import { Forwarding } from "./forward.ts";
import type { ForwardContext } from "./forward-context.ts";
import { createHttpClient } from "./http-client.ts";
import { createProxyMetrics } from "./metrics.ts";
import { completeProxyOptions, type ProxyOptionsInput, type TlsOptions } from "./options.ts";
import { createRetryBudget } from "./retry-budget.ts";
import { type SideCall, type SideRequest, sendSideRequest } from "./side-request.ts";
import { createUpstreamPools } from "./upstream-pools.ts";

/** Per address, for control traffic, and for what clients have engines asked. */
const controlConnections = 4;
const controlQueue = 64;

export interface ProxyDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly options?: ProxyOptionsInput;
}

/** Passes requests to engines. Time limits work between `start` and `stop`. */
export interface Proxy extends Startable {
  /**
   * Passes one request to one of the engines that the exchange names, and the answer back.
   *
   * @returns the outcome; it is never rejected
   */
  forward(exchange: Exchange): Promise<ExchangeOutcome>;
  /**
   * Sends one request beside a client's own to one engine. There are no retries, and it counts in no metric; it ends with
   * the proxy at the latest.
   */
  sendBeside(request: SideRequest): SideCall;
  /** For control traffic: its connections are apart from those of `forward`. */
  readonly httpClient: HttpClient;
  /** As `httpClient`, for what clients have engines asked: none of it stands before a health check. */
  readonly lookupClient: HttpClient;
  /** Forgets an engine that left: what runs may finish, its idle connections close now. */
  drop(url: string): void;
  /** Connections from then on use these; those that are open stay. */
  setTls(tls: TlsOptions): void;
  /** Exchanges under way. */
  activeStreams(): number;
  /** Ends every exchange under way with `draining`, and closes every connection. Waits for nothing. */
  stop(): Promise<void>;
}

/** Builds the proxy; nothing is opened before the first request. */
export function createProxy(deps: ProxyDeps): Proxy {
  const options = completeProxyOptions(deps.options ?? {});
  const { keepAliveTimeoutMs } = options;
  const tls = { current: options.tls };
  const pools = createUpstreamPools({
    maxConnections: options.maxConnectionsPerEngine,
    maxQueued: options.maxQueuedPerEngine,
    keepAliveTimeoutMs,
    tls,
  });
  const control = { maxConnections: controlConnections, maxQueued: controlQueue, keepAliveTimeoutMs, tls };
  const controlPools = createUpstreamPools(control);
  const lookupPools = createUpstreamPools(control);
  const deadlines = createDeadlines(deps.clock, deps.scheduler);
  const context: ForwardContext = {
    options,
    retryStatuses: new Set([429, ...options.retry.retryStatuses]),
    pools,
    budget: createRetryBudget(deps.clock, options.retry),
    deadlines,
    metrics: createProxyMetrics(deps.meter),
    logger: deps.logger,
  };
  let active = 0;

  return {
    forward(exchange) {
      return new Promise((resolve) => {
        active += 1;
        const settled = (outcome: ExchangeOutcome): void => {
          active -= 1;
          resolve(outcome);
        };
        new Forwarding(context, exchange, settled).start();
      });
    },
    sendBeside: (request) => sendSideRequest(context, request),
    httpClient: createHttpClient(controlPools, deps.scheduler),
    lookupClient: createHttpClient(lookupPools, deps.scheduler),
    drop(url) {
      const origin = URL.canParse(url) ? new URL(url).origin : url;
      pools.drop(url);
      controlPools.drop(origin);
      lookupPools.drop(origin);
    },
    setTls(next) {
      tls.current = next;
    },
    activeStreams: () => active,
    async start() {
      deadlines.start();
    },
    async stop() {
      deadlines.stop();
      deadlines.abortAll(new EspalierError("draining"));
      pools.close();
      controlPools.close();
      lookupPools.close();
    },
  };
}
