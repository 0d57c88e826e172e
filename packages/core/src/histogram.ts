/** Counts of observations by upper bound, as Prometheus keeps them. */
export class Histogram {
  readonly bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;

  /** @param bounds ascending, without infinity; a value equal to a bound counts into its bucket */
  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  get sum(): number {
    return this.#sum;
  }

  observe(value: number): void {
    let at = 0;
    while (at < this.bounds.length && value > this.bounds[at]!) at++;
    this.#counts[at]! += 1;
    this.#sum += value;
  }

  /** How many values were at most each bound, and last how many there were. */
  cumulative(): number[] {
    let count = 0;
    return Array.from(this.#counts, (more) => (count += more));
  }
}
