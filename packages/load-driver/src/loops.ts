import type { Clock, Scheduler } from "@espalier/common";

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
 * Open loop: starts each job when it is due, whether or not the earlier ones have ended, as independent users do.
 *
 * @param jobs in order of `dueMs`
 * @param signal stops further jobs from starting; those under way are awaited
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
 * Closed loop: `concurrency` users, each starting its next job when its last one has ended.
 *
 * @param next gives the next job, or undefined when there is none left
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

/** Waits `delayMs`, or until `signal` aborts. Open sockets keep the process alive meanwhile, not this timer. */
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
