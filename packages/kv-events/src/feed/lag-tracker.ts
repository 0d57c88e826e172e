/** How long a lowest value is believed, in milliseconds: clocks drift apart by up to 100 ppm, 6 ms in a minute. */
const windowMs = 60_000;

/**
 * The delay from an engine's clock to ours. The two clocks need not agree: the smallest difference of the last one to two
 * minutes is taken for the offset between them (plus the shortest way), and lag is what goes beyond it. In captures the
 * shortest way took 1-4 ms.
 */
export class LagTracker {
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #lowestMs = Number.POSITIVE_INFINITY;
  #lowestBeforeMs = Number.POSITIVE_INFINITY;

  /**
   * @param publishedMs engine's wall clock
   * @param receivedMs our wall clock
   * @param nowMs our monotonic clock
   * @returns milliseconds, not negative
   */
  observe(publishedMs: number, receivedMs: number, nowMs: number): number {
    const differenceMs = receivedMs - publishedMs;
    if (nowMs - this.#windowStartMs >= windowMs) {
      const isNext = nowMs - this.#windowStartMs < 2 * windowMs;
      this.#lowestBeforeMs = isNext ? this.#lowestMs : Number.POSITIVE_INFINITY;
      this.#lowestMs = Number.POSITIVE_INFINITY;
      this.#windowStartMs = nowMs;
    }
    this.#lowestMs = Math.min(this.#lowestMs, differenceMs);
    return differenceMs - Math.min(this.#lowestMs, this.#lowestBeforeMs);
  }

  /** Our clock minus the engine's, with the shortest way; undefined before the first message. Milliseconds. */
  get offsetMs(): number | undefined {
    const lowest = Math.min(this.#lowestMs, this.#lowestBeforeMs);
    return lowest === Number.POSITIVE_INFINITY ? undefined : lowest;
  }
}
