import type { Cancel, Scheduler } from "@espalier/common";

/** Runs an asynchronous step again and again, one at a time. */
export interface RepeatLoop {
  /** Starts, or starts afresh, `delayMs` from now; at once when it is 0. */
  start(delayMs: number): void;
  stop(): void;
}

/**
 * @param step does the work and gives the delay to the next run in milliseconds. After awaiting, it asks `isCurrent`
 *   and changes nothing when the loop has been stopped or started afresh meanwhile. It must not throw.
 */
export function createRepeatLoop(
  scheduler: Scheduler,
  step: (isCurrent: () => boolean) => Promise<number>,
): RepeatLoop {
  let generation = 0;
  let cancel: Cancel = () => {};

  const run = async (mine: number): Promise<void> => {
    const delayMs = await step(() => mine === generation);
    if (mine === generation) cancel = scheduler.after(delayMs, () => void run(mine));
  };
  const stop = (): void => {
    generation += 1;
    cancel();
  };
  return {
    start(delayMs) {
      stop();
      const mine = generation;
      if (delayMs <= 0) void run(mine);
      else cancel = scheduler.after(delayMs, () => void run(mine));
    },
    stop,
  };
}
