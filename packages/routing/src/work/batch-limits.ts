import type { RoutingTarget } from "../routing-target.ts";

interface Reading {
  readonly key: string;
  /** Time when the last report was read, on the monotonic clock. */
  readMs: number;
  running: number;
  /** Consecutive reports with this many running and others waiting. */
  repeats: number;
  /** NaN while unknown. */
  limit: number;
}

/** After this many consecutive reports with the same number running and others waiting, that number is the limit. */
const repeatsAtLimit = 4;
/** Engines run more than this at once; smaller equal numbers occur by chance. */
const leastLimit = 16;
/** Targets with a higher index count as having no limit. */
export const maxLimitedTargets = 4_096;

/**
 * How many requests engines run at once, which their metrics do not report (`--max-num-seqs` of vLLM,
 * `--max-running-requests` of SGLang). A full engine with a queue runs exactly that many at every report. An engine
 * that computes a long prompt may look the same for seconds, so the number counts only if no engine of the pool ran
 * more. If engines have different limits, only the largest is found.
 */
export class BatchLimits {
  readonly #readings: (Reading | undefined)[] = [];
  /** Most requests that an engine of the pool was seen to run. */
  #most = 0;

  /** Examines a target's latest report. @returns the most that it runs at once; NaN while unknown */
  of({ index, key, signals }: RoutingTarget, nowMs: number): number {
    if (index >= maxLimitedTargets) return Number.NaN;
    let known = this.#readings[index];
    if (known?.key !== key) {
      known = { key, readMs: Number.NaN, running: 0, repeats: 0, limit: Number.NaN };
      this.#readings[index] = known;
    }
    const readMs = nowMs - signals.ageMs();
    // Ages are differences of times: the same report gives the same time except for rounding.
    if (!(Math.abs(readMs - known.readMs) < 1) && Number.isFinite(readMs)) {
      update(known, signals, readMs);
      if (signals.running > this.#most) this.#most = signals.running;
    }
    return known.limit < this.#most ? Number.NaN : known.limit;
  }
}

function update(known: Reading, { running, waiting }: RoutingTarget["signals"], readMs: number): void {
  known.readMs = readMs;
  const isFull = waiting >= 1 && running >= leastLimit;
  known.repeats = isFull && running === known.running ? known.repeats + 1 : isFull ? 1 : 0;
  known.running = running;
  if (known.repeats >= repeatsAtLimit) known.limit = running;
}
