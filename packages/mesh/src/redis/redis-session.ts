import { backoffDelayMs, type Cancel, EspalierError, type Scheduler } from "@espalier/core";
import type { ProcessPorts } from "../link/link.ts";
import { type CountIncident, defaultRedisLimits, type RedisLimits } from "./redis-keys.ts";

export type RedisArgument = string | Uint8Array;

/** Working connections to Redis; when one of them breaks, all end, and a new session follows. */
export interface RedisSession {
  /** @throws Error when Redis refuses the command, does not answer in time, or the session has ended */
  run(...command: readonly RedisArgument[]): Promise<RedisReply>;
  readonly isEnded: boolean;
  end(why: string): void;
}

interface RedisSessionOptions {
  readonly url: string;
  readonly limits: RedisLimits;
  readonly scheduler: Scheduler;
  readonly channels: readonly string[];
  readonly onMessage: (message: Buffer) => void;
  /** @param why never holds the URL */
  readonly onEnd: (why: string) => void;
}

/** The library, which is loaded when a session is opened: routers without Redis start without it. */
type Library = typeof import("@redis/client");

type Client = ReturnType<typeof makeClient>;

/**
 * Connects twice: for commands, and for messages.
 *
 * @throws EspalierError `redis_unusable` when Redis refuses the password or the user, Error when it cannot be reached
 */
async function openRedisSession(options: RedisSessionOptions): Promise<RedisSession> {
  const { limits, scheduler, channels, onMessage, onEnd } = options;
  const library = await import("@redis/client");
  let isEnded = false;
  let isOpen = false;
  const clients: Client[] = [];
  const end = (why: string): void => {
    if (isEnded) return;
    isEnded = true;
    for (const client of clients) if (client.isOpen) client.destroy();
    if (isOpen) onEnd(why);
  };
  const connect = async (pingMs: number | undefined): Promise<Client> => {
    const client = makeClient(library, options, pingMs);
    clients.push(client);
    client.on("error", (error: Error) => end(error.message));
    await client.connect();
    return client;
  };
  const timed = async (client: Client, command: readonly RedisArgument[]): Promise<RedisReply> => {
    if (isEnded) throw new Error("the session with Redis has ended");
    const cancel: Cancel = scheduler.after(limits.commandTimeoutMs, () =>
      end(`no answer for ${limits.commandTimeoutMs} ms`),
    );
    try {
      return await client.sendCommand<RedisReply>(command.map(asArgument));
    } catch (error) {
      const why = error instanceof library.ErrorReply ? whyElsewhere(error) : String(error);
      if (why) end(why);
      throw error;
    } finally {
      cancel();
    }
  };
  const cancelOpening = scheduler.after(2 * limits.connectTimeoutMs, () => end("no answer while connecting"));
  try {
    const [commands, messages] = [await connect(undefined), await connect(limits.renewMs)];
    for (const channel of channels) {
      await messages.subscribe(channel, onMessage, true);
    }
    if (isEnded) throw new Error("the connection failed during setup");
    isOpen = true;
    return {
      run: (...command) => timed(commands, command),
      get isEnded() {
        return isEnded;
      },
      end,
    };
  } catch (error) {
    end("not connected");
    throw asConnectError(library, error);
  } finally {
    cancelOpening();
  }
}

function makeClient(
  { createClient, RESP_TYPES }: Library,
  { url, limits }: RedisSessionOptions,
  pingMs: number | undefined,
) {
  return createClient({
    url,
    RESP: 2,
    disableOfflineQueue: true,
    ...(pingMs === undefined ? {} : { pingInterval: pingMs }),
    socket: {
      reconnectStrategy: false,
      connectTimeout: limits.connectTimeoutMs,
      ...(pingMs === undefined ? {} : { socketTimeout: pingMs + limits.commandTimeoutMs }),
    },
    commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
  });
}

/**
 * @throws EspalierError `redis_unusable` for anything but a `redis://` or `rediss://` URL
 * @returns where it points, for logs: without user and password
 */
export function checkRedisUrl(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed && (parsed.protocol === "redis:" || parsed.protocol === "rediss:")) {
    return `${parsed.protocol}//${parsed.host}${parsed.pathname}`;
  }
  const message = "The Redis URL must begin with redis:// or rediss://.";
  throw new EspalierError("redis_unusable", message, { param: "mesh.redis-url" });
}

function asArgument(argument: RedisArgument): string | Buffer {
  if (typeof argument === "string" || Buffer.isBuffer(argument)) return argument;
  return Buffer.from(argument.buffer, argument.byteOffset, argument.byteLength);
}

/**
 * Why the server must not take a command that another one takes: it follows that one since a failover, or that one holds
 * the keys. A new connection may lead there. @returns undefined for any other refusal
 */
function whyElsewhere({ message }: Error): string | undefined {
  if (message.startsWith("READONLY ")) return "this Redis is a read-only replica";
  if (!/^(?:MOVED|ASK) /.test(message)) return undefined;
  return `this Redis Cluster node does not own the mesh's keys; use the owner (${message})`;
}

/** A refused password stays refused; anything else may pass. */
function asConnectError({ ErrorReply }: Library, error: unknown): unknown {
  if (!(error instanceof ErrorReply)) return error;
  const kind = /^(WRONGPASS|NOAUTH|NOPERM|ERR invalid password|ERR AUTH|ERR Client sent AUTH)/.exec(error.message)?.[1];
  if (kind === undefined) return error;
  return new EspalierError("redis_unusable", `Redis rejects the user or the password (${kind}).`, {
    param: "mesh.redis-url",
  });
}

