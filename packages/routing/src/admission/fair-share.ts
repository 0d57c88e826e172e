import { DecayedSum, RecencyMap } from "@espalier/core";
import type { AdmissionTarget, PeerLoad } from "./admission-request.ts";

/** What other routers have served to a tenant of a class. */
export interface TenantElsewhere {
  /** Tokens served, decayed with half-life `usageHalfLifeMs`. */
  readonly tokens: number;
  /** The greatest lift at any of them, decayed in the same way. */
  readonly lift: number;
  /** Whether requests of it are queued at any of them. */
  readonly waits: boolean;
}

/** Usage of tenants over all routers. A lone router has `noFleetUsage`. */
export interface FleetUsage {
  /** This router served tokens to a tenant of a class. */
  served(className: string, tenant: string, tokens: number): void;
  /** This router's lift of a tenant is this many tokens now. */
  lifted(className: string, tenant: string, tokens: number): void;
  /**
   * The first request of a tenant that waits at this router is another one.
   *
   * @param firstMs its sort key, a time of this router's clock; undefined when none waits any more
   */
  waits(className: string, tenant: string, firstMs: number | undefined): void;
  /** Undefined when nothing is known. */
  elsewhere(className: string, tenant: string): TenantElsewhere | undefined;
  /**
   * The least counter (tokens over all routers, plus lift) among tenants that wait at other routers; Infinity when none
   * does.
   */
  neediest(className: string): number;
  /**
   * The least sort key of a tenant's requests that wait at other routers, a time of this router's clock; Infinity when
   * none does.
   */
  firstMs(className: string, tenant: string): number;
}

export const noFleetUsage: FleetUsage = {
  served() {},
  lifted() {},
  waits() {},
  elsewhere: () => undefined,
  neediest: () => Number.POSITIVE_INFINITY,
  firstMs: () => Number.POSITIVE_INFINITY,
};

/** What this router has served to one tenant. */
export interface TenantUsage {
  readonly className: string;
  readonly tenant: string;
  /** Tokens, decayed with half-life `usageHalfLifeMs`. */
  readonly tokens: number;
}

/** Maximum owners remembered; beyond it the one served longest ago is forgotten. */
export const maxServedOwners = 4_096;

interface Account {
  readonly owner: string;
  readonly served: DecayedSum;
  /** Added when an idle owner returns, so that it does not catch up on service that it did not ask for. */
  readonly lift: DecayedSum;
}

/** What other routers have served to the same owners. */
interface ServedElsewhere {
  /** Undefined for an owner that no other router has reported. */
  of(owner: string): TenantElsewhere | undefined;
  /** The least counter of those that wait at another router; Infinity when none does. */
  neediest(): number;
  lifted(owner: string, tokens: number): void;
}

/**
 * Virtual token counters: the owner with the least service goes next (Sheng and others, "Fairness in Serving Large
 * Language Models", OSDI 2024). An owner that returns is lifted to the least counter of those that wait at any router, or to
 * that of the owner served last when none waits, so that idle time saves nothing up. An owner that waits at another router
 * was not idle. Service decays, so counters of several
 * routers can be added no matter when each began to count. Routers lift an owner for the same absence, so the greatest
 * lift counts and not the sum.
 */
export class ServedTokens {
  readonly #halfLifeMs: number;
  readonly #elsewhere: ServedElsewhere | undefined;
  readonly #accounts = new RecencyMap<string, Account>();
  #servedLast: string | undefined;

  /** @param elsewhere undefined when no other router serves these owners */
  constructor(halfLifeMs: number, elsewhere?: ServedElsewhere) {
    this.#halfLifeMs = halfLifeMs;
    this.#elsewhere = elsewhere;
  }

  charge(owner: string, tokens: number, nowMs: number): void {
    this.#account(owner).served.add(tokens, nowMs);
    this.#accounts.use(owner);
    this.#servedLast = owner;
  }

  /** Tokens served by all routers, plus the lift. The owner with the least goes next. */
  virtualTokens(owner: string, nowMs: number): number {
    const account = this.#accounts.get(owner);
    const others = this.#elsewhere?.of(owner);
    const own = account ? account.served.at(nowMs) : 0;
    const lift = Math.max(account ? account.lift.at(nowMs) : 0, others?.lift ?? 0);
    return own + (others?.tokens ?? 0) + lift;
  }

