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
  readonly outstandingOutputTokens: Float64Array;
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
    this.outstandingOutputTokens = column();
    this.expiredInFlight = column();
    this.#contributors = Array.from({ length: capacity }, () => []);
    this.#nowMs = nowMs;
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
    this.#change(slot, gauge, 1);
    this.#contributors[slot]!.push(by);
  }

  /** Takes out what `add` added. */
  remove(slot: number, gauge: LoadGauge, by: Heard): void {
    this.#change(slot, gauge, -1);
    const contributors = this.#contributors[slot]!;
    const at = contributors.indexOf(by);
    contributors[at] = contributors.at(-1)!;
    contributors.pop();
  }

  /** Replaces what `add` added. */
  replace(slot: number, was: LoadGauge, is: LoadGauge): void {
    this.#change(slot, was, -1);
    this.#change(slot, is, 1);
  }

  addExpired(slot: number, inFlight: number): void {
    this.expiredInFlight[slot]! += inFlight;
    this.expiredTotal += inFlight;
  }

  #change(slot: number, gauge: LoadGauge, sign: 1 | -1): void {
    this.inFlight[slot]! += sign * gauge.inFlight;
    this.pendingPrefillTokens[slot]! += sign * gauge.pendingPrefillTokens;
    this.decodeTokens[slot]! += sign * gauge.decodeTokens;
    this.outstandingOutputTokens[slot]! += sign * gauge.outstandingOutputTokens;
  }
}
