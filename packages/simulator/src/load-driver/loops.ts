import type { Clock, Scheduler } from "@espalier/core";

/** One unit of work for a loop: it runs to its end and never rejects. */
export type Job = () => Promise<void>;

export interface LoopPorts {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** A job and when it is due, in real milliseconds from the start of the loop. */
export interface TimedJob {
  readonly dueMs: number;
  readonly run: Job;
}

/**
 * Open loop: starts each job when it is due, like independent users, whether or not earlier ones have ended.
 *
 * @param jobs in order of `dueMs`
 * @param signal stops further jobs from starting; waits for the running ones
 */
export async function runOpenLoop(jobs: readonly TimedJob[], ports: LoopPorts, signal?: AbortSignal): Promise<void> {
  const startMs = ports.clock.nowMs();
  const started: Promise<void>[] = [];
  for (const job of jobs) {
    const waitMs = startMs + job.dueMs - ports.clock.nowMs();
    if (waitMs > 0) await sleep(waitMs, ports.scheduler, signal);
    if (signal?.aborted) break;
    started.push(job.run());
  }
  await Promise.all(started);
}

/**
 * Closed loop: `concurrency` users, each of whom starts a job when the previous one has ended.
 *
 * @param next returns the next job, or undefined when there is none left
 */
export async function runClosedLoop(
  next: () => Job | undefined,
  concurrency: number,
  signal?: AbortSignal,
): Promise<void> {
  const user = async (): Promise<void> => {
    for (let job = next(); job && !signal?.aborted; job = next()) await job();
  };
  await Promise.all(Array.from({ length: concurrency }, user));
}

/** Waits `delayMs`, or until `signal` aborts. This timer does not keep the process alive; open sockets do. */
function sleep(delayMs: number, scheduler: Scheduler, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      cancel();
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const cancel = scheduler.after(delayMs, done);
    signal?.addEventListener("abort", done, { once: true });
  });
}
