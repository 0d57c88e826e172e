import { setMaxListeners } from "node:events";
import { constants } from "node:os";
import { type Scheduler, systemScheduler } from "@espalier/core";

/** A signal that aborts on the first Ctrl-C or SIGTERM. The second one ends the process at once, as a shell reports it. */
export function abortOnSignal(): AbortSignal {
  const controller = new AbortController();
  // Every open request listens to it.
  setMaxListeners(0, controller.signal);
  const stop = (name: NodeJS.Signals): void => {
    if (controller.signal.aborted) process.exit(128 + constants.signals[name]);
    controller.abort();
  };
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  return controller.signal;
}

const signalGraceMs = 50;

/**
 * Whether Ctrl-C ended a child process. Ctrl-C reaches the whole process group at once, so a child may exit a moment
 * before this process gets the signal.
 */
export async function wasStopped(signal: AbortSignal): Promise<boolean> {
  if (!signal.aborted) await new Promise<void>((resolve) => systemScheduler.after(signalGraceMs, resolve));
  return signal.aborted;
}

/** Ends after this many milliseconds, or at once when the signal aborts. */
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
