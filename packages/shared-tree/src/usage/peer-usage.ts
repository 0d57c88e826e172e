import { DecayedSum, usageHalfLifeMs } from "@espalier/core";
import { Heard, type Origin, type Peer, PeerTable, type RelayFrame } from "@espalier/mesh";
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

/** What all other routers have reported of tenants, while their leases run. */
export class PeerUsage {
  readonly #leaseMs: number;
  readonly #peers: PeerTable<OriginUsage>;

  constructor(sums: UsageSums, limits: PeerUsageLimits) {
    this.#leaseMs = limits.leaseMs;
    this.#peers = new PeerTable<OriginUsage>({
      maxPeers: limits.maxOrigins,
      leaseMs: limits.leaseMs,
      begin: (origin) => new OriginUsage(origin, sums, limits),
      succeed(known, origin) {
        known.beginEpoch(origin);
        return known;
      },
    });
  }

  /** @returns what the frame brought */
  receive(frame: UsageFrame, nowMs: number): "news" | "stale" | "unknown" {
    const origin = this.#peers.of(frame.origin, nowMs);
    if (!origin) return "unknown";
    return origin.apply(frame, nowMs) ? "news" : "stale";
  }

  /** Ends expired leases. */
  expire(nowMs: number): void {
    for (const origin of this.#peers) if (nowMs - origin.heardMs > this.#leaseMs) this.#peers.forget(origin, nowMs);
  }

  /** Forgets tenants that have almost nothing left. */
  sweep(nowMs: number): void {
    for (const origin of this.#peers) origin.forgetBelow(leastTokens, nowMs);
  }

  /** Silence of the router that counts and was heard longest ago; 0 when there is none. */
  ageMs(nowMs: number): number {
    let oldestMs = nowMs;
    for (const { heardMs, tenants } of this.#peers) if (tenants > 0) oldestMs = Math.min(oldestMs, heardMs);
    return nowMs - oldestMs;
  }

  relayFrames(nowMs: number): readonly RelayFrame[] {
    return [...this.#peers].map((known) => {
      const { origin, counter, heardMs } = known;
      const relayedAgeMs = Math.max(0, nowMs - heardMs);
      return { origin, frame: writeUsageFrame({ origin, counter, relayedAgeMs, reports: known.reports(nowMs) }) };
    });
  }
}

interface Part extends UsagePart {
  waitsUntilMs: number;
  /** Of the frame with the report; -1 when it is of an earlier epoch of the router. */
  counter: number;
}

/**
 * What one other router has reported of its tenants: per tenant the report with the highest counter, in whatever order
 * reports arrive. What an earlier epoch has served stays until the later one reports the same tenant.
 */
class OriginUsage extends Heard implements Peer {
  origin: Origin;
  readonly #sums: UsageSums;
  readonly #limits: PeerUsageLimits;
  /** The one reported latest last. */
  readonly #parts = new Map<number, Part>();

  constructor(origin: Origin, sums: UsageSums, limits: PeerUsageLimits) {
    super();
    this.origin = origin;
    this.#sums = sums;
    this.#limits = limits;
  }

  get tenants(): number {
    return this.#parts.size;
  }

  /** Takes a frame of this epoch. @returns whether it had any news */
  apply(frame: UsageFrame, nowMs: number): boolean {
    let isNews = this.hear(frame, nowMs);
    for (const report of frame.reports) if (this.#report(report, nowMs)) isNews = true;
    return isNews;
  }

  beginEpoch(origin: Origin): void {
    this.origin = origin;
    this.counter = -1;
    for (const part of this.#parts.values()) part.counter = -1;
  }

  /** What this epoch reported, as it is by now. */
  reports(nowMs: number): readonly UsageReport[] {
    const reports: UsageReport[] = [];
    for (const { key, counter, served, lift, waitsUntilMs } of this.#parts.values()) {
      if (counter < 0) continue;
      const [tokens, lifted] = [Math.round(served.at(nowMs)), Math.round(lift.at(nowMs))];
      reports.push({ key, counter, tokens, lift: lifted, isWaiting: waitsUntilMs > nowMs });
    }
    return reports;
  }

  /** Forgets those that have less than `tokens` by now. */
  forgetBelow(tokens: number, nowMs: number): void {
    for (const part of this.#parts.values()) {
      if (Math.max(part.served.at(nowMs), part.lift.at(nowMs)) < tokens) this.#forget(part, nowMs);
    }
  }

  clear(nowMs: number): void {
    this.forgetBelow(Number.POSITIVE_INFINITY, nowMs);
  }

  #report({ key, counter, tokens, lift, isWaiting }: UsageReport, nowMs: number): boolean {
    const part = this.#parts.get(key) ?? newPart(key);
    if (counter <= part.counter) return false;
    part.counter = counter;
    part.served.set(tokens, nowMs);
    part.lift.set(lift, nowMs);
    part.waitsUntilMs = isWaiting ? nowMs + this.#limits.waitLeaseMs : Number.NEGATIVE_INFINITY;
    this.#parts.delete(key);
    this.#evictOldest(nowMs);
    this.#parts.set(key, part);
    this.#sums.changed(part, nowMs);
    return true;
  }

  #evictOldest(nowMs: number): void {
    if (this.#parts.size < this.#limits.maxTenantsOfRouter) return;
    for (const oldest of this.#parts.values()) {
      this.#forget(oldest, nowMs);
      return;
    }
  }

  #forget(part: Part, nowMs: number): void {
    this.#parts.delete(part.key);
    this.#sums.remove(part, nowMs);
  }
}

function newPart(key: number): Part {
  const [served, lift] = [new DecayedSum(usageHalfLifeMs), new DecayedSum(usageHalfLifeMs)];
  return { key, counter: -1, served, lift, waitsUntilMs: Number.NEGATIVE_INFINITY };
}
