import { createProgressBar } from "../output.ts";
import type { JobOutcome, SimJob } from "./run-job.ts";
import { runTasks } from "./run-tasks.ts";

export interface ExecutionOptions<Outcome> {
  /** Concurrent jobs. */
  readonly size: number;
  readonly signal: AbortSignal;
  /** For the progress bar. */
  readonly title: string;
  /** Called for each successful job in plan order, as soon as all jobs before it have ended. */
  onOutcome?(at: number, outcome: Outcome): void;
}

/** A failed job. */
export interface JobFailure {
  readonly job: SimJob;
  readonly error: Error;
}

export interface ExecutionResult<Outcome> {
  /** By place in the plan; undefined for jobs that failed or did not run. */
  readonly outcomes: readonly (Outcome | undefined)[];
  readonly failures: readonly JobFailure[];
}

/** Runs the jobs of a plan in child processes, with a progress bar. A job that fails is reported; the others continue. */
export async function executeJobs<Job extends SimJob>(
  jobs: readonly Job[],
  { size, signal, title, onOutcome }: ExecutionOptions<JobOutcome<Job>>,
): Promise<ExecutionResult<JobOutcome<Job>>> {
  const outcomes: (JobOutcome<Job> | undefined)[] = Array(jobs.length).fill(undefined);
  const failures: JobFailure[] = [];
  if (jobs.length === 0) return { outcomes, failures };
  const hasEnded = new Uint8Array(jobs.length);
  const progress = trackProgress(title, jobs.length);
  let reported = 0;
  const end = (at: number): void => {
    hasEnded[at] = 1;
    progress.ended(at);
    for (; hasEnded[reported]; reported++) {
      const outcome = outcomes[reported];
      if (outcome !== undefined) onOutcome?.(reported, outcome);
    }
  };
  await runTasks<Job, JobOutcome<Job>>(jobs, {
    size,
    signal,
    onProgress: (at, share) => progress.update(at, share),
    onResult(at, outcome) {
      outcomes[at] = outcome;
      end(at);
    },
    onFailure(at, error) {
      failures.push({ job: jobs[at] as Job, error });
      end(at);
    },
  });
  progress.end();
  return { outcomes, failures };
}

/** Steps of the progress bar. */
const barTotal = 100;

/** One bar for all jobs, by the virtual time that each has completed. */
function trackProgress(title: string, count: number) {
  const bar = createProgressBar(title, barTotal);
  const shares = new Float64Array(count);
  let ended = 0;
  const draw = (at: number, share: number): void => {
    shares[at] = share;
    const done = shares.reduce((sum, one) => sum + one, 0) / count;
    // Rounding must not show completion early.
    const shown = ended === count ? barTotal : Math.min(barTotal - 1, Math.floor(done * barTotal));
    bar.update(shown, `${ended} of ${count} runs`);
  };
  bar.update(0, `0 of ${count} runs`);
  return {
    update: draw,
    ended(at: number): void {
      ended++;
      draw(at, 1);
    },
    end: () => bar.end(),
  };
}
