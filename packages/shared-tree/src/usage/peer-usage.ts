import { type Clock, DecayedSum, usageHalfLifeMs } from "@espalier/core";
import { isLater, type Origin, PeerRows, PeerTable, type RelayFrame, type Version } from "@espalier/mesh";
import { type UsageFrame, type UsageReport, writeUsageFrame } from "./usage-frame.ts";
import type { UsagePart, UsageSums } from "./usage-sums.ts";

/** A smaller remainder after decay counts as nothing. */
const leastTokens = 1;

/** Bounds and times for what other routers report. Times in milliseconds on the monotonic clock. */
export interface PeerUsageLimits {
  /** Tenants that are kept of one other router; beyond it the ones reported longest ago are forgotten. */
  readonly maxTenantsOfRouter: number;
  /** Routers whose tenants are kept. */
  readonly maxOrigins: number;
  /**
   * A router that was not heard for so long counts for nothing: all but a sixteenth of what it had served is forgotten.
   */
  readonly leaseMs: number;
  /** For so long a tenant is believed to wait without another report. */
  readonly waitLeaseMs: number;
}

/** What the latest report of a router says of one of its tenants. */
interface Part extends UsagePart, Version {}

/** Its tenants, the one reported latest last. */
type Tenants = PeerRows<number, Part>;

/**
 * What all other routers have reported of their tenants, while their leases run: per router and tenant the report with
 * the latest version, in whatever order reports arrive. What an earlier epoch of a router has served stays until a later
 * one reports the same tenant.
 */
export class PeerUsage {
  readonly #sums: UsageSums;
  readonly #limits: PeerUsageLimits;
  readonly #clock: Clock;
  readonly #peers: PeerTable<Tenants>;

  constructor(sums: UsageSums, limits: PeerUsageLimits, clock: Clock) {
    const { maxOrigins: maxPeers, leaseMs } = limits;
    this.#sums = sums;
    this.#limits = limits;
    this.#clock = clock;
    this.#peers = new PeerTable<Tenants>({
      ...{ clock, maxPeers, leaseMs, laterEpochReplaces: "key" },
      begin: (origin) => new PeerRows(origin, (part) => sums.remove(part, clock.nowMs())),
    });
  }

  /** @returns what the frame brought */
  receive(frame: UsageFrame): "news" | "stale" | "unknown" {
    const tenants = this.#peers.of(frame.origin);
    if (!tenants) return "unknown";
    let isNews = tenants.hear(frame, this.#clock.nowMs());
    for (const report of frame.reports) if (this.#report(tenants, frame.origin, report)) isNews = true;
    return isNews ? "news" : "stale";
  }

  /** Ends expired leases. */
  expire(): void {
    this.#peers.expire();
  }

  /** Forgets tenants that have almost nothing left. */
  sweep(): void {
    const nowMs = this.#clock.nowMs();
    for (const tenants of this.#peers) {
      for (const part of tenants.rows.values()) {
        if (Math.max(part.served.at(nowMs), part.lift.at(nowMs)) < leastTokens) tenants.remove(part);
      }
    }
  }

  /** Silence of the router that counts and was heard longest ago; 0 when there is none. */
  ageMs(): number {
    const nowMs = this.#clock.nowMs();
    let oldestMs = nowMs;
    for (const { heardMs, rows } of this.#peers) if (rows.size > 0) oldestMs = Math.min(oldestMs, heardMs);
    return nowMs - oldestMs;
  }

  /** What the latest epochs reported, as it is by now. */
  relayFrames(): readonly RelayFrame[] {
    const nowMs = this.#clock.nowMs();
    return [...this.#peers].map(({ origin, counter, heardMs, rows }) => {
      const reports = [...rows.values()]
        .filter((part) => part.origin.epoch === origin.epoch)
        .map((part) => reportOf(part, nowMs));
      const relayedAgeMs = Math.max(0, nowMs - heardMs);
      return { origin, frame: writeUsageFrame({ origin, counter, relayedAgeMs, reports }) };
    });
  }

  /** @returns whether it is later than what was known of the tenant */
  #report(tenants: Tenants, origin: Origin, { key, counter, tokens, lift, firstAgeMs }: UsageReport): boolean {
    const { rows } = tenants;
    const known = rows.get(key);
    if (known && !isLater({ origin, counter }, known)) return false;
    const nowMs = this.#clock.nowMs();
    const part = known ?? { key, served: new DecayedSum(usageHalfLifeMs), lift: new DecayedSum(usageHalfLifeMs) };
    part.served.set(tokens, nowMs);
    part.lift.set(lift, nowMs);
    const isWaiting = firstAgeMs !== undefined;
    const waitsUntilMs = isWaiting ? nowMs + this.#limits.waitLeaseMs : Number.NEGATIVE_INFINITY;
    const firstMs = isWaiting ? nowMs - firstAgeMs : Number.POSITIVE_INFINITY;
    rows.delete(key);
    const [oldest] = rows.values();
    if (oldest && rows.size >= this.#limits.maxTenantsOfRouter) tenants.remove(oldest);
    const changed = Object.assign(part, { origin, counter, waitsUntilMs, firstMs });
    rows.set(key, changed);
    this.#sums.changed(changed, nowMs);
    return true;
  }
}

function reportOf({ key, counter, served, lift, waitsUntilMs, firstMs }: Part, nowMs: number): UsageReport {
  const [tokens, lifted] = [Math.round(served.at(nowMs)), Math.round(lift.at(nowMs))];
  const firstAgeMs = waitsUntilMs > nowMs ? Math.round(nowMs - firstMs) : undefined;
  return { key, counter, tokens, lift: lifted, firstAgeMs };
}
