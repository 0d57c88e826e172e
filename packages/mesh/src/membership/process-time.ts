import type { Cancel, Clock, Logger, Scheduler } from "@espalier/core";

/**
 * Milliseconds in which this process ran. Time in which it was stopped, or in which its event loop hung, counts only up
 * to a step, so that a router that slept does not take the others for dead when it wakes up.
 */
export type ProcessTime = ReturnType<typeof createProcessTime>;

/** @param maxStepMs the most that counts between two ticks */
export function createProcessTime(clock: Clock, maxStepMs: number) {
  let tickedAtMs = clock.nowMs();
  let countedMs = 0;
  return {
    nowMs: (): number => countedMs + Math.min(clock.nowMs() - tickedAtMs, maxStepMs),
    /**
     * Called regularly.
     *
     * @returns how many milliseconds since the last call did not count
     */
    tick(): number {
      const nowMs = clock.nowMs();
      const elapsedMs = nowMs - tickedAtMs;
      const countsMs = Math.min(elapsedMs, maxStepMs);
      tickedAtMs = nowMs;
      countedMs += countsMs;
      return elapsedMs - countsMs;
    },
  };
}

/** Excluded time from which it is logged. */
const pauseMs = 1_000;
/**
 * A process that used so much of the time for computing was at work, not stopped; other processes may have had the
 * rest.
 */
const busyShare = 0.5;
/** Ticks on time between two readings of the CPU time: the system adds it up over all threads, which takes a while. */
const ticksPerReading = 5;

export interface PauseReportDeps {
  /** CPU time that this process has used so far, of all its threads. */
  readonly cpuMs: () => number;
  readonly paused: () => void;
  readonly logger: Logger;
}

/**
 * Reports to operators the time in which this router did nothing for others, and whether its own process was busy then.
 */
export class PauseReport {
  readonly #deps: PauseReportDeps;
  #cpuMs: number;
  #ticks = 0;

  constructor(deps: PauseReportDeps) {
    this.#deps = deps;
    this.#cpuMs = deps.cpuMs();
  }

  /** @param lostMs since the last tick, that did not count; call it at every tick */
  tick(lostMs: number): void {
    const { logger, paused } = this.#deps;
    const isPause = lostMs >= pauseMs;
    this.#ticks += 1;
    if (lostMs === 0 && this.#ticks % ticksPerReading !== 0) return;
    const before = this.#cpuMs;
    this.#cpuMs = this.#deps.cpuMs();
    if (!isPause) return;
    paused();
    const [lost, spent] = [Math.round(lostMs), Math.round(this.#cpuMs - before)];
    const what =
      spent >= busyShare * lostMs
        ? `event loop busy for ${lost} ms`
        : `process paused for ${lost} ms: stopped or without CPU`;
    logger.warn(`${what}; failure detection of other routers restarts`, { lostMs: lost, cpuMs: spent });
  }
}

const periodMs = 50;
/** Lateness is reported for one to two windows. */
const ticksPerWindow = 20;

/** Measures how late timers run: what a busy event loop, or a process that was stopped, adds to every deadline. */
export type LoopLag = ReturnType<typeof createLoopLag>;

export function createLoopLag({ clock, scheduler }: { readonly clock: Clock; readonly scheduler: Scheduler }) {
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
    /** The greatest delay of a timer within the last one to two seconds, in milliseconds. */
    lagMs: (): number => Math.max(0, worstMs, worstBeforeMs, clock.nowMs() - dueMs),
    stop: (): void => cancel(),
  };
}
