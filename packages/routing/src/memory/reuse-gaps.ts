/** Half of the gaps that were seen is forgotten in this time. */
const halfLifeMs = 300_000;
/** Times are counted in steps of a quarter of a doubling, from here on. */
const firstMs = 100;
const stepsPerDoubling = 4;
/** Up to 410 s; what is longer counts as that. */
const steps = 48;
/** Of less nothing is said. */
const leastSeen = 8;

/**
 * How long prompts stay idle until another one goes on with them, and so how likely that is to happen to one that has been
 * idle for a while. Those that nobody has gone on with by now count as if nobody would: what ends at once must not look as
 * if it went on.
 */
export class ReuseGaps {
  readonly #gaps = new Float64Array(steps);
  readonly #idle = new Float64Array(steps);
  #decayedMs = Number.NEGATIVE_INFINITY;

  /** A prompt was gone on with after so long. */
  observe(gapMs: number): void {
    this.#gaps[Math.floor(stepOf(gapMs))]! += 1;
  }

  /** These have been idle for so long, and nobody has gone on with them yet. */
  takeIdle(idleTimesMs: Iterable<number>, nowMs: number): void {
    const decay = this.#decayedMs === Number.NEGATIVE_INFINITY ? 1 : 0.5 ** ((nowMs - this.#decayedMs) / halfLifeMs);
    for (let step = 0; step < steps; step++) this.#gaps[step]! *= decay;
    this.#decayedMs = nowMs;
    this.#idle.fill(0);
    for (const idleMs of idleTimesMs) this.#idle[Math.floor(stepOf(idleMs))]! += 1;
  }

  /** Probability that a prompt which has been idle for so long will be gone on with; 0 while too little is known. */
  shareAfter(idleMs: number): number {
    const later = above(this.#gaps, idleMs);
    const seen = later + above(this.#idle, idleMs);
    return seen < leastSeen ? 0 : later / seen;
  }
}

/** 0 to below `steps`. */
function stepOf(ms: number): number {
  const step = stepsPerDoubling * Math.log2(Math.max(firstMs, ms) / firstMs);
  return Math.min(steps - 1, step);
}

/** How many of the counted are longer, spread evenly over their steps. */
function above(counts: Float64Array, ms: number): number {
  const at = stepOf(ms);
  const step = Math.floor(at);
  let sum = counts[step]! * (1 - (at - step));
  for (let longer = step + 1; longer < steps; longer++) sum += counts[longer]!;
  return sum;
}
