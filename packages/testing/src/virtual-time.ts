import type { Clock, Scheduler } from "@espalier/common";
import { schedulerOf } from "./scheduler-of.ts";
import { TimerHeap } from "./timer-heap.ts";

/** A clock and a scheduler that move only when told to. */
export interface VirtualTime {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Moves time forward by `durationMs`, running every task that comes due, in order of due time. */
  advance(durationMs: number): void;
  /** Like `advance`, but to a moment. One that is past changes nothing. */
  runUntil(untilMs: number): void;
  /** Like `advance`, but lets promises settle after each task, for code that awaits between timers. */
  advanceAsync(durationMs: number): Promise<void>;
  /** When the next task is due; Infinity when none waits. */
  readonly nextDueMs: number;
  /** How many tasks wait, so that a test can assert that nothing was left behind. */
  readonly pendingCount: number;
}

/**
 * @param startWallMs wall-clock time at virtual time 0, in milliseconds since the Unix epoch
 * @throws RangeError from its scheduler when more tasks wait than `maxPendingTasks`
 */
export function createVirtualTime(startWallMs = 1_700_000_000_000): VirtualTime {
  let nowMs = 0;
  const heap = new TimerHeap();

  const runNext = (untilMs: number): boolean => {
    const task = heap.take(untilMs);
    if (!task) return false;
    if (heap.takenDueMs > nowMs) nowMs = heap.takenDueMs;
    task();
    return true;
  };
  const runUntil = (untilMs: number): void => {
    while (runNext(untilMs)) {}
    nowMs = Math.max(nowMs, untilMs);
  };

  return {
    clock: { nowMs: () => nowMs, wallMs: () => startWallMs + nowMs },
    scheduler: schedulerOf((delayMs, task) => heap.add(nowMs + Math.max(0, delayMs), task)),
    runUntil,
    advance: (durationMs) => runUntil(nowMs + durationMs),
    async advanceAsync(durationMs) {
      const untilMs = nowMs + durationMs;
      await settle();
      while (runNext(untilMs)) await settle();
      nowMs = untilMs;
      await settle();
    },
    get nextDueMs() {
      return heap.nextDueMs;
    },
    get pendingCount() {
      return heap.size;
    },
  };
}

/** Lets promise callbacks that are ready run, including those they make ready in turn. */
async function settle(): Promise<void> {
  for (let round = 0; round < 3; round++) await new Promise<void>((resolve) => setImmediate(resolve));
}
