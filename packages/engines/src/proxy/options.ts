export interface TlsOptions {
  /** Certificates to trust, PEM, instead of the system's. */
  readonly ca?: string;
  /** The client certificate and key, PEM, for engines that ask for them. */
  readonly cert?: string;
  readonly key?: string;
  /** Expected name in the engine's certificate, when it differs from the host. */
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

/** TLS options for new connections. */
export interface CurrentTls {
  readonly current: TlsOptions;
}

export interface ProxyOptions {
  /** From the dial to an open connection. */
  readonly connectMs: number;
  /** From the start of an attempt to the first byte of the engine's body. A long prefill must fit. */
  readonly firstByteMs: number;
  /** Between two chunks of a body. */
  readonly idleMs: number;
  /** How long a client may leave a full buffer unread before it counts as gone. */
  readonly clientWriteMs: number;
  /** How long neither side of a realtime connection may send anything. */
  readonly realtimeIdleMs: number;
  readonly maxConnectionsPerEngine: number;
  /** Most requests that wait for a connection to one engine. Beyond it the next engine is tried. */
  readonly maxQueuedPerEngine: number;
  /** How long an idle connection stays open, unless the engine names a time. uvicorn closes its own after 5 s. */
  readonly engineKeepAliveMs: number;
  readonly tls: TlsOptions;
}

/** Options as given; the rest is `defaultProxyOptions`. */
export type ProxyOptionsInput = Partial<ProxyOptions>;

export const defaultProxyOptions: ProxyOptions = {
  connectMs: 2_000,
  firstByteMs: 600_000,
  idleMs: 300_000,
  clientWriteMs: 300_000,
  realtimeIdleMs: 600_000,
  maxConnectionsPerEngine: 1_024,
  maxQueuedPerEngine: 1_024,
  engineKeepAliveMs: 4_000,
  tls: {},
};
