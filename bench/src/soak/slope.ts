/** A value at a time. */
export interface TimedValue {
  /** Hours. */
  readonly atH: number;
  readonly value: number;
}

/** How fast values grow, by a line that stray values do not bend. */
export interface Slope {
  /** Per hour. */
  readonly perHour: number;
  /** Below this it is with a probability of 2.5 %, were the values independent of each other. */
  readonly lowPerHour: number;
  /** Values that it was made of. */
  readonly windows: number;
}

/** Windows of a run; of each, the least value counts. */
const windowCount = 24;
/** Of the normal distribution, for an interval of 95 %. */
const normalQuantile = 1.96;
/** A slope through fewer values says nothing. */
export const minWindows = 8;

/**
 * The median of the slopes between all pairs of values (Theil 1950; its interval by Sen 1968). Memory goes up and down
 * with garbage collection, which would hide a leak; so of each 24th of the time only the least value counts.
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

/** The least value of each window that has one, in order. */
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
