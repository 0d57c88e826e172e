import { type Scheduler, systemScheduler } from "@espalier/common";

/** Ends after so many milliseconds, or at once when the signal aborts. */
export function wait(delayMs: number, signal: AbortSignal, scheduler: Scheduler = systemScheduler): Promise<void> {
  return new Promise((resolve) => {
    if (delayMs <= 0) return resolve();
    const done = (): void => {
      cancel();
      signal.removeEventListener("abort", done);
      resolve();
    };
    const cancel = scheduler.after(delayMs, done);
    signal.addEventListener("abort", done, { once: true });
  });
}
