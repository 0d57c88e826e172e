/** Each bin of a window is so much wider than the one before, which bounds the error of a quantile to half of it. */
const binGrowth = 1.05;
const logOfGrowth = Math.log(binGrowth);
/** From 1 ms to 10 minutes; what is longer counts as that. */
const binCount = 274;

/** Counts latencies in bins, for their quantiles. */
export class LatencyWindow {
  readonly #bins = new Uint32Array(binCount);
  #count = 0;

  add(milliseconds: number): void {
    const bin = Math.ceil(Math.log(Math.max(milliseconds, 1)) / logOfGrowth);
    this.#bins[Math.min(bin, binCount - 1)]!++;
    this.#count++;
  }

  /** NaN when nothing was added. */
  quantileMs(q: number): number {
    if (this.#count === 0) return Number.NaN;
    const rank = Math.max(1, Math.ceil(q * this.#count));
    let bin = 0;
    for (let below = this.#bins[0]!; below < rank; below += this.#bins[bin]!) bin++;
    return binGrowth ** (bin - 0.5);
  }

  clear(): void {
    if (this.#count === 0) return;
    this.#bins.fill(0);
    this.#count = 0;
  }
}
