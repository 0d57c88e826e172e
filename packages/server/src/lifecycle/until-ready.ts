import type { Scheduler, Startable } from "@espalier/common";

const askEveryMs = 20;
/** A router that is not ready by then serves what it can, and says why it is not ready. */
export const readyWithinMs = 10_000;

/** A part whose start takes until the router is ready, 10 s at most, so that what is started after it finds it so. */
export function untilReady(isReady: () => boolean, scheduler: Scheduler): Startable {
  let isStopped = false;
  return {
    async start() {
      for (let waitedMs = 0; !isStopped && waitedMs < readyWithinMs && !isReady(); waitedMs += askEveryMs) {
        await new Promise<void>((resolve) => scheduler.after(askEveryMs, resolve));
      }
    },
    async stop() {
      isStopped = true;
    },
  };
}
