import { type Clock, EspalierError, type Scheduler } from "@espalier/core";
import type { Origin } from "../origin.ts";
import type { CountIncident, RedisKeys, RedisLimits } from "./redis-keys.ts";
import { isWrongType, listOf, ownKey, pause, type RedisSession, textOf } from "./redis-session.ts";

/** Time between two attempts to take the id that an earlier run of this router may have left. */
const claimPollMs = 50;

/**
 * Renews a lease and returns all that hold one, or nothing when another process has this router's id. Redis judges by
 * its own clock, so that those of routers need not agree. A Redis without memory refuses what adds, but not within a
 * script that has written before: so the removal comes first.
 */
const renewScript = `
if redis.replicate_commands then redis.replicate_commands() end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
for _, holder in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if holder ~= ARGV[1] and string.match(holder, '^%S+ (.*)$') == ARGV[2] then return {} end
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, ARGV[4])`;

export interface LivingRoutersOptions {
  readonly origin: () => Origin;
  readonly address: string;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly count: CountIncident;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** The leases by which routers find each other, and by which no two living ones have one id. */
export class LivingRouters {
  readonly #options: LivingRoutersOptions;
  /** Routers by address, as of the latest look. */
  #others: ReadonlyMap<string, string> = new Map();

  constructor(options: LivingRoutersOptions) {
    this.#options = options;
  }

  get addresses(): readonly string[] {
    return [...this.#others.keys()];
  }

  has(address: string): boolean {
    return this.#others.has(address);
  }

  get routers(): readonly string[] {
    return [...this.#others.values()];
  }

  /**
   * Takes the lease at the start. A lease that lapses was that of an earlier run; one that stays is that of another
   * living router.
   *
   * @throws EspalierError `mesh_rejected` when another router with this id is alive
   */
  async claim(session: RedisSession): Promise<void> {
    const { clock, scheduler, limits, origin } = this.#options;
    const untilMs = clock.nowMs() + limits.leaseMs + 2 * limits.renewMs;
    while (!(await this.renew(session))) {
      if (clock.nowMs() >= untilMs) {
        const message = `Another live router has the id ${JSON.stringify(origin().router)}.`;
        throw new EspalierError("mesh_rejected", message, { param: "mesh.router-id" });
      }
      await pause(scheduler, claimPollMs);
    }
  }

  /** @returns whether the lease is this process's */
  async renew(session: RedisSession): Promise<boolean> {
    const { keys, limits, count } = this.#options;
    const { router } = this.#options.origin();
    const args = [this.#own, router, String(limits.leaseMs), String(limits.maxMembers + 1)];
    const key = keys.living;
    const holders = listOf(await ownKey(session, count, key, "EVAL", renewScript, "1", key, ...args));
    const others = new Map<string, string>();
    for (const holder of holders) {
      const text = textOf(holder) ?? "";
      if (text === this.#own) continue;
      const match = /^([0-9a-f]{16}\.redis:1) (.{1,512})$/s.exec(text);
      if (match) others.set(match[1]!, match[2]!);
      else count("lease-invalid");
    }
    if (others.size > limits.maxMembers) count("too-many-members");
    this.#others = new Map([...others].slice(0, limits.maxMembers));
    return holders.length > 0;
  }

  async release(session: RedisSession): Promise<void> {
    await session.run("ZREM", this.#options.keys.living, this.#own);
  }

  /** Whether routers of the version before live in this cluster: they and this one share nothing. */
  async hasOlder(session: RedisSession): Promise<boolean> {
    const { keys } = this.#options;
    try {
      const routers = listOf(await session.run("SMEMBERS", keys.olderMembers)).flatMap((one) => textOf(one) ?? []);
      return routers.length > 0 && (await session.run("EXISTS", ...routers.map(keys.olderLease))) !== 0;
    } catch (error) {
      if (isWrongType(error)) return false;
      throw error;
    }
  }

  get #own(): string {
    return `${this.#options.address} ${this.#options.origin().router}`;
  }
}
