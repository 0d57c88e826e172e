import type { Clock, RouterId } from "@espalier/core";
import { type Origin, originKey, PeerRows, PeerTable, type RelayFrame } from "@espalier/mesh";
import type { TargetSlots } from "../facts/target-slots.ts";
import { type CoveredNumbers, type GaugeReport, type LoadFrame, splitReports, writeLoadFrame } from "./load-frame.ts";
import { idleGauge, isIdle, type LoadGauge, pickGauge } from "./load-gauge.ts";
import type { LoadMeters } from "./load-plane.ts";
import type { LoadSums } from "./load-sums.ts";

/** One other router, for operators. */
export interface LoadOrigin {
  readonly router: RouterId;
  readonly epoch: number;
  readonly ageMs: number;
  /** Until its gauges leave the sums; 0 when they have. */
  readonly leaseRemainingMs: number;
  /** Targets where it has load. */
  readonly targets: number;
  readonly inFlight: number;
}

/** Bounds and times for what other routers report. Times in milliseconds on the monotonic clock. */
export interface PeerGaugesLimits {
  /** Routers whose gauges are kept, dead ones included while they are remembered. */
  readonly maxOrigins: number;
  /** Targets where one router has load at a time. */
  readonly maxTargets: number;
  /** A router that was not heard for so long counts as unknown. */
  readonly leaseMs: number;
  /** The last gauges of an unknown router are remembered for so long. */
  readonly rememberMs: number;
}

export interface PeerGaugesOptions {
  readonly sums: LoadSums;
  readonly slots: TargetSlots;
  readonly clock: Clock;
  readonly limits: PeerGaugesLimits;
  readonly meters: Pick<LoadMeters, "lag" | "age" | "phantom" | "expired" | "refusedTarget">;
}

/** A link that takes longer counts as one that takes so long: a peer may answer probes as late as it likes. */
export const maxLinkDelayMs = 250;

/** The gauges of all other routers: the newest epoch of each, while it is heard. */
export class PeerGauges {
  readonly #options: PeerGaugesOptions;
  readonly #origins: PeerTable<OriginGauges>;
  #hasNewTotals = false;

