import type { Clock } from "@espalier/common";

export interface RepeatWithinOptions {
  readonly count: number;
  /** On the clock's axis: what should have ended by then. */
  readonly deadlineMs: number;
  readonly clock: Clock;
}

/**
 * Does something several times, at least once, and not again when one more that takes as long as the longest so far would
 * go beyond the deadline.
 *
 * @param work is given the number of the round, from 0
 */
export async function repeatWithin<Result>(
  { count, deadlineMs, clock }: RepeatWithinOptions,
  work: (round: number) => Promise<Result>,
): Promise<readonly Result[]> {
  const results: Result[] = [];
  let longestMs = 0;
  for (let round = 0; round < count; round++) {
    const startMs = clock.nowMs();
    if (round > 0 && startMs + longestMs > deadlineMs) break;
    results.push(await work(round));
    longestMs = Math.max(longestMs, clock.nowMs() - startMs);
  }
  return results;
}
