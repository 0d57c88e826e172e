import { type GaugeColumns, idleGauge, type LoadGauge, mapGauge, replaceInSums } from "./load-gauge.ts";

/** Sums over the other routers with running leases, by slot of the target. Read on the request path. */
export type SharedLoad = Omit<LoadSums, "expiredInFlight" | "add" | "remove" | "replace">;

/** The load of a router that hears no other. */
export const noSharedLoad = (): SharedLoad => new LoadSums(0, () => 0);

interface Contributor {
  /** When it was last heard, on the monotonic clock. */
  readonly heardMs: number;
  /** How long what it says is on its way: moments that are heard lie so far back. */
  readonly linkDelayMs: number;
}

const Columns = class {
  constructor(capacity: number) {
    Object.assign(
      this,
      mapGauge(idleGauge, () => new Float64Array(capacity)),
    );
  }
} as new (
  capacity: number,
) => GaugeColumns;

/**
 * Sums of gauges by slot. All gauges are whole numbers and the sums stay below 2^53, so adding and removing a gauge
 * leaves exactly zero.
 */
export class LoadSums extends Columns {
  /**
   * All pending work that was heard to arrive since `sinceMs`; it never decreases. Work that arrived and was computed
   * between two frames is not in it.
   */
  readonly sentWorkMs: Float64Array;
  /** When that work last decreased, as far as it is heard, on the monotonic clock; -Infinity before the first time. */
  readonly computedMs: Float64Array;
  /** Since when there has been such work without a break; Infinity where there is none. */
  readonly pendingSinceMs: Float64Array;
  /** Since when other routers are heard, on the same clock. */
  readonly sinceMs: number;
  /** Requests in flight by the last reports of silent origins: they may still be streaming. */
  expiredInFlight = 0;
  /** Other routers whose leases run. */
  originCount = 0;
  /** Mean time, one way, of the links to them; 0 while nothing is measured. */
  linkDelayMs = 0;
  readonly #contributors: Contributor[][];
  readonly #nowMs: () => number;

  constructor(capacity: number, nowMs: () => number) {
    super(capacity);
    const column = (): Float64Array => new Float64Array(capacity);
    this.sentWorkMs = column();
    this.computedMs = column().fill(Number.NEGATIVE_INFINITY);
    this.pendingSinceMs = column().fill(Number.POSITIVE_INFINITY);
    this.#contributors = Array.from({ length: capacity }, () => []);
    this.#nowMs = nowMs;
    this.sinceMs = nowMs();
  }

  /** Milliseconds since the oldest gauge in the sums was heard; 0 when there is none. */
  ageMs(slot: number): number {
    const contributors = this.#contributors[slot];
    if (!contributors || contributors.length === 0) return 0;
    let oldestMs = Number.POSITIVE_INFINITY;
    for (let index = 0; index < contributors.length; index++) {
      oldestMs = Math.min(oldestMs, contributors[index]!.heardMs);
    }
    return Math.max(0, this.#nowMs() - oldestMs);
  }

  /** Adds the gauge of an origin that has nothing in the sums at this slot. */
  add(slot: number, gauge: LoadGauge, by: Contributor): void {
    this.#change(slot, idleGauge, gauge, by);
    this.#contributors[slot]!.push(by);
  }

  /** Removes what `add` added. */
  remove(slot: number, gauge: LoadGauge, by: Contributor): void {
    this.#change(slot, gauge, idleGauge, by);
    const contributors = this.#contributors[slot]!;
    const at = contributors.indexOf(by);
    contributors[at] = contributors.at(-1)!;
    contributors.pop();
  }

  /** Replaces what `add` added. */
  replace(slot: number, was: LoadGauge, is: LoadGauge, by: Contributor): void {
    this.#change(slot, was, is, by);
  }

  #change(slot: number, was: LoadGauge, is: LoadGauge, { linkDelayMs }: Contributor): void {
    replaceInSums(this, slot, was, is);
    const workMs = is.pendingWorkMs - was.pendingWorkMs;
    if (workMs > 0) this.sentWorkMs[slot]! += workMs;
    const atMs = this.#nowMs() - linkDelayMs;
    if (workMs < 0) this.computedMs[slot] = Math.max(this.computedMs[slot]!, atMs);
    if (this.pendingWorkMs[slot] === 0) this.pendingSinceMs[slot] = Number.POSITIVE_INFINITY;
    else if (this.pendingSinceMs[slot] === Number.POSITIVE_INFINITY) this.pendingSinceMs[slot] = atMs;
  }
}
