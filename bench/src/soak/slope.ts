/** A value at a time. */
export interface TimedValue {
  /** Hours. */
  readonly atH: number;
  readonly value: number;
}

/** The growth rate of values, by a line that outliers do not affect. */
export interface Slope {
  /** Per hour. */
  readonly perHour: number;
  /** Lower bound, wrong with a probability of 2.5 % if the values were independent. */
  readonly lowPerHour: number;
  /** Number of values used. */
  readonly windows: number;
}

/** Windows of a run; only the smallest value of each counts. */
const windowCount = 24;
/** Quantile of the normal distribution, for an interval of 95 %. */
const normalQuantile = 1.96;
/** With fewer values, a slope means nothing. */
export const minWindows = 8;

/**
 * The median of the slopes between all pairs of values (Theil 1950; its interval by Sen 1968). Garbage collection moves
 * memory up and down, which would hide a leak. So only the smallest value in each 24th of the time counts.
 *
 * @param values in order of time
 * @returns undefined for values in fewer than eight of the windows
 */
export function robustSlope(values: readonly TimedValue[]): Slope | undefined {
  const floors = windowFloors(values);
  if (floors.length < minWindows) return undefined;
  const slopes: number[] = [];
  for (const [at, from] of floors.entries()) {
    for (const to of floors.slice(at + 1)) slopes.push((to.value - from.value) / (to.atH - from.atH));
  }
  slopes.sort((one, other) => one - other);
  const count = floors.length;
  const reach = normalQuantile * Math.sqrt((count * (count - 1) * (2 * count + 5)) / 18);
  const low = Math.max(0, Math.floor((slopes.length - reach) / 2));
  const middle = slopes.length / 2;
  const perHour = (slopes[Math.ceil(middle) - 1]! + slopes[Math.floor(middle)]!) / 2;
  return { perHour, lowPerHour: slopes[low]!, windows: count };
}

/** The smallest value of each non-empty window, in order. */
function windowFloors(values: readonly TimedValue[]): readonly TimedValue[] {
  const [first, last] = [values[0], values.at(-1)];
  if (!first || !last || last.atH <= first.atH) return [];
  const floors: (TimedValue | undefined)[] = [];
  for (const value of values) {
    const share = (value.atH - first.atH) / (last.atH - first.atH);
    const window = Math.min(windowCount - 1, Math.floor(share * windowCount));
    const floor = floors[window];
    if (!floor || value.value < floor.value) floors[window] = value;
  }
  return floors.filter((floor) => floor !== undefined);
}
