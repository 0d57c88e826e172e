import { DecayedSum, usageHalfLifeMs } from "@espalier/core";
import { maxFirstAgeMs, maxUsageTokens } from "./usage-frame.ts";
import type { UsageElsewhere } from "./usage-sums.ts";

/** Bounds on the own tenants that are remembered and on those that are sent to others. */
export interface OwnUsageLimits {
  /** Tenants whose served tokens are remembered; beyond it those served longest ago are forgotten. */
  readonly maxTenants: number;
  /** How many of those are sent to others: the ones with the most tokens. */
  readonly maxAdvertised: number;
  /** Part of what a tenant was served that must be new before it is sent. */
  readonly tellShare: number;
  /** Change of the sort key of a tenant's first request, in milliseconds, from which it is sent. */
  readonly tellFirstMs: number;
  /** How many tenants that do not wait a refresh includes, in turn. */
  readonly refreshTenants: number;
}

/** What a frame says of one tenant, before the frame has a counter. */
export interface OwnUsageReport {
  readonly key: number;
  readonly tokens: number;
  readonly lift: number;
  /** See `UsageReport`. */
  readonly firstAgeMs: number | undefined;
}

/** What this router has served to whom, and what to send of it to others. */
export class OwnUsage {
  readonly #limits: OwnUsageLimits;
  /** The one served latest is last. */
  readonly #tenants = new Map<number, OwnTenant>();
  #latest: OwnTenant | undefined;
  readonly #changed = new Set<OwnTenant>();
  readonly #waiting = new Set<OwnTenant>();
  #namedCount = 0;
  #turn: Iterator<OwnTenant> = [].values();
  #turnsLeft = 0;

  constructor(limits: OwnUsageLimits) {
    this.#limits = limits;
  }

  get hasChanges(): boolean {
    return this.#changed.size > 0;
  }

  /** Tenants that are not sent to others. */
  get unadvertised(): number {
    return this.#tenants.size - this.#namedCount;
  }

  /** Tokens served to a tenant over all routers, and its lift. */
  servedTokens(key: number, { tokens, lift }: Pick<UsageElsewhere, "tokens" | "lift">, nowMs: number): number {
    const own = this.#tenants.get(key);
    return own ? own.served.at(nowMs) + tokens + Math.max(own.lift.at(nowMs), lift) : tokens + lift;
  }

  served(key: number, tokens: number, nowMs: number): void {
    this.#touch(key).served.add(tokens, nowMs);
  }

  lifted(key: number, tokens: number, nowMs: number): void {
    this.#touch(key).lift.set(tokens, nowMs);
  }

  waits(key: number, firstMs: number | undefined): void {
    const tenant = this.#touch(key);
    tenant.firstMs = firstMs;
    if (tenant.isWaiting) this.#waiting.add(tenant);
    else this.#waiting.delete(tenant);
  }

