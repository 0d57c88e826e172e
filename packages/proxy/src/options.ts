export interface TlsOptions {
  /** Certificates to trust, PEM, instead of the system's. */
  readonly ca?: string;
  /** Our own certificate and key, PEM, for engines that ask for them. */
  readonly cert?: string;
  readonly key?: string;
  /** Name to expect in the engine's certificate, where the address does not say it. */
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

/** What connections are opened with from now on. */
export interface CurrentTls {
  readonly current: TlsOptions;
}

export interface ProxyOptions {
  /** From the dial to an open connection. */
  readonly connectTimeoutMs: number;
  /** From the start of an attempt to the first byte of the engine's body. A long prefill must fit. */
  readonly headersTimeoutMs: number;
  /** Between two chunks of a body. */
  readonly idleTimeoutMs: number;
  /** How long a client may leave a full buffer unread before it counts as gone. */
  readonly clientWriteTimeoutMs: number;
  readonly maxConnectionsPerEngine: number;
  /** Requests that may wait for a connection of one engine. Beyond, the next engine is tried. */
  readonly maxQueuedPerEngine: number;
  /** How long an unused connection stays open, unless the engine names a time. uvicorn closes its own after 5 s. */
  readonly keepAliveTimeoutMs: number;
  readonly tls: TlsOptions;
}

/** What is written of the options; the rest is `defaultProxyOptions`. */
export type ProxyOptionsInput = Partial<ProxyOptions>;

export const defaultProxyOptions: ProxyOptions = {
  connectTimeoutMs: 2_000,
  headersTimeoutMs: 600_000,
  idleTimeoutMs: 300_000,
  clientWriteTimeoutMs: 300_000,
  maxConnectionsPerEngine: 1_024,
  maxQueuedPerEngine: 1_024,
  keepAliveTimeoutMs: 4_000,
  tls: {},
};
