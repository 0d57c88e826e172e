import { type CoveredNumbers, maxLoadFrameReports, maxLoadKeyBytes, reportHeadBytes } from "./load-frame.ts";
import { gaugeBytes, idleGauge, isIdle, isSameGauge, type LoadGauge, mapGauge, maxGaugeValue } from "./load-gauge.ts";

/** What a frame says of one target, before the frame has a counter. */
export interface OwnReport extends LoadGauge {
  readonly number: number;
  readonly key: string | undefined;
}

/** A range of the own gauges, for routers that may have missed something. */
export interface OwnStretch {
  readonly covers: CoveredNumbers;
  readonly reports: readonly OwnReport[];
}

interface OwnGauge {
  readonly number: number;
  readonly key: string;
  /** Upper bound, for its report with the key. */
  readonly sizeBytes: number;
  now: LoadGauge;
  /** What the latest frame to all routers said. */
  sent: LoadGauge;
}

const encoder = new TextEncoder();

/** The gauges of this router, and which of them to send to others. */
export class OwnGauges {
  readonly #maxTargets: number;
  /** In the order of their numbers. */
  readonly #gauges = new Map<string, OwnGauge>();
  readonly #changed = new Set<OwnGauge>();
  #nextNumber = 0;
  /** Where the next range begins. */
  #cursor = 0;

  constructor(maxTargets: number) {
    this.#maxTargets = maxTargets;
  }

  get hasChanges(): boolean {
    return this.#changed.size > 0;
  }

  /**
   * @returns false when there is no capacity for another target
   * @throws RangeError for a key that is too long, and for numbers that are not whole and from 0
   */
  set(key: string, gauge: LoadGauge): boolean {
    const known = this.#gauges.get(key);
    const now = mapGauge(gauge, checkedValue);
    if (known && isSameGauge(known.now, now)) return true;
    const own = known ?? this.#begin(key);
    if (!own) return isIdle(now);
    own.now = now;
    this.#changed.add(own);
    return true;
  }

  /** Changes since the last call. */
  takeChanges(): OwnReport[] {
    const reports: OwnReport[] = [];
    for (const own of this.#changed) {
      // A router that joined while the target was idle does not know the number's target.
      if (!isSameGauge(own.now, own.sent)) reports.push(reportOf(own, isIdle(own.sent)));
      own.sent = own.now;
    }
    this.#changed.clear();
    return reports;
  }

  /** All gauges from the first number on, up to `maxBytes`. */
  whole(maxBytes: number): OwnStretch {
    return this.#stretch(0, maxLoadFrameReports, maxBytes);
  }

  /** The next few of all gauges, in turn. */
  nextStretch(maxReports: number): OwnStretch {
    const stretch = this.#stretch(this.#cursor, maxReports);
    this.#cursor = stretch.covers.to === Number.POSITIVE_INFINITY ? 0 : stretch.covers.to;
    return stretch;
  }

  /** Forgets what was sent: this router has begun another epoch. */
  forgetSent(): void {
    for (const own of this.#gauges.values()) {
      own.sent = idleGauge;
      this.#changed.add(own);
    }
  }

  #stretch(from: number, maxReports: number, maxBytes = Number.POSITIVE_INFINITY): OwnStretch {
    const reports: OwnReport[] = [];
    let sizeBytes = 0;
    for (const own of this.#gauges.values()) {
      if (own.number < from || (isIdle(own.now) && isIdle(own.sent))) continue;
      sizeBytes += own.sizeBytes + gaugeBytes(own.now);
      if (reports.length === maxReports || sizeBytes > maxBytes) return { covers: { from, to: own.number }, reports };
      reports.push(reportOf(own, true));
    }
    return { covers: { from, to: Number.POSITIVE_INFINITY }, reports };
  }

  #begin(key: string): OwnGauge | undefined {
    const keyBytes = encoder.encode(key).length;
    if (keyBytes > maxLoadKeyBytes) throw new RangeError(`a target's key is too long: ${key}`);
    if (this.#gauges.size >= this.#maxTargets && !this.#dropIdle()) return undefined;
    const sizeBytes = reportHeadBytes + keyBytes;
    const own = { number: this.#nextNumber++, key, sizeBytes, now: idleGauge, sent: idleGauge };
    this.#gauges.set(key, own);
    return own;
  }

  #dropIdle(): boolean {
    for (const [key, own] of this.#gauges) {
      if (!isIdle(own.now) || !isIdle(own.sent)) continue;
      this.#changed.delete(own);
      return this.#gauges.delete(key);
    }
    return false;
  }
}

function reportOf({ number, key, now }: OwnGauge, withKey: boolean): OwnReport {
  return { number, key: withKey ? key : undefined, ...now };
}

function checkedValue(value: number): number {
  if (!Number.isInteger(value) || value < 0)
    throw new RangeError(`a gauge must be a whole number from 0, not ${value}`);
  return Math.min(value, maxGaugeValue);
}
