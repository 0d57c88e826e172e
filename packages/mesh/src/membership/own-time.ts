import type { Clock } from "@espalier/common";

/**
 * Milliseconds in which this process ran. Time in which it was stopped, or in which its event loop hung, counts only up
 * to a step, so that a router that slept does not take the others for dead when it wakes up.
 */
export interface OwnTime {
  nowMs(): number;
  /**
   * Called regularly.
   *
   * @returns how many milliseconds since the last call did not count
   */
  tick(): number;
}

/** @param maxStepMs the most that counts between two ticks */
export function createOwnTime(clock: Clock, maxStepMs: number): OwnTime {
  let tickedAtMs = clock.nowMs();
  let countedMs = 0;
  return {
    nowMs: () => countedMs + Math.min(clock.nowMs() - tickedAtMs, maxStepMs),
    tick() {
      const nowMs = clock.nowMs();
      const elapsedMs = nowMs - tickedAtMs;
      const countsMs = Math.min(elapsedMs, maxStepMs);
      tickedAtMs = nowMs;
      countedMs += countsMs;
      return elapsedMs - countsMs;
    },
  };
}
