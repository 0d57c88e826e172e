import type { Cancel, Random, Scheduler } from "@espalier/core";

export interface JitteredOptions {
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** Average rate; 0 for never. */
  readonly ratePerS: number;
  readonly task: () => void;
}

/**
 * Runs a task at a rate, each time after half to one and a half periods, so that it is not in step with any other
 * timer.
 */
export function runJittered({ scheduler, random, ratePerS, task }: JitteredOptions): Cancel {
  if (ratePerS === 0) return () => {};
  const periodMs = 1_000 / ratePerS;
  const next = (): Cancel =>
    scheduler.after((0.5 + random.float()) * periodMs, () => {
      cancel = next();
      task();
    });
  let cancel = next();
  return () => cancel();
}
