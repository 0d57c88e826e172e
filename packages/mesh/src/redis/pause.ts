import type { Scheduler } from "@espalier/common";

/** Settles after so many milliseconds of the scheduler. */
export function pause(scheduler: Scheduler, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    scheduler.after(delayMs, resolve);
  });
}
