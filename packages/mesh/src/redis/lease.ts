import { asRouterId, type Clock, EspalierError, type Scheduler } from "@espalier/core";
import type { Origin } from "../origin.ts";
import type { ReplicaPorts } from "../replica-ports.ts";
import type { RedisKeys, RedisLimits } from "./redis-keys.ts";
import { pause, type RedisSession, textOf } from "./redis-session.ts";

/** What a router says of itself in its lease. */
export interface Lease {
  readonly origin: Origin;
  /** Rises with every renewal. A router that waits for a lease to lapse sees by it that the lease is renewed. */
  readonly beat: number;
  /** It has all that its peers have, and so can give it to newcomers. */
  readonly isReady: boolean;
  readonly isDraining: boolean;
  readonly unreachable: readonly string[];
  /** Its region; empty if its lease was not seen yet. Undefined if it says none. */
  readonly region?: string | undefined;
}

const maxUnreachable = 65_536;
const maxRegionLength = 128;
/** Time between two attempts to take over the lease that an earlier run of this router may have left. */
const claimPollMs = 50;

/**
 * Renews a lease unless another run of the same router holds it. Returns 0 when one does, 1 when the lease was there, 2
 * when it had lapsed or was lost.
 */
export const renewScript = `
local held = redis.call('GET', KEYS[1])
local epoch = held and string.match(held, '^(%d+) ')
if epoch and epoch ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if held then return 1 end
return 2`;

/** Releases a lease if this run holds it. */
export const releaseScript = `
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^(%d+) ') == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`;

export function encodeLease({ origin, beat, isReady, isDraining, unreachable, region }: Lease): string {
  return `${origin.epoch} ${JSON.stringify({ beat, isReady, isDraining, unreachable, region })}`;
}

/** @throws RangeError for a text that is no lease */
export function decodeLease(router: string, text: string): Lease {
  const match = /^(\d{1,16}) (\{.*\})$/s.exec(text);
  const epoch = Number(match?.[1]);
  if (!match || !Number.isSafeInteger(epoch)) throw new RangeError("no lease");
  let value: Readonly<Partial<Record<keyof Lease, unknown>>>;
  try {
    value = JSON.parse(match[2]!);
  } catch (cause) {
    throw new RangeError("a lease is no JSON", { cause });
  }
  const { beat, isReady, isDraining, unreachable, region } = value;
  const areFlags = typeof isReady === "boolean" && typeof isDraining === "boolean";
  const isRegion = region === undefined || (typeof region === "string" && region.length <= maxRegionLength);
  if (typeof beat !== "number" || !areFlags || !isTargets(unreachable) || !isRegion) {
    throw new RangeError("a lease is malformed");
  }
  return { origin: { router: asRouterId(router), epoch }, beat, isReady, isDraining, unreachable, region };
}

function isTargets(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.length <= maxUnreachable && value.every((target) => typeof target === "string");
}

/** `held`: as before; `anew`: it was gone and was written again; `taken`: another run of this router has it. */
export type LeaseOutcome = "held" | "anew" | "taken";

export interface LeaseKeeperOptions {
  readonly replica: Pick<ReplicaPorts, "origin" | "renewEpoch">;
  /** Whether this router has all that its peers have. */
  readonly isReady: () => boolean;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly region?: string | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** The lease by which this router is alive and no other may use its id. */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  #beat = 0;
  /** The epoch that the lease was last renewed for. */
  #held: Origin | undefined;
  isDraining = false;
  unreachable: readonly string[] = [];

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
  }

  /**
   * Takes the lease at the start. A lease that lapses was that of an earlier run; one that is renewed meanwhile is that
   * of another living router.
   *
   * @throws EspalierError `mesh_rejected` when another router with this id is alive
   */
  async claim(session: RedisSession): Promise<void> {
    const { replica, clock, scheduler, limits } = this.#options;
    const untilMs = clock.nowMs() + limits.leaseMs + 2 * limits.renewMs;
    let seen: Lease | undefined;
    for (;;) {
      if ((await this.renew(session)) !== "taken") return;
      const lease = await this.#read(session);
      const isAlive = lease && seen?.origin.epoch === lease.origin.epoch && lease.beat > seen.beat;
      if (isAlive || clock.nowMs() >= untilMs) break;
      seen ??= lease;
      await pause(scheduler, claimPollMs);
    }
    const message = `Another living router has the id ${JSON.stringify(replica.origin.router)}.`;
    throw new EspalierError("mesh_rejected", message, { param: "mesh.router-id" });
  }

  async renew(session: RedisSession): Promise<LeaseOutcome> {
    const { replica, keys, limits, isReady, region } = this.#options;
    if (this.#held && this.#held.epoch !== replica.origin.epoch) await this.release(session);
    if (!this.#held) await this.#riseAbove(session);
    const { origin } = replica;
    const said = { isReady: isReady(), isDraining: this.isDraining, unreachable: this.unreachable, region };
    const lease = encodeLease({ origin, beat: ++this.#beat, ...said });
    const args = [String(origin.epoch), lease, String(limits.leaseMs)];
    const outcome = await session.run("EVAL", renewScript, "1", keys.lease(origin.router), ...args);
    if (outcome === 0) {
      this.#held = undefined;
      return "taken";
    }
    this.#held = origin;
    if (outcome === 1) return "held";
    await session.run("HSET", keys.epochs, origin.router, String(origin.epoch));
    return "anew";
  }

  async release(session: RedisSession): Promise<void> {
    if (!this.#held) return;
    const { router, epoch } = this.#held;
    this.#held = undefined;
    await session.run("EVAL", releaseScript, "1", this.#options.keys.lease(router), String(epoch));
  }

  /** An earlier run of this router with the same epoch or a later one cannot be distinguished from this run. */
  async #riseAbove(session: RedisSession): Promise<void> {
    const { replica, keys } = this.#options;
    const known = Number(textOf(await session.run("HGET", keys.epochs, replica.origin.router)) ?? Number.NaN);
    if (Number.isSafeInteger(known) && known >= replica.origin.epoch) replica.renewEpoch(known);
  }

  async #read(session: RedisSession): Promise<Lease | undefined> {
    const { router }: Origin = this.#options.replica.origin;
    const text = textOf(await session.run("GET", this.#options.keys.lease(router)));
    try {
      return text === undefined ? undefined : decodeLease(router, text);
    } catch {
      return undefined;
    }
  }
}
