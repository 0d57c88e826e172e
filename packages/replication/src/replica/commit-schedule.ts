import type { Cancel, Clock, Scheduler } from "@espalier/common";

export interface CommitScheduleOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Least time between two commits, in milliseconds. */
  readonly tickMs: number;
  /**
   * How long the first pending record after quiet waits for related ones. Default: to the end of the event loop's turn.
   */
  readonly gatherMs?: number;
  readonly commit: () => void;
}

/** Decides when what is pending is committed. */
export interface CommitSchedule {
  /** Something is pending. */
  touch(): void;
  stop(): void;
}

/**
 * After quiet a commit follows a little later, so that related records go together. Under load there is one per tick,
 * because the cost of replication is per transaction, not per record.
 */
export function createCommitSchedule(options: CommitScheduleOptions): CommitSchedule {
  const { clock, scheduler, tickMs, gatherMs = 0, commit } = options;
  let cancel: Cancel | undefined;
  let lastMs = Number.NEGATIVE_INFINITY;
  return {
    touch() {
      if (cancel) return;
      const waitMs = Math.max(gatherMs, lastMs + tickMs - clock.nowMs());
      cancel = scheduler.after(waitMs, () => {
        cancel = undefined;
        lastMs = clock.nowMs();
        commit();
      });
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
  };
}