  /** An owner starts to wait. @param waiting the owners that wait already */
  arrived(owner: string, waiting: Iterable<string>, nowMs: number): void {
    const others = this.#elsewhere?.of(owner);
    if (others?.waits === true) return;
    let least = this.#elsewhere?.neediest() ?? Number.POSITIVE_INFINITY;
    for (const other of waiting) {
      if (other !== owner) least = Math.min(least, this.virtualTokens(other, nowMs));
    }
    if (least === Number.POSITIVE_INFINITY && this.#servedLast !== undefined)
      least = this.virtualTokens(this.#servedLast, nowMs);
    if (least < Number.POSITIVE_INFINITY) this.lift(owner, least, nowMs);
  }

  /** Its counter is at least so much from now. */
  lift(owner: string, tokens: number, nowMs: number): void {
    const missing = tokens - this.virtualTokens(owner, nowMs);
    if (!(missing > 0)) return;
    const { lift } = this.#account(owner);
    lift.set(Math.max(lift.at(nowMs), this.#elsewhere?.of(owner)?.lift ?? 0) + missing, nowMs);
    this.#elsewhere?.lifted(owner, lift.at(nowMs));
  }

  /** Tokens served by this router, by owner. */
  *entries(nowMs: number): Iterable<readonly [owner: string, tokens: number]> {
    for (const { owner, served } of this.#accounts.values()) yield [owner, served.at(nowMs)];
  }

  #account(owner: string): Account {
    const known = this.#accounts.get(owner);
    if (known) return known;
    if (this.#accounts.size >= maxServedOwners) this.#accounts.deleteOldest();
    const account = { owner, served: new DecayedSum(this.#halfLifeMs), lift: new DecayedSum(this.#halfLifeMs) };
    this.#accounts.set(owner, account);
    return account;
  }
}

/** Tolerated relative difference in service: what routers know of each other is late. */
const toleratedShare = 0.01;
/** Longest backoff: three rescans of another router, and the delay of its report. */
export const maxBackoffMs = 80;

/** Tolerated difference between sort keys: routers hear of each other's first requests a quarter of a second late. */
export const toleratedMs = 1_000;
/** Less difference is the delay of another report: each is dated by the time at which it comes. */
const sameFirstMs = 100;

/** A request that could be dispatched now. */
interface BackoffCandidate<Target extends AdmissionTarget> {
  readonly className: string;
  readonly tenant: string;
  /** Its sort key among the tenant's requests. */
  readonly keyMs: number;
  /** Of its tenant, as `ServedTokens` has it. */
  readonly virtualTokens: number;
  readonly uncachedTokens: number;
  /** The targets that it could go to. */
  readonly targets: readonly Target[];
}

/**
 * Fair-share backoff: leaves engine capacity to other routers where a less served tenant waits, or where a request of the
 * same tenant comes first in the class's order. Without it a router would keep its share forever, because it is the first to know when one of its own first tokens frees capacity.
 *
 * Any router that sees an idle engine uses it.
 */
export class FairShareBackoff<Target extends AdmissionTarget> {
  readonly #fleet: FleetUsage;
  readonly #others: PeerLoad;
  /** Since when it has been backing off; undefined when it is not. */
  #sinceMs: number | undefined;
  /** The first request elsewhere for which this router has backed off in vain. */
  #passedMs = Number.NaN;

  constructor(fleet: FleetUsage, others: PeerLoad) {
    this.#fleet = fleet;
    this.#others = others;
  }

  /** @returns whether the request has to wait for tenants at other routers */
  shouldBackOff(
    { className, tenant, keyMs, virtualTokens, uncachedTokens, targets }: BackoffCandidate<Target>,
    nowMs: number,
  ): boolean {
    const missing = virtualTokens - this.#fleet.neediest(className);
    const firstMs = this.#fleet.firstMs(className, tenant);
    const isLess = missing > uncachedTokens + toleratedShare * virtualTokens;
    const isLater = keyMs - firstMs > toleratedMs && !(Math.abs(firstMs - this.#passedMs) < sameFirstMs);
    if (!(isLess || isLater) || targets.some((target) => this.#isIdle(target))) {
      this.reset();
      return false;
    }
    this.#sinceMs ??= nowMs;
    if (nowMs - this.#sinceMs <= maxBackoffMs) return true;
    this.reset();
    this.#passedMs = firstMs;
    return false;
  }

  /** Called when no engine has capacity left. */
  reset(): void {
    this.#sinceMs = undefined;
  }

  #isIdle({ index, load }: Target): boolean {
    return load.pendingPrefillTokens === 0 && (this.#others.pendingPrefillTokens[index] ?? 0) === 0;
  }
}
