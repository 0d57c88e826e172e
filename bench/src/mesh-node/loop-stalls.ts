import type { Cancel, Clock, Scheduler } from "@espalier/core";

/** How long the event loop delays a timer set for every millisecond. */
export interface LoopStalls {
  /** The longest time between two turns since the last reset, in milliseconds. */
  readonly worstMs: number;
  /**
   * The most CPU time that this process can have used between two turns, in milliseconds. It shows a stall that the
   * process caused itself, whereas `worstMs` may come from a busy machine. It includes CPU time of up to 10 ms before
   * the turn, but never exceeds the time between the turns.
   */
  readonly worstBusyMs: number;
  reset(): void;
  stop(): void;
}

export interface LoopStallsOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** CPU time of this process, in milliseconds. */
  readonly cpuMs: () => number;
}

const periodMs = 1;
/** Reading the CPU time costs more than a turn, so it is read at this interval at most. */
const cpuPeriodMs = 10;

export function createLoopStalls({ clock, scheduler, cpuMs }: LoopStallsOptions): LoopStalls {
  let worstMs = 0;
  let worstBusyMs = 0;
  let lastMs = clock.nowMs();
  let lastCpuMs = cpuMs();
  let cancel: Cancel = scheduler.after(periodMs, turn);
  let readMs = lastMs;
  function turn(): void {
    const nowMs = clock.nowMs();
    const apartMs = nowMs - lastMs;
    lastMs = nowMs;
    worstMs = Math.max(worstMs, apartMs);
    if (nowMs - readMs >= cpuPeriodMs) {
      const nowCpuMs = cpuMs();
      worstBusyMs = Math.max(worstBusyMs, Math.min(apartMs, nowCpuMs - lastCpuMs));
      lastCpuMs = nowCpuMs;
      readMs = nowMs;
    }
    cancel = scheduler.after(periodMs, turn);
  }
  return {
    get worstMs() {
      return worstMs;
    },
    get worstBusyMs() {
      return worstBusyMs;
    },
    reset() {
      worstMs = 0;
      worstBusyMs = 0;
    },
    stop: () => cancel(),
  };
}
