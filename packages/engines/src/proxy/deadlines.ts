import type { Cancel, Clock, EspalierError, Scheduler } from "@espalier/core";

/** How often limits are checked. A limit is never early, and late by at most two periods. */
const sweepPeriodMs = 100;

/** Something that checks its own time limits when swept. */
export interface Deadlined {
  /** Its index in the list; owned by the list. */
  slot: number;
  /** @param nowMs on the clock's `nowMs` scale */
  sweep(nowMs: number): void;
  /** Ends at once with an error. */
  abort(error: EspalierError): void;
}

/** Checks all time limits with one timer, so that a chunk of a stream costs no timer and no clock reading. */
export interface Deadlines {
  nowMs(): number;
  watch(item: Deadlined): void;
  forget(item: Deadlined): void;
  start(): void;
  stop(): void;
  /** Ends everything that is watched. */
  abortAll(error: EspalierError): void;
}

/**
 * Items are in an unordered array, and each knows its index. V8 would rebuild the table of a `Set` every few dozen
 * insertions, and old tables keep finished requests alive until the next full collection.
 */
export function createDeadlines(clock: Clock, scheduler: Scheduler): Deadlines {
  const items: Deadlined[] = [];
  let cancel: Cancel | undefined;
  /** From the end, because an item that leaves is replaced by the last one. */
  const visit = (see: (item: Deadlined) => void): void => {
    for (let i = items.length - 1; i >= 0; i--) {
      const item = items[i];
      if (item) see(item);
    }
  };
  return {
    nowMs: () => clock.nowMs(),
    watch(item) {
      item.slot = items.push(item) - 1;
    },
    forget(item) {
      const last = items.pop();
      if (!last || last === item) return;
      items[item.slot] = last;
      last.slot = item.slot;
    },
    start() {
      cancel ??= scheduler.every(sweepPeriodMs, () => {
        const nowMs = clock.nowMs();
        visit((item) => item.sweep(nowMs));
      });
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
    abortAll: (error) => visit((item) => item.abort(error)),
  };
}
