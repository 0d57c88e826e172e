import { type Clock, DecayedSum, usageHalfLifeMs } from "@espalier/core";
import type { OwnUsage } from "./own-usage.ts";
import { groupOfKey, usageGroup, usageKey } from "./usage-frame.ts";

/** What one router has reported for one tenant. */
export interface UsagePart {
  readonly key: number;
  readonly served: DecayedSum;
  readonly lift: DecayedSum;
  /** Until when it is believed to wait there, on the monotonic clock. */
  readonly waitsUntilMs: number;
  /** Sort key of its first request there, on the monotonic clock. */
  readonly firstMs: number;
}

/** What all other routers have served to a tenant. */
export interface UsageElsewhere {
  /** Served, half of them forgotten in every `usageHalfLifeMs`. */
  readonly tokens: number;
  /** The greatest lift by one of them, decayed likewise. */
  readonly lift: number;
  readonly waits: boolean;
}

interface Sum {
  readonly key: number;
  readonly parts: Set<UsagePart>;
  readonly served: DecayedSum;
  readonly lift: DecayedSum;
  waitsUntilMs: number;
  firstMs: number;
}

/** What all other routers have served to each tenant. Read on the request path. */
export class UsageSums {
  readonly #sums = new Map<number, Sum>();
  /** Tenants that wait elsewhere, or did a moment ago, by class and pool. */
  readonly #waiting = new Map<number, Set<Sum>>();

  /** How many tenants others have reported. */
  get size(): number {
    return this.#sums.size;
  }

  /** Undefined for a tenant that no router reported. */
  of(key: number, nowMs: number): UsageElsewhere | undefined {
    const sum = this.#sums.get(key);
    return sum && elsewhere(sum, nowMs);
  }

  /** The least sort key of a tenant's requests that wait at other routers; Infinity when none does. */
  firstMs(key: number, nowMs: number): number {
    const sum = this.#sums.get(key);
    return sum && sum.waitsUntilMs > nowMs ? sum.firstMs : Number.POSITIVE_INFINITY;
  }

  /** Whether any tenant waits at another router. */
  get hasWaiting(): boolean {
    return this.#waiting.size > 0;
  }

  /** Tenants of a class of a pool that wait at other routers. */
  *waiting(group: number, nowMs: number): Iterable<UsageElsewhere & { readonly key: number }> {
    for (const sum of this.#waiting.get(group) ?? []) {
      if (sum.waitsUntilMs > nowMs) yield { key: sum.key, ...elsewhere(sum, nowMs) };
      else this.#waitsNoMore(sum);
    }
  }

  /** A part is new or has changed. */
  changed(part: UsagePart, nowMs: number): void {
    let sum = this.#sums.get(part.key);
    if (!sum) {
      const [served, lift] = [new DecayedSum(usageHalfLifeMs), new DecayedSum(usageHalfLifeMs)];
      sum = { key: part.key, parts: new Set(), served, lift, ...noneWaits };
      this.#sums.set(part.key, sum);
    }
    sum.parts.add(part);
    this.#addUp(sum, nowMs);
  }

  /** A part does not count any more. */
  remove(part: UsagePart, nowMs: number): void {
    const sum = this.#sums.get(part.key);
    if (!sum?.parts.delete(part)) return;
    this.#addUp(sum, nowMs);
    if (sum.parts.size === 0) this.#sums.delete(part.key);
  }

  #addUp(sum: Sum, nowMs: number): void {
    addUp(sum, nowMs);
    if (sum.waitsUntilMs <= nowMs) {
      this.#waitsNoMore(sum);
      return;
    }
    const group = groupOfKey(sum.key);
    const waiting = this.#waiting.get(group) ?? new Set<Sum>();
    this.#waiting.set(group, waiting.add(sum));
  }

  #waitsNoMore(sum: Sum): void {
    const group = groupOfKey(sum.key);
    const waiting = this.#waiting.get(group);
    if (waiting?.delete(sum) && waiting.size === 0) this.#waiting.delete(group);
  }
}

function elsewhere({ served, lift, waitsUntilMs }: Sum, nowMs: number): UsageElsewhere {
  return { tokens: served.at(nowMs), lift: lift.at(nowMs), waits: waitsUntilMs > nowMs };
}

const noneWaits = { waitsUntilMs: Number.NEGATIVE_INFINITY, firstMs: Number.POSITIVE_INFINITY };

