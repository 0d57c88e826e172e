import { addSums, type FitSums } from "./least-squares.ts";

/** The samples of one router. */
export interface ReportedSums extends FitSums {
  /** Share that age has left of them, 0 to 1. */
  readonly left: number;
}

export interface MergedSums extends FitSums {
  /** Number of routers in it; those with old samples count for less. */
  readonly routers: number;
}

export interface MergeOptions {
  /** Coefficients relative to which the speeds of sums are compared. */
  readonly yardstick: readonly number[];
  /** What this router has seen itself. */
  readonly own: FitSums;
  /** With this many samples a router knows enough to judge others. */
  readonly enough: number;
  /** Coefficients below this share of the yardstick's count as zero. */
  readonly negligible?: number;
  /** Samples that a router may count for in any case, if values are shares of the whole. */
  readonly leastCounted?: number;
}

/** One router's estimate of a number, for comparing routers. */
export interface Word {
  /** Logarithm of the number. */
  readonly log: number;
  /** Weight of the estimate. */
  readonly pull: number;
  /** Whether it has enough samples to judge others. */
  readonly isFirm: boolean;
}

/** A router that is off by this factor is an outlier: its engines or its clock differ. */
const oddFactor = 4;
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
  const { own, yardstick, leastCounted = 0 } = options;
  const words = all.map((reported) => wordOf(reported, options));
  const here = wordOf(own, options);
  const shares = countedShares(words, here.isFirm ? here : undefined, leastCounted);
  const size = yardstick.length;
  const sum = { matrix: new Float64Array(size * size), right: new Float64Array(size), weight: 0, routers: 0 };
  for (const [at, reported] of all.entries()) {
    const share = reported.left * shares[at]!;
    if (share === 0) continue;
    addSums(sum, reported, share);
    sum.weight += share * reported.weight;
    sum.routers += reported.left;
  }
  return { merged: sum.weight > 0 ? sum : undefined, shares };
}

/**
 * How much of each router's estimate counts, 0 to 1. Outliers count nothing: those far from this router's own estimate,
 * or from the median while the own one is not firm. All routers count equally in the median, since weights are
 * self-reported. For the same reason no router counts for much more than the median.
 *
 * @param own undefined while it is not firm
 * @param leastCounted samples that an estimate may count for in any case, for a fit whose values are shares of the
 * whole
 */
export function countedShares(words: readonly Word[], own: Word | undefined, leastCounted = 0): readonly number[] {
  const known = words.filter(({ pull }) => pull > 0);
  const firm = known.filter(({ isFirm }) => isFirm);
  const usual = own?.log ?? lowerMedian((firm.length > 0 ? firm : known).map(({ log }) => log));
  const isUsual = ({ log, pull }: Word): boolean => pull > 0 && Math.abs(log - usual) <= Math.log(oddFactor);
  const pulls = words.filter(isUsual).map(({ pull }) => pull);
  const most = Math.max(
    maxCounted * lowerMedian(own ? [...pulls, own.pull] : pulls),
    leastCounted * Math.exp(-2 * usual),
  );
  return words.map((word) => (isUsual(word) ? Math.min(1, most / word.pull) : 0));
}

function wordOf(sums: FitSums, { yardstick, enough, negligible = 0 }: MergeOptions): Word {
  const { pull, speed } = compare(sums, yardstick);
  return { log: Math.log(Math.max(0, speed) + negligible), pull, isFirm: sums.weight >= enough && pull > 0 };
}

/** Speed of engines relative to the yardstick: the least-squares fit of that one number, and its weight. */
export function compare({ matrix, right }: FitSums, yardstick: readonly number[]): { speed: number; pull: number } {
  const size = yardstick.length;
  let pull = 0;
  let sum = 0;
  for (let row = 0; row < size; row++) {
    sum += yardstick[row]! * right[row]!;
    for (let column = 0; column < size; column++) {
      pull += yardstick[row]! * yardstick[column]! * matrix[row * size + column]!;
    }
  }
  return { pull, speed: sum / pull };
}

function lowerMedian(values: readonly number[]): number {
  return [...values].sort((one, other) => one - other)[Math.floor((values.length - 1) / 2)] ?? 0;
}
