import { type Clock, EspalierError, type HttpClient, type Scheduler, type Startable } from "@espalier/core";
import { Attempt, type AttemptOwner, type AttemptTerms, type RunningAttempt } from "./attempt.ts";
import type { WireBody } from "./connection.ts";
import { createHttpClient } from "./control-http.ts";
import { createDeadlines } from "./deadlines.ts";
import { withUpstreamHeaders } from "./headers.ts";
import { defaultProxyOptions, type ProxyOptionsInput, type TlsOptions } from "./options.ts";
import { type SideCall, type SideRequest, sendSideRequest, type Upstream } from "./side-request.ts";
import { type Tunnel, UpgradeAttempt } from "./upgrade-attempt.ts";
import { createUpstreamPools } from "./upstream-pools.ts";

/** Per address, for control traffic and for lookups on behalf of clients. */
const controlConnections = 4;
const controlQueue = 64;

export interface ProxyDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly options?: ProxyOptionsInput;
}

/** One request to one engine. */
export interface AttemptRequest extends AttemptTerms {
  readonly upstream: Upstream;
  readonly method: string;
  /** With the query; begins with a slash. */
  readonly path: string;
  /** From `requestHeaders`. */
  readonly headers: readonly string[];
  readonly body: WireBody;
}

/** Sends requests to engines. Time limits are enforced between `start` and `stop`. */
export interface Proxy extends Startable {
  /**
   * Creates an attempt; its `start` sends it.
   *
   * @throws EspalierError `upstream_connect_failed` when the upstream's URL is not an http or https one
   */
  attempt(owner: AttemptOwner, request: AttemptRequest): RunningAttempt;
  /**
   * Creates an attempt to have an engine take over a client's connection as a WebSocket; its `start` sends it.
   *
   * @throws EspalierError as `attempt` does
   */
  upgrade(owner: AttemptOwner, request: AttemptRequest, tunnel: Tunnel): RunningAttempt;
  /**
   * Sends a side request to one engine, without retries. It ends with the proxy at the latest.
   */
  sendSide(request: SideRequest): SideCall;
  /** For control traffic, over connections separate from those of attempts. */
  readonly httpClient: HttpClient;
  /** As `httpClient`, for lookups on behalf of clients, so that health checks do not queue behind them. */
  readonly lookupClient: HttpClient;
  /** Forgets a removed engine: running requests may finish, idle connections close now. */
  drop(url: string): void;
  /** Replaces the TLS options for new connections; open ones stay. */
  setTls(tls: TlsOptions): void;
  /** Ends every running attempt with `draining` and closes every connection, without waiting. */
  stop(): Promise<void>;
}

/** Builds the proxy; nothing is opened before the first request. */
export function createProxy(deps: ProxyDeps): Proxy {
  const options = { ...defaultProxyOptions, ...deps.options };
  const { engineKeepAliveMs: keepAliveTimeoutMs } = options;
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

  return {
    attempt(owner, request) {
      const pool = pools.of(request.upstream.url);
      const { method, path, body } = request;
      const headers = withUpstreamHeaders(request.headers, request.upstream);
      const wire = { method, path: pool.pathPrefix + path, headers, body };
      return new Attempt(owner, pool, wire, deadlines, options, request);
    },
    upgrade(owner, request, tunnel) {
      const pool = pools.of(request.upstream.url);
      const headers = withUpstreamHeaders(request.headers, request.upstream);
      const path = pool.pathPrefix + request.path;
      return new UpgradeAttempt(owner, { pool, path, headers, tunnel }, deadlines, options, request);
    },
    sendSide: (request) => sendSideRequest({ pools, deadlines, options }, request),
    httpClient: createHttpClient(controlPools, deps.scheduler, deps.clock),
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