/** Sums from zero each time, so that nothing is left of what was taken out. */
function addUp(sum: Sum, nowMs: number): void {
  let served = 0;
  let lift = 0;
  Object.assign(sum, noneWaits);
  for (const part of sum.parts) {
    served += part.served.at(nowMs);
    lift = Math.max(lift, part.lift.at(nowMs));
    sum.waitsUntilMs = Math.max(sum.waitsUntilMs, part.waitsUntilMs);
    if (part.waitsUntilMs > nowMs) sum.firstMs = Math.min(sum.firstMs, part.firstMs);
  }
  sum.served.set(served, nowMs);
  sum.lift.set(lift, nowMs);
}

export interface PoolUsageParts {
  readonly sums: UsageSums;
  readonly clock: Clock;
  /** Remembered keys, which need not be computed again. */
  readonly maxKeys: number;
  readonly own: OwnUsage;
  /** Called after each change of `own`. */
  readonly changed: () => void;
}

/** Reports of others are late by more than this in any case. */
const lookMs = 10;

/** The usage of one pool, as admission reports and reads it. */
export class PoolUsage {
  readonly #pool: string;
  readonly #parts: PoolUsageParts;
  /** By class and tenant. Names come from clients. */
  readonly #keys = new Map<string, Map<string, number>>();
  #keyCount = 0;
  /** By class; there are few. */
  readonly #neediest = new Map<string, { readonly servedTokens: number; readonly atMs: number }>();

  constructor(pool: string, parts: PoolUsageParts) {
    this.#pool = pool;
    this.#parts = parts;
  }

  /** This router has served so many tokens to a tenant of a class. */
  served(className: string, tenant: string, tokens: number): void {
    const { own, clock, changed } = this.#parts;
    own.served(this.#keyOf(className, tenant), tokens, clock.nowMs());
    changed();
  }

  /** It has lifted a tenant that was away, by so many tokens so far. */
  lifted(className: string, tenant: string, tokens: number): void {
    const { own, clock, changed } = this.#parts;
    own.lifted(this.#keyOf(className, tenant), tokens, clock.nowMs());
    changed();
  }

  /** The first request of a tenant that waits at this router is another one, or none. @param firstMs its sort key */
  waits(className: string, tenant: string, firstMs: number | undefined): void {
    const { own, changed } = this.#parts;
    own.waits(this.#keyOf(className, tenant), firstMs);
    changed();
  }

  /** What the other routers have served to it; undefined when none has reported any. */
  elsewhere(className: string, tenant: string): UsageElsewhere | undefined {
    const { sums, clock } = this.#parts;
    return sums.size === 0 ? undefined : sums.of(this.#keyOf(className, tenant), clock.nowMs());
  }

  /**
   * Of the tenants that wait at other routers, the least tokens served and lift over all routers; Infinity when none
   * waits. Determined again every `lookMs`.
   */
  neediest(className: string): number {
    const { sums, own, clock } = this.#parts;
    if (sums.size === 0) return Number.POSITIVE_INFINITY;
    const nowMs = clock.nowMs();
    const known = this.#neediest.get(className);
    if (known && nowMs - known.atMs < lookMs) return known.servedTokens;
    let servedTokens = Number.POSITIVE_INFINITY;
    for (const waiting of sums.waiting(usageGroup(this.#pool, className), nowMs)) {
      servedTokens = Math.min(servedTokens, own.servedTokens(waiting.key, waiting, nowMs));
    }
    this.#neediest.set(className, { servedTokens, atMs: nowMs });
    return servedTokens;
  }

  /** The least sort key of its requests that wait at other routers, on this clock; Infinity when none does. */
  firstMs(className: string, tenant: string): number {
    const { sums, clock } = this.#parts;
    return sums.hasWaiting ? sums.firstMs(this.#keyOf(className, tenant), clock.nowMs()) : Number.POSITIVE_INFINITY;
  }

  #keyOf(className: string, tenant: string): number {
    const known = this.#keys.get(className)?.get(tenant);
    if (known !== undefined) return known;
    if (this.#keyCount >= this.#parts.maxKeys) {
      this.#keys.clear();
      this.#keyCount = 0;
    }
    const key = usageKey(this.#pool, className, tenant);
    const ofClass = this.#keys.get(className) ?? new Map<string, number>();
    this.#keys.set(className, ofClass.set(tenant, key));
    this.#keyCount += 1;
    return key;
  }
}
