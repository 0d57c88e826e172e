/** Counts of observations by upper bound, as a Prometheus histogram keeps them. */
export interface Histogram {
  /** Upper bounds, ascending, without infinity. */
  readonly bounds: readonly number[];
  observe(value: number): void;
  /** How many values were at most each bound; one more entry than bounds, the last counting all. */
  cumulative(): number[];
  sum(): number;
}

export function createHistogram(bounds: readonly number[]): Histogram {
  const counts = new Float64Array(bounds.length + 1);
  let sum = 0;
  return {
    bounds,
    observe(value) {
      let at = 0;
      while (at < bounds.length && value > (bounds[at] as number)) at++;
      counts[at] = (counts[at] as number) + 1;
      sum += value;
    },
    cumulative() {
      let total = 0;
      return Array.from(counts, (count) => (total += count));
    },
    sum: () => sum,
  };
}
