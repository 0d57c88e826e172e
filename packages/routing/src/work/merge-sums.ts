import { addMoments, type Moments, type SampleSums } from "@espalier/core";

/** The samples of one router. */
export interface ReportedSums extends SampleSums {
  /** Share that age leaves of them, 0 to 1. */
  readonly ageWeight: number;
}

export interface MergedSums extends SampleSums {
  /** Number of routers in it; those with old samples count for less. */
  readonly routers: number;
}

export interface MergeOptions {
  /** Coefficients relative to which the speeds of sums are compared. */
  readonly scale: readonly number[];
  /** Whether the coefficient, if there is one, is a logarithm. */
  readonly isLogarithm?: boolean;
  /** What this router has seen itself. */
  readonly own: SampleSums;
  /** With this many samples a router knows enough to judge others. */
  readonly enough: number;
  /** Coefficients below this share of `scale` count as zero. */
  readonly negligible?: number;
  /** Samples that a router may count for in any case, if values are shares of the whole. */
  readonly leastCounted?: number;
}

/** One router's estimate of a number, for comparing routers. */
interface Estimate {
  /** Logarithm of the number. */
  readonly log: number;
  /** Weight of the estimate. */
  readonly weight: number;
  /** Whether it has enough samples to judge others. */
  readonly isReliable: boolean;
}

/** A router that is off by this factor is an outlier: its engines or its clock differ. */
const outlierFactor = 4;
/** Bound of a router's weight, relative to the median. */
export const maxCounted = 2;

/**
 * Adds up the sums of peers, so that a fit of the total is a fit of all their samples. The caller keeps the order of
 * routers stable, because the last digits of sums depend on it.
 *
 * @returns the total, undefined if no report counts; and by router the share of its report that counts
 */
export function mergeSums(
  all: readonly ReportedSums[],
  options: MergeOptions,
): { readonly merged: MergedSums | undefined; readonly shares: readonly number[] } {
  const { own, scale, leastCounted = 0 } = options;
  const estimates = all.map((reported) => estimateOf(reported, options));
  const here = estimateOf(own, options);
  const shares = countedShares(estimates, here.isReliable ? here : undefined, leastCounted);
  const size = scale.length;
  const sum = { matrix: new Float64Array(size * size), right: new Float64Array(size), weight: 0, routers: 0 };
  for (const [at, reported] of all.entries()) {
    const share = reported.ageWeight * shares[at]!;
    if (share === 0) continue;
    addMoments(sum, reported, share);
    sum.weight += share * reported.weight;
    sum.routers += reported.ageWeight;
  }
  return { merged: sum.weight > 0 ? sum : undefined, shares };
}

/**
 * How much of each router's estimate counts, 0 to 1. Outliers count nothing: those far from this router's own estimate,
 * or from the median while the own one is not reliable. All routers count equally in the median, since weights are
 * self-reported. For the same reason no router counts for much more than the median.
 *
 * @param own undefined while it is not reliable
 * @param leastCounted samples that an estimate may count for in any case, for a fit whose values are shares of the
 * whole
 */
function countedShares(estimates: readonly Estimate[], own: Estimate | undefined, leastCounted = 0): readonly number[] {
  const known = estimates.filter(({ weight }) => weight > 0);
  const reliable = known.filter(({ isReliable }) => isReliable);
  const usual = own?.log ?? lowerMedian((reliable.length > 0 ? reliable : known).map(({ log }) => log));
  const isUsual = ({ log, weight }: Estimate): boolean =>
    weight > 0 && Math.abs(log - usual) <= Math.log(outlierFactor);
  const weights = estimates.filter(isUsual).map(({ weight }) => weight);
  const most = Math.max(
    maxCounted * lowerMedian(own ? [...weights, own.weight] : weights),
    leastCounted * Math.exp(-2 * usual),
  );
  return estimates.map((estimate) => (isUsual(estimate) ? Math.min(1, most / estimate.weight) : 0));
}

function estimateOf(sums: SampleSums, { scale, enough, negligible = 0, isLogarithm }: MergeOptions): Estimate {
  const { weight, speed } = speedOf(sums, scale);
  const log = isLogarithm ? (weight > 0 ? speed : 0) : Math.log(Math.max(0, speed) + negligible);
  return { log, weight, isReliable: sums.weight >= enough && weight > 0 };
}

/** Speed of engines relative to `scale`: the least-squares fit of that one number, and the weight of this fit. */
export function speedOf({ matrix, right }: Moments, scale: readonly number[]): { speed: number; weight: number } {
  const size = scale.length;
  let weight = 0;
  let sum = 0;
  for (let row = 0; row < size; row++) {
    sum += scale[row]! * right[row]!;
    for (let column = 0; column < size; column++) {
      weight += scale[row]! * scale[column]! * matrix[row * size + column]!;
    }
  }
  return { weight, speed: sum / weight };
}

function lowerMedian(values: readonly number[]): number {
  return [...values].sort((one, other) => one - other)[Math.floor((values.length - 1) / 2)] ?? 0;
}
