import type { Random } from "@espalier/common";
import type { TraceRequest } from "./trace-request.ts";

/** Times in milliseconds from the start of a run, ascending. Those of a rate go on for ever: take what is needed. */
export type Arrivals = Iterable<number>;

/** Independent arrivals: gaps are exponential with mean 1 / rate. */
export function* poissonArrivals(ratePerSecond: number, random: Random): Generator<number, never, undefined> {
  for (let atMs = 0; ; ) {
    atMs += exponential(1_000 / ratePerSecond, random);
    yield atMs;
  }
}

/** Even arrivals, the first one at once. */
export function* constantArrivals(ratePerSecond: number): Generator<number, never, undefined> {
  for (let count = 0; ; count++) yield (count * 1_000) / ratePerSecond;
}

/** The arrivals of a trace. @param speed how many milliseconds of the trace pass in one of the run */
export function* traceArrivals(requests: readonly TraceRequest[], speed: number): Generator<number, void, undefined> {
  for (const request of requests) yield request.arrivalMs / speed;
}

/** A draw from the exponential distribution. */
export function exponential(mean: number, random: Random): number {
  return -Math.log(1 - random.float()) * mean;
}
