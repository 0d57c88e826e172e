import type { Clock } from "@espalier/core";

/** Stamps of one millisecond. With it stamps stay safe integers until the year 2109. */
export const stampsPerMs = 2_048;
/** How far a remote stamp may pull this clock ahead of its own wall clock. */
export const maxAheadMs = 500;

/**
 * A hybrid logical clock (Kulkarni and others, "Logical physical clocks", 2014): its stamps rise with every call, are
 * later than any stamp observed before, and stay close to the wall clock.
 */
export type HybridClock = ReturnType<typeof createHybridClock>;

export function createHybridClock(clock: Clock) {
  let last = 0;
  const wall = (): number => Math.floor(clock.wallMs()) * stampsPerMs;
  return {
    /** A stamp: milliseconds of the wall clock times `stampsPerMs`, plus a counter. A safe integer. */
    now(): number {
      last = Math.max(last + 1, wall());
      return last;
    },
    /**
     * Notes a stamp of another router.
     *
     * @returns false when it is so far ahead that its clock must be wrong: it counts only as far as `maxAheadMs`
     */
    observe(stamp: number): boolean {
      const latest = wall() + maxAheadMs * stampsPerMs;
      last = Math.max(last, Math.min(stamp, latest));
      return stamp <= latest;
    },
  };
}

/** The wall clock of a stamp, in milliseconds since the Unix epoch. */
export function stampMs(stamp: number): number {
  return stamp / stampsPerMs;
}
