import type { Cancel, Clock, Scheduler } from "@espalier/common";

/** Something that lives on engine time. */
export interface Driven {
  /** Runs everything up to `engineMs`. */
  advanceTo(engineMs: number): void;
  /** When there is something to do next, in engine milliseconds; undefined when idle. */
  nextEventMs(): number | undefined;
  /** Sends what the advance brought forth. */
  flush(): void;
}

/** Maps real time to engine time and moves the engines of this process along it, with one timer for all. */
export interface TimeDriver {
  /** Engine time: real milliseconds since the driver was made, times the speed. */
  nowMs(): number;
  add(part: Driven): void;
  /** To be called when a part got work. */
  changed(part: Driven): void;
  stop(): void;
}

interface TimeDriverOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Engine milliseconds per real millisecond. */
  readonly speed: number;
}

/**
 * Engines compute on exact engine times; what they bring forth is handed on as late as the real timer fires. What came
 * due together is flushed together.
 */
export function createTimeDriver({ clock, scheduler, speed }: TimeDriverOptions): TimeDriver {
  const parts: Driven[] = [];
  const startMs = clock.nowMs();
  let cancel: Cancel | undefined;
  let armedMs = Number.POSITIVE_INFINITY;

  const nowMs = (): number => (clock.nowMs() - startMs) * speed;
  const arm = (dueMs: number | undefined): void => {
    if (dueMs === undefined || dueMs >= armedMs) return;
    cancel?.();
    armedMs = dueMs;
    // Rounded up, because a timer that fires a fraction early would find nothing to do.
    cancel = scheduler.after(Math.max(0, Math.ceil((dueMs - nowMs()) / speed)), tick);
  };
  function tick(): void {
    armedMs = Number.POSITIVE_INFINITY;
    const untilMs = nowMs();
    for (const part of parts) {
      const dueMs = part.nextEventMs();
      if (dueMs !== undefined && dueMs <= untilMs) part.advanceTo(untilMs);
    }
    for (const part of parts) part.flush();
    for (const part of parts) arm(part.nextEventMs());
  }
  return {
    nowMs,
    add: (part) => parts.push(part),
    changed: (part) => arm(part.nextEventMs()),
    stop() {
      cancel?.();
      parts.length = 0;
    },
  };
}
