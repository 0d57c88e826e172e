import type { RoutingTarget } from "../routing-target.ts";

interface Reading {
  readonly key: string;
  /** When the last report was read, on the monotonic clock. */
  readMs: number;
  running: number;
  /** Reports in a row with that many running, and others waiting. */
  repeats: number;
  /** NaN while it is not known. */
  limit: number;
}

/** So many reports in a row of the same number running, with others waiting, tell that no more run at once. */
const repeatsToTell = 4;
/** Engines run more than so many at once: with fewer, equal numbers come by chance. */
const leastLimit = 16;
/** Targets of a higher place are taken to have no limit. */
export const maxLimitedTargets = 4_096;

/**
 * How many requests engines run at once, which their metrics do not say (`--max-num-seqs` of vLLM, `--max-running-requests` of
 * SGLang). A full engine with a queue runs just so many whenever it is asked. An engine that computes a long prompt may look
 * alike for seconds: so no engine of the pool may have run more. Where engines have different limits, only the largest is found.
 */
export class BatchLimits {
  readonly #readings: (Reading | undefined)[] = [];
  /** Requests that an engine of the pool was seen to run, at most. */
  #most = 0;

  /** Looks at a target's latest report. @returns the most that it runs at once; NaN while that is not known */
  of({ index, key, signals }: RoutingTarget, nowMs: number): number {
    if (index >= maxLimitedTargets) return Number.NaN;
    let known = this.#readings[index];
    if (known?.key !== key) {
      known = { key, readMs: Number.NaN, running: 0, repeats: 0, limit: Number.NaN };
      this.#readings[index] = known;
    }
    const readMs = nowMs - signals.ageMs();
    // Ages are differences of times: the same report gives the same moment but for rounding.
    if (!(Math.abs(readMs - known.readMs) < 1) && Number.isFinite(readMs)) {
      take(known, signals, readMs);
      if (signals.running > this.#most) this.#most = signals.running;
    }
    return known.limit < this.#most ? Number.NaN : known.limit;
  }
}

function take(known: Reading, { running, waiting }: RoutingTarget["signals"], readMs: number): void {
  known.readMs = readMs;
  const isFull = waiting >= 1 && running >= leastLimit;
  known.repeats = isFull && running === known.running ? known.repeats + 1 : isFull ? 1 : 0;
  known.running = running;
  if (known.repeats >= repeatsToTell) known.limit = running;
}
