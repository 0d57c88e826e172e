import type { Clock } from "@espalier/common";
import type { OwnUsage } from "./own-usage.ts";
import { usageGroup, usageKey } from "./usage-frame.ts";
import type { UsageElsewhere, UsageSums } from "./usage-sums.ts";

export interface PoolUsageParts {
  readonly sums: UsageSums;
  readonly clock: Clock;
  /** Keys that are remembered, so that they need not be computed again. */
  readonly maxKeys: number;
  readonly own: OwnUsage;
  /** Called after each change of `own`. */
  readonly changed: () => void;
}

/** What others say is late by more than this in any case. */
const lookMs = 10;

/** The usage of one pool, as admission tells and reads it. */
export class PoolUsage {
  readonly #pool: string;
  readonly #parts: PoolUsageParts;
  /** By class and tenant. Names come from clients. */
  readonly #keys = new Map<string, Map<string, number>>();
  #keyCount = 0;
  /** By class, of which there are few. */
  readonly #neediest = new Map<string, { readonly standing: number; readonly atMs: number }>();

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

  /** It has lifted a tenant that was away by so many tokens by now. */
  lifted(className: string, tenant: string, tokens: number): void {
    const { own, clock, changed } = this.#parts;
    own.lifted(this.#keyOf(className, tenant), tokens, clock.nowMs());
    changed();
  }

  /** A tenant begins to wait at this router, or waits no more. */
  waits(className: string, tenant: string, isWaiting: boolean): void {
    const { own, changed } = this.#parts;
    own.waits(this.#keyOf(className, tenant), isWaiting);
    changed();
  }

  /** What the other routers have done for it; undefined when none has told. */
  elsewhere(className: string, tenant: string): UsageElsewhere | undefined {
    const { sums, clock } = this.#parts;
    return sums.size === 0 ? undefined : sums.of(this.#keyOf(className, tenant), clock.nowMs());
  }

  /**
   * Tokens served and lift, over all routers, of the tenant with the least of those that wait at other routers; Infinity
   * when none does. Found out anew each `lookMs`.
   */
  neediest(className: string): number {
    const { sums, own, clock } = this.#parts;
    if (sums.size === 0) return Number.POSITIVE_INFINITY;
    const nowMs = clock.nowMs();
    const known = this.#neediest.get(className);
    if (known && nowMs - known.atMs < lookMs) return known.standing;
    let standing = Number.POSITIVE_INFINITY;
    for (const waiting of sums.waiting(usageGroup(this.#pool, className), nowMs)) {
      standing = Math.min(standing, own.standing(waiting.key, waiting, nowMs));
    }
    this.#neediest.set(className, { standing, atMs: nowMs });
    return standing;
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
