import type { Cancel, Random, Scheduler } from "@espalier/core";

export interface JitteredOptions {
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** Average rate; 0 for never. */
  readonly ratePerS: number;
  readonly task: () => void;
}

/**
 * Runs a task at a rate from `start` to `stop`, each time after half to one and a half periods, so that it is not in step
 * with any other timer.
 */
export function createJittered({ scheduler, random, ratePerS, task }: JitteredOptions) {
  let cancel: Cancel | undefined;
  const next = (): void => {
    cancel = scheduler.after(((0.5 + random.float()) * 1_000) / ratePerS, () => {
      next();
      task();
    });
  };
  return {
    start(): void {
      if (!cancel && ratePerS > 0) next();
    },
    stop(): void {
      cancel?.();
      cancel = undefined;
    },
  };
}
