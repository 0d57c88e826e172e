import type { Scheduler } from "@espalier/common";

/** A scheduler whose periodic tasks are single ones that schedule themselves again before they run. */
export function schedulerOf(after: Scheduler["after"]): Scheduler {
  return {
    after,
    every(periodMs, task) {
      let cancel = after(periodMs, tick);
      function tick(): void {
        cancel = after(periodMs, tick);
        task();
      }
      return () => cancel();
    },
  };
}
