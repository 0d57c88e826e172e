import type { Clock } from "@espalier/common";

/** How many engines compute prompts, and how long ago that was decided. */
export interface DutyDecision {
  readonly count: number;
  readonly ageMs: number;
}

/** How many engines compute prompts, following the share of the work that prefill is. */
export interface DutyCount {
  /**
   * @param share of the work that is prefill, 0 to 1; NaN before the first request
   * @returns from 1 to one less than there are engines; undefined as long as too little is known, or with fewer than two
   */
  next(share: number, engineCount: number): number | undefined;
  /** Undefined before the first one. */
  decision(): DutyDecision | undefined;
  /** Takes over what another router has decided, if that was later. */
  adopt(decision: DutyDecision): void;
}

/** The first number is decided when work has been seen for so long. */
export const dutySettleMs = 30_000;
/** What changed stays for so long. */
export const dutyHoldMs = 30_000;
/** How far the share has to be from the number that is, in engines: a quarter beyond the middle to the next number. */
export const dutyBand = 0.75;

/**
 * Changes by one engine at a time, seldom, and not where the next request may change it back. Of what several routers have
 * decided the latest counts, so that they come to the same number.
 */
export function createDutyCount(clock: Clock): DutyCount {
  let seenMs: number | undefined;
  let count: number | undefined;
  let changedMs = Number.NEGATIVE_INFINITY;
  const decide = (decided: number, atMs: number): void => {
    count = decided;
    changedMs = atMs;
  };
  return {
    next(share, engineCount) {
      if (engineCount < 2) return undefined;
      const bounded = (value: number): number => Math.min(engineCount - 1, Math.max(1, value));
      const nowMs = clock.nowMs();
      if (!Number.isNaN(share)) seenMs ??= nowMs;
      const wanted = share * engineCount;
      if (count === undefined) {
        if (seenMs === undefined || nowMs - seenMs < dutySettleMs || Number.isNaN(share)) return undefined;
        decide(bounded(Math.round(wanted)), nowMs);
      } else if (nowMs - changedMs >= dutyHoldMs && Math.abs(wanted - count) > dutyBand) {
        const changed = bounded(count + Math.sign(wanted - count));
        if (changed !== count) decide(changed, nowMs);
      }
      return count === undefined ? undefined : bounded(count);
    },
    decision: () => (count === undefined ? undefined : { count, ageMs: clock.nowMs() - changedMs }),
    adopt({ count: adopted, ageMs }) {
      const atMs = clock.nowMs() - ageMs;
      if (adopted !== count && atMs > changedMs) decide(adopted, atMs);
    },
  };
}
