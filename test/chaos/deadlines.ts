import { systemClock, systemScheduler } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { expect } from "vitest";

/**
 * By how much a deadline may be exceeded here: on a machine that a test shares with other work, each step from the fault
 * to what the test sees may have to wait for its turn.
 */
const sharedMachineMs = 1_000;
/** Turns that such steps may wait for: a process notices, tells another one, which acts, and answers the test. */
const stepsInTurn = 4;
const tickMs = 20;
const keptTicks = 6_000;

/** How late processes came to their turns: this one to its ticks, routers to their answers. */
const lateness: { readonly atMs: number; readonly lateMs: number }[] = [];
let tickedMs = systemClock.nowMs();
systemScheduler.every(tickMs, () => {
  const atMs = systemClock.nowMs();
  noteLateness(atMs, atMs - tickedMs - tickMs);
  tickedMs = atMs;
});

function noteLateness(atMs: number, lateMs: number): void {
  lateness.push({ atMs, lateMs });
  if (lateness.length > keptTicks) lateness.shift();
}

/** What is added to deadlines for the time since a moment. */
function allowanceMs(startMs: number): number {
  const worstMs = lateness.reduce((worst, { atMs, lateMs }) => (atMs >= startMs ? Math.max(worst, lateMs) : worst), 0);
  return sharedMachineMs + stepsInTurn * worstMs;
}

/** Measures times from one moment on. */
export interface Since {
  readonly elapsedMs: number;
  /**
   * Waits until something has happened, and fails when it took longer than the deadline and the allowance.
   *
   * @returns when it was seen, in milliseconds
   */
  within(deadlineMs: number, what: string, hasHappened: () => Promise<boolean>): Promise<number>;
}

export function since(startMs: number = systemClock.nowMs()): Since {
  return {
    get elapsedMs() {
      return systemClock.nowMs() - startMs;
    },
    async within(deadlineMs, what, hasHappened) {
      // The answer itself may take long on a busy machine; what counts is when the successful question was put.
      let askedMs = 0;
      const look = async (): Promise<boolean> => {
        const beginMs = systemClock.nowMs();
        askedMs = beginMs - startMs;
        const isOver = await hasHappened();
        noteLateness(systemClock.nowMs(), systemClock.nowMs() - beginMs);
        return isOver;
      };
      await waitFor(look, { what, deadlineMs: 2 * deadlineMs + 10_000 });
      expect(askedMs, what).toBeLessThanOrEqual(deadlineMs + allowanceMs(startMs));
      return askedMs;
    },
  };
}
