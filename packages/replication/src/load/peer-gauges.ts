import type { Clock, RouterId } from "@espalier/common";
import type { TargetSlots } from "../facts/target-slots.ts";
import { type Origin, originKey } from "../origin.ts";
import { type LoadFrame, writeLoadFrame } from "./load-frame.ts";
import type { LoadLimits } from "./load-limits.ts";
import type { LoadMeters } from "./load-meters.ts";
import type { LoadSums } from "./load-sums.ts";
import { OriginGauges } from "./origin-gauges.ts";
import { splitReports } from "./split-reports.ts";

/** One other router, for operators. */
export interface LoadOrigin {
  readonly router: RouterId;
  readonly epoch: number;
  readonly ageMs: number;
  /** Until its gauges leave the sums; 0 when they have. */
  readonly leaseLeftMs: number;
  /** Targets that have load of it. */
  readonly targets: number;
  readonly inFlight: number;
}

export interface PeerGaugesOptions {
  readonly sums: LoadSums;
  readonly slots: TargetSlots;
  readonly clock: Clock;
  readonly limits: LoadLimits;
  readonly meters: LoadMeters;
}

/** The gauges of all other routers: of each the newest life, as long as it is heard. */
export class PeerGauges {
  readonly #options: PeerGaugesOptions;
  readonly #origins = new Map<RouterId, OriginGauges>();

  constructor(options: PeerGaugesOptions) {
    this.#options = options;
  }

  /** @returns what the frame was good for */
  receive(frame: LoadFrame): "news" | "stale" | "unknown" {
    const { clock, meters, limits } = this.#options;
    const nowMs = clock.nowMs();
    const origin = this.#originOf(frame.origin, nowMs);
    if (!origin) return "unknown";
    const heardBeforeMs = origin.heardMs;
    const refusedBefore = origin.refused;
    const isNews = origin.apply(frame, nowMs);
    if (origin.refused > refusedBefore) meters.refusedTarget();
    if (origin.isExpired && origin.heardMs > heardBeforeMs && nowMs - origin.heardMs < limits.leaseMs) origin.revive();
    if (frame.relayedAgeMs === undefined && isNews) meters.lag(Math.max(0, clock.wallMs() - frame.sentWallMs));
    this.#tellTotals();
    return isNews ? "news" : "stale";
  }

  hasAllOf({ router, epoch }: Origin): boolean {
    const origin = this.#origins.get(router);
    return origin?.origin.epoch === epoch && origin.isWhole && !origin.isExpired && !origin.isGone;
  }

  gone({ router, epoch }: Origin): void {
    const origin = this.#origins.get(router);
    if (!origin || origin.origin.epoch > epoch) return;
    origin.clear();
    this.#tellTotals();
  }

  /** @returns the routers whose leases have just ended */
  expire(): Origin[] {
    const { clock, limits, meters } = this.#options;
    const nowMs = clock.nowMs();
    const expired: Origin[] = [];
    for (const origin of this.#origins.values()) {
      const ageMs = nowMs - origin.heardMs;
      if (origin.isExpired) {
        if (ageMs > limits.rememberMs && !origin.isGone) origin.clear();
      } else if (ageMs > limits.leaseMs) {
        origin.expire();
        if (origin.isGone) continue;
        expired.push(origin.origin);
        meters.expired();
      }
    }
    this.#tellTotals();
    return expired;
  }

  /** Samples how old the gauges in the sums are. */
  observeAges(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const { isExpired, isGone, heardMs } of this.#origins.values()) {
      if (!isExpired && !isGone) this.#options.meters.age(nowMs - heardMs);
    }
  }

  relayFrames(): { origin: Origin; frame: Uint8Array }[] {
    const nowMs = this.#options.clock.nowMs();
    const sentWallMs = Math.floor(this.#options.clock.wallMs());
    const frames: { origin: Origin; frame: Uint8Array }[] = [];
    for (const known of this.#origins.values()) {
      const { origin, counter } = known;
      if (known.isExpired || known.isGone) continue;
      for (const reports of splitReports(known.reports())) {
        const relayedAgeMs = Math.max(0, nowMs - known.heardMs);
        frames.push({
          origin,
          frame: writeLoadFrame({ origin, counter, sentWallMs, relayedAgeMs, covers: undefined, reports }),
        });
      }
    }
    return frames;
  }

  /** A target's slot is about to be given up. */
  release(target: string): void {
    for (const origin of this.#origins.values()) origin.release(target);
  }

  slotTaken(target: string): void {
    for (const origin of this.#origins.values()) origin.slotTaken(target);
  }

  describe(): LoadOrigin[] {
    const { clock, limits } = this.#options;
    const nowMs = clock.nowMs();
    return [...this.#origins.values()]
      .filter(({ isGone }) => !isGone)
      .map((known) => {
        const ageMs = nowMs - known.heardMs;
        const leaseLeftMs = known.isExpired ? 0 : Math.max(0, limits.leaseMs - ageMs);
        return { ...known.origin, ageMs, leaseLeftMs, targets: known.targets, inFlight: known.inFlight };
      })
      .sort((one, other) => (originKey(one) < originKey(other) ? -1 : 1));
  }

  /** The life that a frame speaks for; undefined when it is an earlier one, or one router too many. */
  #originOf(origin: Origin, nowMs: number): OriginGauges | undefined {
    const known = this.#origins.get(origin.router);
    if (known && known.origin.epoch === origin.epoch) return known;
    if (known) {
      if (known.origin.epoch > origin.epoch) return undefined;
      known.clear();
    } else if (this.#origins.size >= this.#options.limits.maxOrigins && !this.#forgetOne(nowMs)) return undefined;
    const { sums, slots, limits } = this.#options;
    const begun = new OriginGauges({ origin, sums, slots, maxTargets: limits.maxTargets });
    this.#origins.set(origin.router, begun);
    return begun;
  }

  /** Makes room by forgetting the router that is silent for longest. */
  #forgetOne(nowMs: number): boolean {
    let oldest: OriginGauges | undefined;
    for (const origin of this.#origins.values()) {
      if (nowMs - origin.heardMs <= this.#options.limits.leaseMs) continue;
      if (!oldest || origin.heardMs < oldest.heardMs) oldest = origin;
    }
    if (!oldest) return false;
    oldest.clear();
    return this.#origins.delete(oldest.origin.router);
  }

  #tellTotals(): void {
    const { sums } = this.#options;
    sums.originCount = 0;
    for (const { isExpired, isGone } of this.#origins.values()) if (!isExpired && !isGone) sums.originCount++;
    this.#options.meters.phantom(sums.expiredTotal);
  }
}
