import { backoffDelayMs, type Cancel, EspalierError, type Logger, type Random, type Scheduler } from "@espalier/common";
import type { RedisLimits } from "./redis-limits.ts";
import { checkRedisUrl, openRedisSession, type RedisSession } from "./redis-session.ts";

export interface RedisConnectorOptions {
  readonly url: string;
  readonly limits: RedisLimits;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly channels: readonly string[];
  readonly onMessage: (channel: string, message: Buffer) => void;
  readonly onSession: (session: RedisSession) => void;
  readonly onEnd: () => void;
}

/** Keeps a session with Redis, for ever: when one ends, the next is tried at least once a second. */
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

  /** The session that stands, if one does. */
  get session(): RedisSession | undefined {
    return this.#session;
  }

  /**
   * Tries once and waits for the outcome; when Redis cannot be reached, it is tried again behind.
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
    const { url, limits, scheduler, logger, channels, onMessage, onSession } = this.#options;
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
    this.#attempt = 0;
    this.#lastFailure = "";
    this.#session = session;
    logger.info("connected to Redis", { redis: checkRedisUrl(url) });
    onSession(session);
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
    if (why !== this.#lastFailure)
      logger.warn("Redis is not usable; routing goes on", { redis: checkRedisUrl(url), why });
    this.#lastFailure = why;
    const backoff = { firstDelayMs: limits.firstReconnectMs, maxDelayMs: limits.maxReconnectMs };
    this.#cancelRetry = scheduler.after(backoffDelayMs(this.#attempt++, backoff, random), () => {
      void this.#open(() => {});
    });
  }
}