  constructor(options: PeerGaugesOptions) {
    const { sums, slots, clock, limits } = options;
    const { maxOrigins: maxPeers, maxTargets, leaseMs } = limits;
    this.#options = options;
    this.#origins = new PeerTable<OriginGauges>({
      ...{ clock, maxPeers, leaseMs, laterEpochReplaces: "all" },
      begin: (origin) => {
        this.#hasNewTotals = true;
        return new OriginGauges({ origin, sums, slots, maxTargets });
      },
    });
  }

  /** @returns what the frame brought */
  receive(frame: LoadFrame, linkDelayMs: number): "news" | "stale" | "unknown" {
    const { clock, meters, limits, sums } = this.#options;
    const nowMs = clock.nowMs();
    const origin = this.#origins.of(frame.origin);
    if (!origin) return "unknown";
    const heardBeforeMs = origin.heardMs;
    const refusedBefore = origin.refused;
    const before = { counts: origin.counts, linkDelayMs: origin.linkDelayMs, phantom: sums.expiredInFlight };
    if (linkDelayMs >= 0) origin.linkDelayMs = Math.min(maxLinkDelayMs, linkDelayMs);
    const isNews = origin.apply(frame, nowMs);
    if (origin.refused > refusedBefore) meters.refusedTarget();
    if (origin.isExpired && origin.heardMs > heardBeforeMs && nowMs - origin.heardMs < limits.leaseMs) origin.revive();
    if (frame.relayedAgeMs === undefined && isNews) meters.lag(clock.wallMs() - frame.sentWallMs);
    const isSame = origin.counts === before.counts && origin.linkDelayMs === before.linkDelayMs;
    // They are of all origins, and most frames change nothing about them.
    if (this.#hasNewTotals || !isSame || sums.expiredInFlight !== before.phantom) this.#tellTotals();
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

  /** Ends expired leases. */
  expire(): void {
    const { clock, limits, meters } = this.#options;
    const nowMs = clock.nowMs();
    for (const origin of this.#origins) {
      const ageMs = nowMs - origin.heardMs;
      if (origin.isExpired) {
        if (ageMs > limits.rememberMs && !origin.isGone) origin.clear();
      } else if (ageMs > limits.leaseMs) {
        origin.expire();
        if (!origin.isGone) meters.expired();
      }
    }
    this.#tellTotals();
  }

  /** Samples how old the gauges in the sums are. */
  observeAges(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const { counts, heardMs } of this.#origins) {
      if (counts) this.#options.meters.age(nowMs - heardMs);
    }
  }

  relayFrames(): readonly RelayFrame[] {
    const nowMs = this.#options.clock.nowMs();
    const sentWallMs = Math.floor(this.#options.clock.wallMs());
    const frames: RelayFrame[] = [];
    for (const known of this.#origins) {
      const { origin, counter } = known;
      if (!known.counts) continue;
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

  /** A target's slot is about to be released. */
  release(target: string): void {
    for (const origin of this.#origins) origin.release(target);
  }

  slotAssigned(target: string): void {
    for (const origin of this.#origins) origin.slotAssigned(target);
  }

  describe(): LoadOrigin[] {
    const { clock, limits } = this.#options;
    const nowMs = clock.nowMs();
    return [...this.#origins]
      .filter(({ isGone }) => !isGone)
      .map((known) => {
        const ageMs = nowMs - known.heardMs;
        const leaseRemainingMs = known.isExpired ? 0 : Math.max(0, limits.leaseMs - ageMs);
        return { ...known.origin, ageMs, leaseRemainingMs, targets: known.targets, inFlight: known.inFlight };
      })
      .sort((one, other) => (originKey(one) < originKey(other) ? -1 : 1));
  }

  #tellTotals(): void {
    const { sums } = this.#options;
    let delaysMs = 0;
    sums.originCount = 0;
    this.#hasNewTotals = false;
    for (const { counts, linkDelayMs } of this.#origins) {
      if (!counts) continue;
      sums.originCount++;
      delaysMs += linkDelayMs;
    }
    sums.linkDelayMs = delaysMs / Math.max(1, sums.originCount);
    this.#options.meters.phantom(sums.expiredInFlight);
  }
}

/** One target of an origin. */
interface KnownGauge {
  /** Denotes the target in frames of the origin. */
  readonly key: number;
  readonly target: string;
  /** Of the frame that had the gauge. */
  counter: number;
  /** -1 while the target has no slot here. */
  slot: number;
  gauge: LoadGauge;
}

interface OriginGaugesOptions {
  readonly origin: Origin;
  readonly sums: LoadSums;
  readonly slots: TargetSlots;
  readonly maxTargets: number;
}

/**
 * The load of one epoch of another router. For every target the report with the highest counter counts, in whatever
 * order reports arrive. While the origin is heard its gauges are in the sums; once it is silent for too long they are
 * kept next to them.
 */
class OriginGauges extends PeerRows<number, KnownGauge> {
  isExpired = false;
  /** Its process is believed gone; only later frames can refute that. */
  isGone = false;
  /** One way, of the link by which its last frame came; 0 before it is measured. */
  linkDelayMs = 0;
  /** Reports beyond the bound. */
  refused = 0;
  readonly #options: OriginGaugesOptions;
  /** Gauges of targets without a slot here, by target. */
  readonly #elsewhere = new Map<string, KnownGauge>();
  /**
   * Counter of the newest frame that covered all numbers: a target that neither it nor a later frame reported is idle.
   */
  #coveredAt = -1;
  /** The origin has reported every number below. */
  #syncedTo = 0;

  constructor(options: OriginGaugesOptions) {
    super(options.origin, (known) => {
      this.#leave(known);
      if (this.#elsewhere.get(known.target) === known) this.#elsewhere.delete(known.target);
    });
    this.#options = options;
  }

  /** Whether its gauges are in the sums. */
  get counts(): boolean {
    return !this.isExpired && !this.isGone;
  }

  /** Whether each of its targets was reported. */
  get isWhole(): boolean {
    return this.#syncedTo === Number.POSITIVE_INFINITY;
  }

  /** Targets with load. */
  get targets(): number {
    let count = 0;
    for (const { gauge } of this.rows.values()) if (!isIdle(gauge)) count += 1;
    return count;
  }

  get inFlight(): number {
    let sum = 0;
    for (const { gauge } of this.rows.values()) sum += gauge.inFlight;
    return sum;
  }

  /**
   * Takes a frame of this origin.
   *
   * @returns whether it had any news
   */
  apply(frame: LoadFrame, nowMs: number): boolean {
    let isNews = this.hear(frame, nowMs);
    if (isNews) this.isGone = false;
    for (const report of frame.reports) if (this.#report(report)) isNews = true;
    if (frame.covers) this.#cover(frame.covers, frame.counter);
    return isNews;
  }

  /** Everything known, for a peer that cannot hear the origin. */
  reports(): GaugeReport[] {
    return [...this.rows.values()].map(({ key: number, target: key, counter, gauge }) => ({
      number,
      key,
      counter,
      ...gauge,
    }));
  }

  /** Moves the gauges out of the sums; they are remembered next to them. */
  expire(): void {
    this.#moveAll(() => {
      this.isExpired = true;
    });
  }

  /** Puts them back: the origin was heard again. */
  revive(): void {
    this.#moveAll(() => {
      this.isExpired = false;
    });
  }

  /** Nothing is in flight any more. */
  override clear(): void {
    this.isGone = true;
    super.clear();
    this.#coveredAt = this.counter;
    this.#syncedTo = 0;
  }

  /** The slot of a target is about to be released. */
  release(target: string): void {
    for (const known of this.rows.values()) {
      if (known.target !== target) continue;
      this.#leave(known);
      this.#place(known, -1);
    }
  }

  /** A target has a slot now. */
  slotAssigned(target: string): void {
    const known = this.#elsewhere.get(target);
    if (!known) return;
    this.#place(known, this.#options.slots.find(target));
    this.#enter(known);
  }

  #report(report: GaugeReport): boolean {
    let known = this.rows.get(report.number);
    if (!known) {
      // A later heartbeat names the target of an unknown number.
      if (report.key === undefined || report.counter <= this.#coveredAt || !this.#hasCapacity()) return false;
      known = { key: report.number, target: report.key, counter: -1, slot: -1, gauge: idleGauge };
      this.rows.set(report.number, known);
    }
    if (report.counter <= known.counter) return false;
    known.counter = report.counter;
    this.#change(known, report);
    return true;
  }

  #change(known: KnownGauge, report: LoadGauge): void {
    const { sums, slots } = this.#options;
    const gauge = pickGauge(report);
    if (known.slot >= 0 && !this.isExpired && !isIdle(known.gauge) && !isIdle(gauge)) {
      sums.replace(known.slot, known.gauge, gauge, this);
      known.gauge = gauge;
      return;
    }
    this.#leave(known);
    known.gauge = gauge;
    if (known.slot < 0) this.#place(known, slots.find(known.target));
    this.#enter(known);
  }

  #cover({ from, to }: CoveredNumbers, counter: number): void {
    if (from <= this.#syncedTo) this.#syncedTo = Math.max(this.#syncedTo, to);
    if (from === 0 && to === Number.POSITIVE_INFINITY) this.#coveredAt = Math.max(this.#coveredAt, counter);
    for (const known of this.rows.values()) {
      if (known.key < from || known.key >= to || known.counter >= counter) continue;
      this.remove(known);
    }
  }

  #place(known: KnownGauge, slot: number): void {
    known.slot = slot;
    if (slot < 0) this.#elsewhere.set(known.target, known);
    else this.#elsewhere.delete(known.target);
  }

  #hasCapacity(): boolean {
    if (this.rows.size < this.#options.maxTargets) return true;
    for (const known of this.rows.values()) if (isIdle(known.gauge)) this.remove(known);
    if (this.rows.size < this.#options.maxTargets) return true;
    this.refused += 1;
    return false;
  }

  #moveAll(move: () => void): void {
    for (const known of this.rows.values()) this.#leave(known);
    move();
    for (const known of this.rows.values()) this.#enter(known);
  }

  #enter({ slot, gauge }: KnownGauge): void {
    if (slot < 0 || isIdle(gauge)) return;
    if (this.isExpired) this.#options.sums.expiredInFlight += gauge.inFlight;
    else this.#options.sums.add(slot, gauge, this);
  }

  #leave({ slot, gauge }: KnownGauge): void {
    if (slot < 0 || isIdle(gauge)) return;
    if (this.isExpired) this.#options.sums.expiredInFlight -= gauge.inFlight;
    else this.#options.sums.remove(slot, gauge, this);
  }
}
