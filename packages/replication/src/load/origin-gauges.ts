import type { TargetSlots } from "../facts/target-slots.ts";
import type { Origin } from "../origin.ts";
import { idleGauge, isIdle } from "./gauge-values.ts";
import type { LoadGauge } from "./load-exchange.ts";
import type { CoveredNumbers, GaugeReport, LoadFrame } from "./load-frame.ts";
import type { Heard, LoadSums } from "./load-sums.ts";

/** One target of an origin. */
interface KnownGauge {
  readonly number: number;
  readonly key: string;
  /** Of the frame that told the gauge. */
  counter: number;
  /** -1 while the target has no slot here. */
  slot: number;
  gauge: LoadGauge;
}

export interface OriginGaugesOptions {
  readonly origin: Origin;
  readonly sums: LoadSums;
  readonly slots: TargetSlots;
  readonly maxTargets: number;
}

/**
 * What one life of another router has said of its load. Of every target the report with the highest counter counts, in
 * whatever order reports come. While the origin is heard its gauges are in the sums; once it is silent for too long
 * they are kept beside them.
 */
export class OriginGauges implements Heard {
  readonly origin: Origin;
  heardMs = Number.NEGATIVE_INFINITY;
  /** The highest of all frames. */
  counter = -1;
  isExpired = false;
  /** Its process is gone, by what is known; only later frames can tell otherwise. */
  isGone = false;
  /** Reports that found no room. */
  refused = 0;
  readonly #options: OriginGaugesOptions;
  readonly #gauges = new Map<number, KnownGauge>();
  /** Those whose targets have no slot here, by key. */
  readonly #elsewhere = new Map<string, KnownGauge>();
  /** Counter of the newest frame that covered all numbers: what it did not report, and no later frame did, is idle. */
  #coveredAt = -1;
  /** The origin has told of every number below. */
  #toldTo = 0;

  constructor(options: OriginGaugesOptions) {
    this.origin = options.origin;
    this.#options = options;
  }

  /** Each of its targets has been told of. */
  get isWhole(): boolean {
    return this.#toldTo === Number.POSITIVE_INFINITY;
  }

  /** Targets that have load. */
  get targets(): number {
    let count = 0;
    for (const { gauge } of this.#gauges.values()) if (!isIdle(gauge)) count += 1;
    return count;
  }

  get inFlight(): number {
    let sum = 0;
    for (const { gauge } of this.#gauges.values()) sum += gauge.inFlight;
    return sum;
  }

  /**
   * Takes a frame of this origin.
   *
   * @returns whether it said anything new
   */
  apply(frame: LoadFrame, nowMs: number): boolean {
    let isNews = false;
    if (frame.counter > this.counter) {
      isNews = true;
      this.isGone = false;
      this.counter = frame.counter;
      // A relay repeats what it has heard: that does not make it any younger.
      this.heardMs = Math.max(this.heardMs, nowMs - (frame.relayedAgeMs ?? 0));
    }
    for (const report of frame.reports) if (this.#report(report)) isNews = true;
    if (frame.covers) this.#cover(frame.covers, frame.counter);
    return isNews;
  }

  /** Everything known, for a peer that cannot hear the origin. */
  reports(): GaugeReport[] {
    return [...this.#gauges.values()].map(({ number, key, counter, gauge }) => ({ number, key, counter, ...gauge }));
  }

  /** Takes the gauges out of the sums, to be remembered beside them. */
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
  clear(): void {
    this.isGone = true;
    for (const known of this.#gauges.values()) this.#leave(known);
    this.#gauges.clear();
    this.#elsewhere.clear();
    this.#coveredAt = this.counter;
    this.#toldTo = 0;
  }

  /** The slot of a target is about to be given up. */
  release(key: string): void {
    for (const known of this.#gauges.values()) {
      if (known.key !== key) continue;
      this.#leave(known);
      this.#place(known, -1);
    }
  }

  /** A target has a slot now. */
  slotTaken(key: string): void {
    const known = this.#elsewhere.get(key);
    if (!known) return;
    this.#place(known, this.#options.slots.find(key));
    this.#enter(known);
  }

  #report(report: GaugeReport): boolean {
    let known = this.#gauges.get(report.number);
    if (!known) {
      // What an unknown number stands for comes with a later heartbeat.
      if (report.key === undefined || report.counter <= this.#coveredAt || !this.#hasRoom()) return false;
      known = { number: report.number, key: report.key, counter: -1, slot: -1, gauge: idleGauge };
      this.#gauges.set(report.number, known);
    }
    if (report.counter <= known.counter) return false;
    known.counter = report.counter;
    this.#change(known, report);
    return true;
  }

  #change(known: KnownGauge, report: LoadGauge): void {
    const { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs, activeTokens } = report;
    const { sums, slots } = this.#options;
    const gauge = { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs, activeTokens };
    if (known.slot >= 0 && !this.isExpired && !isIdle(known.gauge) && !isIdle(gauge)) {
      sums.replace(known.slot, known.gauge, gauge);
      known.gauge = gauge;
      return;
    }
    this.#leave(known);
    known.gauge = gauge;
    if (known.slot < 0) this.#place(known, slots.find(known.key));
    this.#enter(known);
  }

  #cover({ from, to }: CoveredNumbers, counter: number): void {
    if (from <= this.#toldTo) this.#toldTo = Math.max(this.#toldTo, to);
    if (from === 0 && to === Number.POSITIVE_INFINITY) this.#coveredAt = Math.max(this.#coveredAt, counter);
    for (const known of this.#gauges.values()) {
      if (known.number < from || known.number >= to || known.counter >= counter) continue;
      this.#leave(known);
      this.#drop(known);
    }
  }

  #place(known: KnownGauge, slot: number): void {
    known.slot = slot;
    if (slot < 0) this.#elsewhere.set(known.key, known);
    else this.#elsewhere.delete(known.key);
  }

  #drop(known: KnownGauge): void {
    this.#gauges.delete(known.number);
    if (this.#elsewhere.get(known.key) === known) this.#elsewhere.delete(known.key);
  }

  #hasRoom(): boolean {
    if (this.#gauges.size < this.#options.maxTargets) return true;
    for (const known of this.#gauges.values()) if (isIdle(known.gauge)) this.#drop(known);
    if (this.#gauges.size < this.#options.maxTargets) return true;
    this.refused += 1;
    return false;
  }

  #moveAll(move: () => void): void {
    for (const known of this.#gauges.values()) this.#leave(known);
    move();
    for (const known of this.#gauges.values()) this.#enter(known);
  }

  #enter({ slot, gauge }: KnownGauge): void {
    if (slot < 0 || isIdle(gauge)) return;
    if (this.isExpired) this.#options.sums.addExpired(slot, gauge.inFlight);
    else this.#options.sums.add(slot, gauge, this);
  }

  #leave({ slot, gauge }: KnownGauge): void {
    if (slot < 0 || isIdle(gauge)) return;
    if (this.isExpired) this.#options.sums.addExpired(slot, -gauge.inFlight);
    else this.#options.sums.remove(slot, gauge, this);
  }
}
