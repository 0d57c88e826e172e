import type { Socket } from "node:net";
import { EspalierError } from "@espalier/core";
import { Connection, createDialer, type Dialer } from "./connection.ts";
import type { CurrentTls } from "./options.ts";

/** A user of a connection. */
export interface ConnectionUser {
  /** Called once when `acquire` returned true, before or after it returns. */
  assigned(connection: Connection): void;
}

interface EnginePoolOptions {
  readonly maxConnections: number;
  readonly maxQueued: number;
  readonly keepAliveTimeoutMs: number;
  readonly tls: CurrentTls;
}

/** The connections to one engine. The most recently used is taken first, so that the others can go idle and close. */
export class EnginePool {
  /** Prefix of every request's path. */
  readonly pathPrefix: string;
  readonly #origin: string;
  readonly #dialer: Dialer;
  readonly #options: EnginePoolOptions;
  readonly #idle: Connection[] = [];
  readonly #waiting = new Set<ConnectionUser>();
  #open = 0;
  #closed = false;

  constructor(url: URL, options: EnginePoolOptions) {
    const secure = url.protocol === "https:";
    const host = url.hostname.startsWith("[") ? url.hostname.slice(1, -1) : url.hostname;
    this.#origin = url.origin;
    this.pathPrefix = url.pathname.replace(/\/+$/, "");
    this.#options = options;
    this.#dialer = createDialer({ secure, host, port: Number(url.port || (secure ? 443 : 80)) }, options.tls);
  }

  /** `host:port`, as the header Host has it. */
  get host(): string {
    return new URL(this.#origin).host;
  }

  /** Opens a socket beside the pool's connections, which its user owns. See `Dialer`. */
  dial(opened: Parameters<Dialer["dial"]>[0]): Socket {
    return this.#dialer.dial(opened);
  }

  get isIdle(): boolean {
    return this.#open === this.#idle.length;
  }

  /**
   * @param prefersNew prefers a new connection over a used one
   * @returns false when every connection is in use and the queue is full, or the pool is closed
   */
  acquire(user: ConnectionUser, prefersNew = false): boolean {
    if (this.#closed) return false;
    const connection = (prefersNew ? this.#openAnother() : undefined) ?? this.#idle.pop() ?? this.#openAnother();
    if (connection) user.assigned(connection);
    else if (this.#waiting.size >= this.#options.maxQueued) return false;
    else this.#waiting.add(user);
    return true;
  }

  /** Stops waiting. */
  forget(user: ConnectionUser): void {
    this.#waiting.delete(user);
  }

  /** Returns a connection after a complete answer. */
  release(connection: Connection): void {
    connection.recycle();
    if (this.#closed) {
      this.discard(connection);
      return;
    }
    const next = this.#takeWaiting();
    if (next) next.assigned(connection);
    else this.#idle.push(connection);
  }

  /** Destroys a connection that cannot be reused. */
  discard(connection: Connection): void {
    this.#open -= 1;
    connection.destroy();
    const next = this.#waiting.size > 0 ? this.#openAnother() : undefined;
    if (next) this.#takeWaiting()?.assigned(next);
  }

  /** Closes the idle connections. */
  discardIdle(): void {
    for (const connection of this.#idle.splice(0)) this.discard(connection);
  }

  /** Closes every connection when it becomes idle. Queued users are still served. */
  close(): void {
    this.#closed = true;
    this.discardIdle();
  }

  #openAnother(): Connection | undefined {
    if (this.#open >= this.#options.maxConnections) return undefined;
    const connection = new Connection(this.#origin, this.#dialer, this.#options.keepAliveTimeoutMs);
    this.#open += 1;
    return connection;
  }

  #takeWaiting(): ConnectionUser | undefined {
    for (const user of this.#waiting) {
      this.#waiting.delete(user);
      return user;
    }
    return undefined;
  }
}

/** Maximum pools. Beyond it the oldest is closed gracefully; it is reopened on demand. */
const maxPools = 16_384;

/** One pool per engine URL, opened at first use. */
export interface UpstreamPools {
  /** @throws EspalierError `upstream_connect_failed` when the URL is not an http or https one */
  of(url: string): EnginePool;
  /** Forgets an engine: running requests may finish, idle connections close now. */
  drop(url: string): void;
  /** Forgets every engine. */
  close(): void;
}

export function createUpstreamPools(options: EnginePoolOptions): UpstreamPools {
  const pools = new Map<string, EnginePool>();
  const drop = (url: string): void => {
    pools.get(url)?.close();
    pools.delete(url);
  };
  const open = (url: string): EnginePool => {
    const [oldest] = pools.keys();
    if (pools.size >= maxPools && oldest !== undefined) drop(oldest);
    const pool = new EnginePool(parseUrl(url), options);
    pools.set(url, pool);
    return pool;
  };
  return {
    of: (url) => pools.get(url) ?? open(url),
    drop,
    close() {
      for (const url of [...pools.keys()]) drop(url);
    },
  };
}

function parseUrl(url: string): URL {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed?.protocol === "http:" || parsed?.protocol === "https:") return parsed;
  throw new EspalierError("upstream_connect_failed", "The engine's URL is not an http or https URL.");
}
