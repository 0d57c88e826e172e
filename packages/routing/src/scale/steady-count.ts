/** How long the load must stay low before engines are given up. */
export const steadyMs = 120_000;
const bucketMs = 10_000;
/** Engines are given up when the load of all that time would fit in fewer with this share of them to spare. */
const spareShare = 0.1;
/** Rounding errors must not ask for another engine. */
const epsilon = 1e-9;

/**
 * A whole number of engines that follows a noisy load: up at once, and down only when the highest load of the last two
 * minutes leaves a tenth of the smaller number to spare. A load that hovers about a whole number so does not move it.
 */
export class SteadyCount {
  /** The highest load of each bucket of time, by its number. */
  readonly #highest = new Map<number, number>();
  value = 0;

  /** @param load in engines @returns the number of engines */
  take(load: number, nowMs: number): number {
    const bucket = Math.floor(nowMs / bucketMs);
    this.#highest.set(bucket, Math.max(load, this.#highest.get(bucket) ?? 0));
    for (const known of this.#highest.keys()) if (known <= bucket - steadyMs / bucketMs) this.#highest.delete(known);
    const desired = Math.ceil(load - epsilon);
    const enough = Math.ceil(Math.max(...this.#highest.values()) / (1 - spareShare) - epsilon);
    if (desired > this.value) this.value = desired;
    else if (enough < this.value) this.value = enough;
    return this.value;
  }
}