/** @returns why a router cannot start with the rights that it has; undefined for a refusal that may pass */
export function lackOfRights(error: unknown): EspalierError | undefined {
  if (!(error instanceof Error && error.message.startsWith("NOPERM "))) return undefined;
  return new EspalierError("redis_unusable", `Redis rejects a required command: ${error.message}.`, {
    param: "mesh.redis-url",
  });
}

/** What Redis answers, with bulk strings as bytes. */
export type RedisReply = null | number | string | Buffer | readonly RedisReply[];

/** @returns undefined for anything but a text or bytes */
export function textOf(reply: RedisReply | undefined): string | undefined {
  if (typeof reply === "string") return reply;
  return Buffer.isBuffer(reply) ? reply.toString("utf8") : undefined;
}

/** @returns an empty list for anything else */
export function listOf(reply: RedisReply | undefined): readonly RedisReply[] {
  return Array.isArray(reply) ? reply : [];
}

/** The pairs of a hash, or of an entry of a stream. */
export function pairsOf(reply: RedisReply | undefined): (readonly [string, RedisReply])[] {
  const list = listOf(reply);
  const pairs: (readonly [string, RedisReply])[] = [];
  for (let at = 0; at + 1 < list.length; at += 2) pairs.push([textOf(list[at]) ?? "", list[at + 1]!]);
  return pairs;
}

/** Whether Redis refused a command because the key has a value of another type. */
export function isWrongType(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith("WRONGTYPE");
}

/** Runs a command on a shared key, after removing a value that another program put there. */
export async function ownKey(
  session: RedisSession,
  count: CountIncident,
  key: string,
  ...command: readonly string[]
): Promise<RedisReply> {
  try {
    return await session.run(...command);
  } catch (error) {
    if (!isWrongType(error)) throw error;
    count("key-of-other-type");
    await session.run("DEL", key);
    return session.run(...command);
  }
}

/** Settles after so many milliseconds of the scheduler. */
export function pause(scheduler: Scheduler, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    scheduler.after(delayMs, resolve);
  });
}

export interface RedisConnectorOptions extends Pick<ProcessPorts, "scheduler" | "random" | "logger"> {
  readonly url: string;
  readonly limits: RedisLimits;
  readonly channels: readonly string[];
  readonly onMessage: (message: Buffer) => void;
  readonly onSession: (session: RedisSession) => void;
  readonly onEnd: () => void;
}

/** Keeps a session with Redis until it is stopped: when one ends, the next is tried at least once a second. */
export class RedisConnector {
  readonly #options: RedisConnectorOptions;
  #session: RedisSession | undefined;
  #attempt = 0;
  #isStopped = false;
  #lastFailure = "";
  #cancelRetry: Cancel | undefined;

  constructor(options: RedisConnectorOptions) {
    this.#options = options;
  }

  /** The present session, if there is one. */
  get session(): RedisSession | undefined {
    return this.#session;
  }

  /**
   * Tries once and waits for the outcome. When Redis cannot be reached, it retries in the background.
   *
   * @throws EspalierError `redis_unusable` for a URL that is none, and when Redis refuses user or password
   */
  async start(): Promise<void> {
    checkRedisUrl(this.#options.url);
    await this.#open((error) => {
      throw error;
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelRetry?.();
    this.#session?.end("stopped");
    this.#session = undefined;
  }

  async #open(onRefused: (error: EspalierError) => void): Promise<void> {
    const { url, limits, scheduler, channels, onMessage, onSession } = this.#options;
    let session: RedisSession;
    try {
      const onEnd = (why: string): void => this.#ended(why);
      session = await openRedisSession({ url, limits, scheduler, channels, onMessage, onEnd });
    } catch (error) {
      if (error instanceof EspalierError) onRefused(error);
      this.#failed(error instanceof Error ? error.message : "unknown");
      return;
    }
    if (this.#isStopped) {
      session.end("stopped");
      return;
    }
    this.#session = session;
    onSession(session);
  }

  /** The present session serves: the next failure is news again. */
  proved(): void {
    const { logger, url } = this.#options;
    this.#attempt = 0;
    this.#lastFailure = "";
    logger.info("connected to Redis", { redis: checkRedisUrl(url) });
  }

  #ended(why: string): void {
    if (this.#isStopped) return;
    this.#session = undefined;
    this.#options.onEnd();
    this.#failed(why);
  }

  #failed(why: string): void {
    const { limits, scheduler, random, logger, url } = this.#options;
    if (this.#isStopped) return;
    if (why !== this.#lastFailure) logger.warn("Redis unusable; routing continues", { redis: checkRedisUrl(url), why });
    this.#lastFailure = why;
    const backoff = { firstDelayMs: limits.firstReconnectMs, maxDelayMs: limits.maxReconnectMs };
    this.#cancelRetry = scheduler.after(backoffDelayMs(this.#attempt++, backoff, random), () => {
      void this.#open(() => {});
    });
  }
}

/**
 * Connects to Redis as a router does, and leaves: nothing is written.
 *
 * @throws EspalierError `redis_unusable` when Redis refuses the user, the password or the URL, Error when it cannot be reached
 */
export async function probeRedis(options: Pick<RedisSessionOptions, "url" | "scheduler">): Promise<void> {
  checkRedisUrl(options.url);
  const unused = { limits: defaultRedisLimits, channels: [], onMessage: () => {}, onEnd: () => {} };
  const session = await openRedisSession({ ...options, ...unused });
  try {
    await session.run("PING");
  } finally {
    session.end("probed");
  }
}
