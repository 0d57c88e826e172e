import type { Cancel, Clock, Scheduler } from "@espalier/common";

interface Pending {
  readonly dueMs: number;
  readonly order: number;
  readonly task: () => void;
}

/** A clock and a scheduler that move only when told to. */
export interface VirtualTime {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Moves time forward by `durationMs`, running every task that comes due, in order of due time. */
  advance(durationMs: number): void;
  /** Like `advance`, but lets promises settle after each task, for code that awaits between timers. */
  advanceAsync(durationMs: number): Promise<void>;
  /** How many tasks wait, so that a test can assert that nothing was left behind. */
  readonly pendingCount: number;
}

/** @param startWallMs wall-clock time at virtual time 0, in milliseconds since the Unix epoch */
export function createVirtualTime(startWallMs = 1_700_000_000_000): VirtualTime {
  let nowMs = 0;
  let nextOrder = 0;
  const pending = new Set<Pending>();

  const after = (delayMs: number, task: () => void): Cancel => {
    const entry = { dueMs: nowMs + Math.max(0, delayMs), order: nextOrder++, task };
    pending.add(entry);
    return () => pending.delete(entry);
  };
  const every = (periodMs: number, task: () => void): Cancel => {
    let cancel = after(periodMs, tick);
    function tick(): void {
      cancel = after(periodMs, tick);
      task();
    }
    return () => cancel();
  };
  const takeDue = (untilMs: number): Pending | undefined => {
    let first: Pending | undefined;
    for (const entry of pending) {
      if (entry.dueMs > untilMs) continue;
      if (!first || entry.dueMs < first.dueMs || (entry.dueMs === first.dueMs && entry.order < first.order)) {
        first = entry;
      }
    }
    if (first) pending.delete(first);
    return first;
  };
  const runNext = (untilMs: number): boolean => {
    const due = takeDue(untilMs);
    if (!due) return false;
    nowMs = Math.max(nowMs, due.dueMs);
    due.task();
    return true;
  };

  return {
    clock: { nowMs: () => nowMs, wallMs: () => startWallMs + nowMs },
    scheduler: { after, every },
    advance(durationMs) {
      const untilMs = nowMs + durationMs;
      while (runNext(untilMs)) {}
      nowMs = untilMs;
    },
    async advanceAsync(durationMs) {
      const untilMs = nowMs + durationMs;
      await settle();
      while (runNext(untilMs)) await settle();
      nowMs = untilMs;
      await settle();
    },
    get pendingCount() {
      return pending.size;
    },
  };
}

/** Lets promise callbacks that are ready run, including those they make ready in turn. */
async function settle(): Promise<void> {
  for (let round = 0; round < 3; round++) await new Promise<void>((resolve) => setImmediate(resolve));
}
