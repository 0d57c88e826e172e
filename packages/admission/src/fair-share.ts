import { DecayedSum, RecencyMap } from "@espalier/common";
import type { AdmissionTarget, OthersLoad } from "./admission-request.ts";

/** Owners whose tokens are remembered; beyond it, those that were served longest ago are forgotten. */
export const maxServedOwners = 4_096;

interface Account {
  readonly owner: string;
  readonly served: DecayedSum;
  /** What keeps an owner that was away from catching up on what it did not ask for. */
  readonly lift: DecayedSum;
}

/** Others who serve the same owners. */
interface ServedElsewhere {
  /** Undefined for an owner that nobody told of. */
  of(owner: string): TenantElsewhere | undefined;
  lifted(owner: string, tokens: number): void;
}

/**
 * Who has been served how much, so that the one with the least goes next. An owner that comes back is lifted to the
 * least of those that are waiting: time without requests saves nothing up (Sheng and others, "Fairness in Serving Large
 * Language Models", OSDI 2024). One that waits elsewhere was not away. Old service is forgotten at a steady rate, so that
 * counters of several routers can be added up whenever each began to count; of lifts, which each of them gives for the
 * same absence, the greatest counts.
 */
export class ServedTokens {
  readonly #halfLifeMs: number;
  readonly #elsewhere: ServedElsewhere | undefined;
  readonly #accounts = new RecencyMap<string, Account>();

  /** @param elsewhere undefined when nobody else serves these owners */
  constructor(halfLifeMs: number, elsewhere?: ServedElsewhere) {
    this.#halfLifeMs = halfLifeMs;
    this.#elsewhere = elsewhere;
  }

  charge(owner: string, tokens: number, nowMs: number): void {
    this.#account(owner).served.add(tokens, nowMs);
    this.#accounts.use(owner);
  }

  /** Tokens served here and elsewhere, and the lift: the owner with the least of them has the next turn. */
  standing(owner: string, nowMs: number): number {
    const account = this.#accounts.get(owner);
    const others = this.#elsewhere?.of(owner);
    const own = account ? account.served.at(nowMs) : 0;
    const lift = Math.max(account ? account.lift.at(nowMs) : 0, others?.lift ?? 0);
    return own + (others?.tokens ?? 0) + lift;
  }

  /** An owner begins to wait, beside others that do. */
  arrived(owner: string, waiting: Iterable<string>, nowMs: number): void {
    const others = this.#elsewhere?.of(owner);
    if (others?.waits === true) return;
    let least = Number.POSITIVE_INFINITY;
    for (const other of waiting) {
      if (other !== owner) least = Math.min(least, this.standing(other, nowMs));
    }
    const missing = least - this.standing(owner, nowMs);
    if (!(missing > 0 && least < Number.POSITIVE_INFINITY)) return;
    const { lift } = this.#account(owner);
    lift.set(Math.max(lift.at(nowMs), others?.lift ?? 0) + missing, nowMs);
    this.#elsewhere?.lifted(owner, lift.at(nowMs));
  }

  /** Tokens served here, by owner. */
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

/** By what part of what a tenant was served another one has to have less before it goes first: what routers know is late. */
const yieldShare = 0.01;
/** Room that nobody else has taken in this time is nobody else's: three looks of another router, and its word of it. */
export const mostYieldMs = 80;

/** A request that might go now. */
interface YieldCandidate<Target extends AdmissionTarget> {
  readonly className: string;
  /** Tokens that its tenant was served, and its lift. */
  readonly standing: number;
  readonly uncachedTokens: number;
  /** Those that have room for it. */
  readonly targets: readonly Target[];
}

/**
 * Leaves room at engines to other routers where a tenant waits that was served less. Without it a router would keep what it
 * has for ever: it is the first to know when a first token of its own makes room, and takes that room again.
 *
 * An engine that has nothing to do is used by whoever sees it.
 */
export class Yielding<Target extends AdmissionTarget> {
  readonly #fleet: FleetUsage;
  readonly #others: OthersLoad;
  /** Since when there has been room that was left to others; undefined when there is none. */
  #sinceMs: number | undefined;

  constructor(fleet: FleetUsage, others: OthersLoad) {
    this.#fleet = fleet;
    this.#others = others;
  }

  /** @returns whether the request has to wait for the sake of others */
  mustWait({ className, standing, uncachedTokens, targets }: YieldCandidate<Target>, nowMs: number): boolean {
    const missing = standing - this.#fleet.neediest(className);
    if (missing <= uncachedTokens + yieldShare * standing || targets.some((target) => this.#isIdle(target))) {
      this.noRoom();
      return false;
    }
    this.#sinceMs ??= nowMs;
    if (nowMs - this.#sinceMs <= mostYieldMs) return true;
    this.noRoom();
    return false;
  }

  /** There is no room any more. */
  noRoom(): void {
    this.#sinceMs = undefined;
  }

  #isIdle({ index, load }: Target): boolean {
    return load.pendingPrefillTokens === 0 && (this.#others.pendingPrefillTokens[index] ?? 0) === 0;
  }
}

/** What other routers have done for a tenant of a class. */
export interface TenantElsewhere {
  /** Tokens that they have served to it lately, half of them forgotten in every `usageHalfLifeMs`. */
  readonly tokens: number;
  /** The most that one of them has lifted it by, decayed likewise. */
  readonly lift: number;
  /** Whether requests of it wait at one of them. */
  readonly waits: boolean;
}

/** What routers tell each other of tenants. A router alone has `noFleetUsage`. */
export interface FleetUsage {
  /** This router has served so many tokens to a tenant of a class. */
  served(className: string, tenant: string, tokens: number): void;
  /** It has lifted a tenant by so many tokens by now. */
  lifted(className: string, tenant: string, tokens: number): void;
  /** A tenant begins to wait at this router, or waits no more. */
  waits(className: string, tenant: string, isWaiting: boolean): void;
  /** Undefined when nothing is known. */
  elsewhere(className: string, tenant: string): TenantElsewhere | undefined;
  /**
   * Tokens served and lift, over all routers, of the tenant with the least of those that wait at other routers; Infinity
   * when none does.
   */
  neediest(className: string): number;
}

export const noFleetUsage: FleetUsage = {
  served() {},
  lifted() {},
  waits() {},
  elsewhere: () => undefined,
  neediest: () => Number.POSITIVE_INFINITY,
};

/** What one router has served to one tenant. */
export interface TenantUsage {
  readonly className: string;
  readonly tenant: string;
  /** Tokens, of which half are forgotten in every `usageHalfLifeMs`. */
  readonly tokens: number;
}
