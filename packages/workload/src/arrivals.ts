import type { Random } from "@espalier/common";

/**
 * Independent arrivals, in milliseconds from the start of a run: gaps are exponential with mean 1 / rate. They go on for ever: take what is
 * needed.
 */
export function* poissonArrivals(ratePerSecond: number, random: Random): Generator<number, never, undefined> {
  for (let atMs = 0; ; ) {
    atMs += exponential(1_000 / ratePerSecond, random);
    yield atMs;
  }
}

/** A draw from the exponential distribution. */
export function exponential(mean: number, random: Random): number {
  return -Math.log(1 - random.float()) * mean;
}
