import type { Clock, Scheduler } from "@espalier/core";
import type { VirtualTime } from "@espalier/testing";

/** Timers as Node has them: none is shorter than a millisecond, so that `advance(1)` is one turn of the loop. */
export function createTurns({ scheduler }: VirtualTime): Scheduler {
  return { ...scheduler, after: (delayMs, task) => scheduler.after(Math.max(1, delayMs), task) };
}

/** A clock that moves by one millisecond with each look, so that work takes time. */
export function createBusyClock({ clock }: VirtualTime): Clock {
  let spentMs = 0;
  return { nowMs: () => clock.nowMs() + spentMs++, wallMs: clock.wallMs };
}
