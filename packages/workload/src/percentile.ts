/**
 * The p-th percentile with linear interpolation between the nearest ranks, as `numpy.percentile` computes it by
 * default; vLLM's and SGLang's serving benchmarks report their percentiles that way.
 *
 * @param ascending sorted values, at least one
 * @param percent 0 to 100
 */
export function percentile(ascending: Float64Array, percent: number): number {
  const rank = ((ascending.length - 1) * percent) / 100;
  const below = Math.floor(rank);
  const low = ascending[below]!;
  const high = ascending[Math.min(below + 1, ascending.length - 1)]!;
  return low + (high - low) * (rank - below);
}
