import type { Clock, Scheduler } from "@espalier/common";

/** Time and timers of a browser, behind the ports that everything else takes. */
export const pageTime: Clock & Scheduler = {
  nowMs: () => performance.now(),
  wallMs: () => Date.now(),
  after(delayMs, task) {
    const timer = setTimeout(task, delayMs);
    return () => clearTimeout(timer);
  },
  every(periodMs, task) {
    const timer = setInterval(task, periodMs);
    return () => clearInterval(timer);
  },
};
