import type { Clock, Scheduler } from "@espalier/core";

/** Something with work that can be done in small steps. */
export interface SliceWorker {
  /** Does one step. Returns false when nothing is left to do; the worker requests again when work arrives. */
  step(): boolean;
}

/** Shares the event loop among workers and their socket readers. */
export type WorkSlices = ReturnType<typeof createWorkSlices>;

/**
 * Lets workers and readers together run for at most `sliceMs` between two turns of the event loop, so that a flood on
 * some feeds delays others by at most a slice and a step. Workers take turns, step by step, and run before readers, so
 * that nothing is read before there is time to process it. Each worker is queued at most once.
 */
export function createWorkSlices(options: {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Length of a slice in milliseconds. */
  readonly sliceMs?: number;
}) {
  const { clock, scheduler, sliceMs = 8 } = options;
  const waiting = new Set<SliceWorker>();
  let isRunning = false;
  let turnBeganMs: number | undefined;
  let nextTurn: Promise<void> | undefined;
  let beginNextTurn = (): void => {};

  const isOver = (): boolean => turnBeganMs !== undefined && clock.nowMs() - turnBeganMs >= sliceMs;
  // All time since a turn's first work counts, whoever used it: a burst of small pieces is one slice.
  const enterTurn = (): void => {
    if (turnBeganMs !== undefined) return;
    turnBeganMs = clock.nowMs();
    scheduler.after(0, () => {
      turnBeganMs = undefined;
      const begin = beginNextTurn;
      nextTurn = undefined;
      run();
      begin();
    });
  };
  const run = (): void => {
    if (isRunning || waiting.size === 0 || isOver()) return;
    isRunning = true;
    enterTurn();
    try {
      for (const worker of waiting) {
        waiting.delete(worker);
        if (worker.step()) waiting.add(worker);
        if (isOver()) break;
      }
    } finally {
      isRunning = false;
    }
  };
  return {
    /** Work has arrived: it is done immediately while this turn has time left, else in later turns. */
    request(worker: SliceWorker): void {
      waiting.add(worker);
      run();
    },
    /** Drops a worker from the queue. */
    forget: (worker: SliceWorker): void => void waiting.delete(worker),
    /** For loops that await: what to wait for before continuing; undefined while this turn has time left. */
    waitForTurn(): Promise<void> | undefined {
      enterTurn();
      if (!isOver()) return undefined;
      nextTurn ??= new Promise((resolve) => {
        beginNextTurn = resolve;
      });
      return nextTurn;
    },
  };
}
