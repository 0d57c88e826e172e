/**
 * How slow engines must be of which no prompt has been answered yet. They are alike as far as anybody knows, so what the slowest has
 * taken by now all of them will: who began last is not the one that is done first.
 */
export class UnlearnedPace {
  #slowest = { doneMs: 0, expectedMs: 1 };

  /**
   * How much of work is left.
   *
   * @param workMs what it should have taken
   * @param fixedMs what a step takes besides
   * @param doneMs since when it is computed
   * @returns milliseconds; of work that took as long as expected or longer, as long again
   */
  leftMs(workMs: number, fixedMs: number, doneMs: number): number {
    const expectedMs = workMs + fixedMs;
    if (doneMs * this.#slowest.expectedMs > this.#slowest.doneMs * expectedMs) this.#slowest = { doneMs, expectedMs };
    const takesMs = Math.max(expectedMs, (2 * this.#slowest.doneMs * expectedMs) / this.#slowest.expectedMs);
    return Math.min((takesMs * workMs) / expectedMs, takesMs - doneMs);
  }
}
