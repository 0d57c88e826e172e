import type { Clock } from "@espalier/core";

export interface RepeatWithinOptions {
  readonly count: number;
  /** The deadline, on the clock's axis. */
  readonly deadlineMs: number;
  readonly clock: Clock;
}

/**
 * Repeats a task, at least once. Stops when another round as long as the longest so far would exceed the deadline.
 *
 * @param work receives the round's number, from 0
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
