/** The port for time. Virtual in tests and in the simulator. */
export interface Clock {
  /** Monotonic milliseconds since an arbitrary start, with a fractional part. Use it for every duration. */
  nowMs(): number;
  /** Wall-clock milliseconds since the Unix epoch. Use it only for what people or other machines read. */
  wallMs(): number;
}

/** Undoes one scheduled call. Calling it after the call ran does nothing. */
export type Cancel = () => void;

/** The port for timers. */
export interface Scheduler {
  /** Runs `task` once, `delayMs` from now. A pending task does not keep the process alive. */
  after(delayMs: number, task: () => void): Cancel;
  /** Runs `task` every `periodMs`, the first time one period from now. Does not keep the process alive. */
  every(periodMs: number, task: () => void): Cancel;
}

export const systemClock: Clock = {
  nowMs: () => performance.now(),
  wallMs: () => Date.now(),
};

/** CPU time of this process, over all threads, in milliseconds. */
export function systemCpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

export const systemScheduler: Scheduler = {
  after(delayMs, task) {
    const timer = setTimeout(task, delayMs);
    timer.unref();
    return () => clearTimeout(timer);
  },
  every(periodMs, task) {
    const timer = setInterval(task, periodMs);
    timer.unref();
    return () => clearInterval(timer);
  },
};

/**
 * Resolves when this turn of Node's event loop has read the pending connections and bytes. Timers run before that: a router
 * that a timer finds idle may have a request waiting.
 */
export const systemAfterPoll = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