  /** Tenants whose last report has become too wrong. */
  takeChanges(nowMs: number): readonly OwnUsageReport[] {
    const changed = [...this.#changed].filter((tenant) => tenant.hasNews(this.#limits, nowMs));
    this.#changed.clear();
    return changed.map((tenant) => tenant.tell(nowMs));
  }

  /** Waiting tenants, and the next few others, in turn. Forgets tenants that have almost nothing left. */
  takeRefresh(nowMs: number): readonly OwnUsageReport[] {
    const advertised = new Set([...this.#waiting].filter(({ isNamed }) => isNamed));
    const most = advertised.size + this.#limits.refreshTenants;
    for (let seen = this.#tenants.size; seen > 0 && advertised.size < most; seen--) {
      const tenant = this.#next();
      if (!tenant) continue;
      if (tenant.isIdle(nowMs)) this.#forget(tenant);
      else if (tenant.isNamed) advertised.add(tenant);
    }
    return [...advertised].map((tenant) => tenant.tell(nowMs));
  }

  /** All tenants that are sent to others. */
  all(nowMs: number): readonly OwnUsageReport[] {
    return [...this.#tenants.values()].filter(({ isNamed }) => isNamed).map((tenant) => tenant.report(nowMs));
  }

  /** From here on sends the tenants that wait, and those with the most tokens. */
  rank(nowMs: number): void {
    if (this.#tenants.size <= this.#limits.maxAdvertised) return;
    const ranked = [...this.#tenants.values()]
      .map((tenant) => ({ tenant, isWaiting: Number(tenant.isWaiting), tokens: tenant.served.at(nowMs) }))
      .sort((one, other) => other.isWaiting - one.isWaiting || other.tokens - one.tokens);
    for (const [place, { tenant }] of ranked.entries()) {
      const isNamed = place < this.#limits.maxAdvertised;
      if (isNamed && !tenant.isNamed) this.#changed.add(tenant);
      if (!isNamed) this.#changed.delete(tenant);
      tenant.isNamed = isNamed;
    }
    this.#namedCount = this.#limits.maxAdvertised;
  }

  /**
   * A round has as many turns as there are tenants: those served meanwhile move to the end, and would prolong it
   * forever.
   */
  #next(): OwnTenant | undefined {
    if (this.#turnsLeft <= 0) {
      this.#turn = this.#tenants.values();
      this.#turnsLeft = this.#tenants.size;
    }
    this.#turnsLeft -= 1;
    const next = this.#turn.next();
    if (next.done !== true) return next.value;
    this.#turnsLeft = 0;
    return undefined;
  }

  #touch(key: number): OwnTenant {
    let tenant = this.#latest;
    // With few tenants one of them has most requests in a row, and moving it to the end leaves a hole each time.
    if (tenant?.key !== key) {
      tenant = this.#tenants.get(key) ?? this.#begin(key);
      this.#tenants.delete(key);
      this.#tenants.set(key, tenant);
      this.#latest = tenant;
    }
    if (tenant.isNamed) this.#changed.add(tenant);
    return tenant;
  }

  #begin(key: number): OwnTenant {
    if (this.#tenants.size >= this.#limits.maxTenants) {
      for (const oldest of this.#tenants.values()) {
        this.#forget(oldest);
        break;
      }
    }
    const isNamed = this.#namedCount < this.#limits.maxAdvertised;
    if (isNamed) this.#namedCount += 1;
    return new OwnTenant(key, isNamed);
  }

  #forget(tenant: OwnTenant): void {
    if (this.#latest === tenant) this.#latest = undefined;
    this.#tenants.delete(tenant.key);
    this.#changed.delete(tenant);
    this.#waiting.delete(tenant);
    if (tenant.isNamed) this.#namedCount -= 1;
  }
}

/** What this router has served to one tenant, and what was sent of it. */
class OwnTenant {
  readonly key: number;
  readonly served = new DecayedSum(usageHalfLifeMs);
  readonly lift = new DecayedSum(usageHalfLifeMs);
  /** Sort key of its first request; undefined while none waits. */
  firstMs: number | undefined;
  /** Whether it is sent to others. */
  isNamed: boolean;
  readonly #advertisedServed = new DecayedSum(usageHalfLifeMs);
  readonly #advertisedLift = new DecayedSum(usageHalfLifeMs);
  #advertisedFirstMs: number | undefined;

  constructor(key: number, isNamed: boolean) {
    this.key = key;
    this.isNamed = isNamed;
  }

  get isWaiting(): boolean {
    return this.firstMs !== undefined;
  }

  /** Others need not know anything of it. */
  isIdle(nowMs: number): boolean {
    const waits = this.isWaiting || this.#advertisedFirstMs !== undefined;
    return !waits && this.served.at(nowMs) < 1 && this.lift.at(nowMs) < 1;
  }

  /** Whether enough has changed to matter to others. */
  hasNews({ tellShare: share, tellFirstMs }: OwnUsageLimits, nowMs: number): boolean {
    const [firstMs, advertisedMs] = [this.firstMs, this.#advertisedFirstMs];
    if ((firstMs === undefined) !== (advertisedMs === undefined)) return true;
    if (firstMs !== undefined && Math.abs(firstMs - advertisedMs!) >= tellFirstMs) return true;
    const served = this.served.at(nowMs);
    const lift = this.lift.at(nowMs);
    return (
      (served >= 1 && served - this.#advertisedServed.at(nowMs) >= share * served) ||
      (lift >= 1 && lift - this.#advertisedLift.at(nowMs) >= share * lift)
    );
  }

  report(nowMs: number): OwnUsageReport {
    const { key, firstMs } = this;
    const firstAgeMs = firstMs === undefined ? undefined : ageOf(firstMs, nowMs);
    return { key, tokens: rounded(this.served.at(nowMs)), lift: rounded(this.lift.at(nowMs)), firstAgeMs };
  }

  /** The report goes to all routers. */
  tell(nowMs: number): OwnUsageReport {
    const report = this.report(nowMs);
    this.#advertisedServed.set(report.tokens, nowMs);
    this.#advertisedLift.set(report.lift, nowMs);
    this.#advertisedFirstMs = this.firstMs;
    return report;
  }
}

function rounded(tokens: number): number {
  return Math.min(maxUsageTokens, Math.round(tokens));
}

/** In milliseconds; negative for a time to come. */
function ageOf(timeMs: number, nowMs: number): number {
  return Math.max(-maxFirstAgeMs, Math.min(maxFirstAgeMs, Math.round(nowMs - timeMs)));
}
