import type { Random } from "@espalier/core";
import type { TraceRequest } from "./trace-request.ts";

/**
 * Independent arrivals, in milliseconds from the start of a run: gaps are exponential with mean 1 / rate. The sequence is endless.
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

/** The Mooncake conversation trace rounds its times to this. */
export const mooncakeStepMs = 3_000;

/**
 * Spreads the arrivals of a trace that rounds its times to steps. The requests of a step arrive at times drawn
 * uniformly from it. The draws are assigned in order, so the order of requests and of a session's turns is kept. Times
 * that miss a step by a few milliseconds, as in the file, count as the nearest step.
 *
 * @param requests in order of arrival
 */
export function jitterArrivals(
  requests: readonly TraceRequest[],
  { stepMs, random }: { readonly stepMs: number; readonly random: Random },
): readonly TraceRequest[] {
  const stepOf = (request: TraceRequest): number => Math.round(request.arrivalMs / stepMs);
  const spread: TraceRequest[] = [];
  let from = 0;
  while (from < requests.length) {
    const step = stepOf(requests[from]!);
    let to = from + 1;
    while (to < requests.length && stepOf(requests[to]!) === step) to += 1;
    const draws = Float64Array.from({ length: to - from }, () => random.float()).sort();
    for (const [offset, draw] of draws.entries()) {
      spread.push({ ...requests[from + offset]!, arrivalMs: (step + draw) * stepMs });
    }
    from = to;
  }
  return spread;
}
