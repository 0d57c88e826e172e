import type { Clock } from "@espalier/core";
import type { Note } from "./suite.ts";

export interface RepeatOptions {
  readonly runs: number;
  readonly note: Note;
  /** The time after which no run may end; a run begins only if one as long as the longest so far would not. */
  readonly within?: { readonly clock: Clock; readonly deadlineMs: number };
}

/**
 * Measures several times, at least once.
 *
 * @param once receives the number of the run, from 1, as a seed, and what takes its lines of progress
 */
export async function repeatRuns<Run>(
  { runs, note, within }: RepeatOptions,
  once: (seed: number, note: Note) => Run | Promise<Run>,
): Promise<readonly Run[]> {
  const done: Run[] = [];
  let longestMs = 0;
  for (let seed = 1; seed <= runs; seed++) {
    const startMs = within?.clock.nowMs() ?? 0;
    if (within && seed > 1 && startMs + longestMs > within.deadlineMs) break;
    done.push(await once(seed, (line) => note(`run ${seed} of ${runs}: ${line}`)));
    longestMs = Math.max(longestMs, (within?.clock.nowMs() ?? 0) - startMs);
  }
  return done;
}
