import { idleGauge } from "./gauge-values.ts";
import type { LoadGauge, SharedLoad } from "./load-exchange.ts";

/** When an origin was last heard, on the monotonic clock. */
export interface Heard {
  readonly heardMs: number;
}

/**
 * Sums of gauges by slot. All gauges are whole numbers and the sums stay below 2^53, so what was added and taken out again
 * leaves exactly zero.
 */
export class LoadSums implements SharedLoad {
  readonly inFlight: Float64Array;
  readonly pendingPrefillTokens: Float64Array;
  readonly decodeTokens: Float64Array;
  readonly pendingWorkMs: Float64Array;
  readonly activeTokens: Float64Array;
  readonly sentWorkMs: Float64Array;
  readonly computedMs: Float64Array;
  readonly pendingSinceMs: Float64Array;
  readonly sinceMs: number;
  /** Requests in flight by what silent origins last said. */
  readonly expiredInFlight: Float64Array;
  /** Of all slots. */
  expiredTotal = 0;
  originCount = 0;
  readonly #contributors: Heard[][];
  readonly #nowMs: () => number;

  constructor(capacity: number, nowMs: () => number) {
    const column = (): Float64Array => new Float64Array(capacity);
    this.inFlight = column();
    this.pendingPrefillTokens = column();
    this.decodeTokens = column();
    this.pendingWorkMs = column();
    this.activeTokens = column();
    this.sentWorkMs = column();
    this.computedMs = column().fill(Number.NEGATIVE_INFINITY);
    this.pendingSinceMs = column().fill(Number.POSITIVE_INFINITY);
    this.expiredInFlight = column();
    this.#contributors = Array.from({ length: capacity }, () => []);
    this.#nowMs = nowMs;
    this.sinceMs = nowMs();
  }

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
  add(slot: number, gauge: LoadGauge, by: Heard): void {
    this.#change(slot, idleGauge, gauge);
    this.#contributors[slot]!.push(by);
  }

  /** Takes out what `add` added. */
  remove(slot: number, gauge: LoadGauge, by: Heard): void {
    this.#change(slot, gauge, idleGauge);
    const contributors = this.#contributors[slot]!;
    const at = contributors.indexOf(by);
    contributors[at] = contributors.at(-1)!;
    contributors.pop();
  }

  /** Replaces what `add` added. */
  replace(slot: number, was: LoadGauge, is: LoadGauge): void {
    this.#change(slot, was, is);
  }

  addExpired(slot: number, inFlight: number): void {
    this.expiredInFlight[slot]! += inFlight;
    this.expiredTotal += inFlight;
  }

  #change(slot: number, was: LoadGauge, is: LoadGauge): void {
    this.inFlight[slot]! += is.inFlight - was.inFlight;
    this.pendingPrefillTokens[slot]! += is.pendingPrefillTokens - was.pendingPrefillTokens;
    this.decodeTokens[slot]! += is.decodeTokens - was.decodeTokens;
    this.activeTokens[slot]! += is.activeTokens - was.activeTokens;
    const workMs = is.pendingWorkMs - was.pendingWorkMs;
    this.pendingWorkMs[slot]! += workMs;
    if (workMs > 0) this.sentWorkMs[slot]! += workMs;
    if (workMs < 0) this.computedMs[slot] = this.#nowMs();
    if (this.pendingWorkMs[slot] === 0) this.pendingSinceMs[slot] = Number.POSITIVE_INFINITY;
    else if (this.pendingSinceMs[slot] === Number.POSITIVE_INFINITY) this.pendingSinceMs[slot] = this.#nowMs();
  }
}
