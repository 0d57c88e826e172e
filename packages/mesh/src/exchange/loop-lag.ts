import type { Cancel, Clock, Scheduler } from "@espalier/common";

const periodMs = 50;
/** Lateness is reported for one to two windows. */
const ticksPerWindow = 20;

/** Measures how late timers run: what a busy event loop, or a process that was stopped, adds to every deadline. */
export interface LoopLag {
  /** The greatest lateness of a timer within the last one to two seconds, in milliseconds. */
  lagMs(): number;
  stop(): void;
}

export function createLoopLag({ clock, scheduler }: { readonly clock: Clock; readonly scheduler: Scheduler }): LoopLag {
  let dueMs = clock.nowMs() + periodMs;
  let ticks = 0;
  let worstMs = 0;
  let worstBeforeMs = 0;
  let cancel: Cancel = scheduler.after(periodMs, tick);
  function tick(): void {
    const nowMs = clock.nowMs();
    worstMs = Math.max(worstMs, nowMs - dueMs);
    ticks += 1;
    if (ticks % ticksPerWindow === 0) {
      worstBeforeMs = worstMs;
      worstMs = 0;
    }
    dueMs = nowMs + periodMs;
    cancel = scheduler.after(periodMs, tick);
  }
  return {
    /** A timer that is overdue right now counts too. */
    lagMs: () => Math.max(0, worstMs, worstBeforeMs, clock.nowMs() - dueMs),
    stop: () => cancel(),
  };
}
